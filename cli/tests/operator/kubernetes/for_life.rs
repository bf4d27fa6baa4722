//! Leaders for life, as the other commands see and make them.

use incumbent_test_support::eventually;
use serde_json::{Value, json};

use super::scene::{SERVE, Scene, cells};

#[tokio::test(flavor = "multi_thread")]
async fn leaders_for_life_are_seen_watched_and_moved() {
    let scene = Scene::new().await;
    let mut watch = scene.shell.start(&scene.for_life(&["election", "watch"]));
    let uid = scene.pod("first").await;
    scene.phase("first", "Running").await;
    scene.pod("second").await;
    let mut first = scene.life("first", SERVE);
    let token = cells(&first.line_with("serves"))[3].clone();
    let line = watch.line_with("my-app: ");
    assert!(line.contains(&format!("pod first (Running, UID {uid}) leads")), "{line}");
    assert!(line.ends_with(&format!(" with token {token}")), "{line}");

    // What somebody keeps something in is no lock, though a pod owns it; what operator-sdk makes is one.
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": uid}]);
    let theirs =
        json!({"metadata": {"name": "theirs", "ownerReferences": owner}, "data": {"a": "b"}});
    scene.post(&scene.core("configmaps"), theirs).await;
    let sdk = json!({"metadata": {"name": "sdk", "ownerReferences": owner}});
    scene.post(&scene.core("configmaps"), sdk).await;
    watch.line_with("sdk: pod first ");
    let list = scene.shell.out(&scene.for_life(&["election", "list"]));
    assert_eq!(cells(&list), ["ELECTION", "LEADER", "my-app", "first", "sdk", "first"]);
    let info = scene.shell.out(&scene.for_life(&["election", "info", "my-app"]));
    let lines: Vec<&str> = info.lines().collect();
    assert_eq!(
        lines[0],
        format!("Namespace {}, leaders for life, kind ConfigMap", scene.namespace)
    );
    assert_eq!(cells(lines[2]), ["ELECTION", "POD", "PHASE", "SINCE", "TOKEN", "UID"]);
    assert_eq!(cells(lines[3])[..3], ["my-app", "first", "Running"]);
    assert!(lines[3].ends_with(&format!(" ago  {token:<5}  {uid}")), "{info}");
    let told = scene.shell.json(&scene.for_life(&["election", "info", "my-app", "-o", "json"]));
    let told = &told["elections"][0];
    assert_eq!(told["pod"], json!({"uid": uid, "phase": "Running"}));
    assert_eq!((told["token"].to_string(), &told["renewed"]), (token.clone(), &Value::Null));

    let mut second = scene.life("second", SERVE);
    second.line_with("pod first leads");
    let evict = scene.for_life(&["election", "evict", "my-app"]);
    let line = scene.shell.refuses(&evict, "Delete the lock of pod first", 1);
    assert!(line.contains("--force"), "{line}");
    let mut terminal = scene.shell.on_terminal(&evict);
    terminal.shows("when the successor starts? [y/N] ");
    terminal.types("n");
    assert_eq!(terminal.ended().1, Some(1));
    let told = scene.shell.out(&[&*evict, &["--force", "--wait", "1m"]].concat());
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], format!("evicted pod first (Running, UID {uid}) from my-app"));
    second.line_with("serves");
    assert!(lines[1].starts_with("pod second (Pending, UID "), "{told}");
    assert_eq!(first.ended(), Some(3));
    watch.line_with("my-app: pod second ");
    scene.delete_pod("second").await;
    watch.line_with("my-app: no leader: pod second ");
    scene.shell.refuses(&evict, "election my-app: no leader", 3);
}

/// `run` and `campaign` know leaders for life as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_commands_stand_for_life_where_they_are_told_so() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    scene.pod("second").await;
    let first = scene.for_life(&["run", "my-app", "--identity", "first"]);
    let mut first = scene.shell.start(&[&*first, &["--", "/bin/sh", "-c", SERVE]].concat());
    first.line_with("serves my-app first");
    let campaign = scene.for_life(&["campaign", "my-app", "--identity", "second"]);
    let mut second = scene.shell.start(&campaign);
    second.line_with("waiting: pod first leads");
    scene.delete_pod("first").await;
    second.line_with("won: leading with token ");
    let evict = scene.for_life(&["election", "evict", "my-app", "--force", "--wait", "0s"]);
    scene.shell.out(&evict);
    second.line_with("lost: the lock was taken");
    second.line_with("won: leading with token ");
    assert_eq!(second.end_by("TERM"), Some(15));
    assert_eq!(scene.lock().await["metadata"]["ownerReferences"][0]["name"], "second");

    let mut json = scene.shell.start(&[&*campaign, &["-o", "json"]].concat());
    json.line_with(r#"{"event":"won","resumed":true,"token":"#);
    assert_eq!(json.end_by("TERM"), Some(15));
    for flags in [["--lease", "5s"], ["--http", "0"]] {
        scene.shell.refuses(
            &[&*campaign, &flags].concat(),
            &format!("{} cannot be used with --kind for-life", flags[0]),
            2,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_there_while_its_keepers_pod_owns_the_lock() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let file = scene.shell.home().join("leads.json");
    let args = ["election", "file", "my-app", "leads.json", "--identity", "first"];
    let args = scene.for_life(&args);
    let read = async || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).ok()?).ok();
    let keeper = scene.shell.start(&args);
    assert_eq!(eventually("a file", read).await["leader"], "first");
    assert_eq!(keeper.end_by("TERM"), Some(15));
    assert!(!file.exists());
    let keeper = scene.shell.start_with_errors(&args); // as a container that was restarted
    eventually("a file", read).await;
    let evict = scene.for_life(&["election", "evict", "my-app", "--force", "--wait", "0s"]);
    scene.shell.out(&evict);
    assert_eq!(keeper.ended(), Some(3));
    assert!(!file.exists());
    scene.shell.refuses(
        &[&*args, &["--lease", "5s"]].concat(),
        "--lease cannot be used with --kind for-life",
        2,
    );
}
