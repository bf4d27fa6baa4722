//! Elections in the objects of a namespace.

use std::sync::Arc;

use incumbent_test_support::{KubeServer, eventually};
use serde_json::{Value, json};

use super::scene::{Scene, cells};

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_is_seen_watched_and_moved() {
    let scene = Scene::new().await;
    let mut watch = scene.start(&["election", "watch"]);
    let mut first = scene.campaign("first");
    let token = first.line_with("won").rsplit(' ').next().unwrap().to_owned();
    watch.line_with(&format!("my-app: first leads with token {token}"));

    let told = scene.out(&["election", "info"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], format!("Namespace {}, kind Lease", scene.namespace));
    assert_eq!(cells(lines[2]), ["ELECTION", "LEADER", "SINCE", "TOKEN", "RENEWED"]);
    assert_eq!(cells(lines[3])[..2], ["my-app", "first"]);
    assert!(cells(lines[3]).contains(&token) && lines[3].ends_with(" ago"), "{told}");
    let json = scene.json(&["election", "info", "my-app", "-o", "json"]);
    assert_eq!(json["namespace"], scene.namespace.as_str());
    assert_eq!(json["elections"][0]["token"].to_string(), token);
    assert_eq!(json["elections"][0]["overdue"], false);
    assert_eq!(cells(&scene.out(&["election", "list"]))[2..], ["my-app", "first"]);

    let mut second = scene.campaign("second");
    second.line_with("leader: first");
    let line = scene.refuses(&["election", "evict", "my-app"], "Evict first, who leads my-app", 1);
    assert!(line.contains("--force"), "{line}");
    let mut terminal = scene.shell.on_terminal(&scene.args(&["election", "evict", "my-app"]));
    terminal.shows("who leads my-app? [y/N] ");
    terminal.types("n");
    assert_eq!(terminal.ended().1, Some(1));
    let told = scene.out(&["election", "evict", "my-app", "--force", "--wait", "1m"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "evicted first from my-app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second leads after "), "{told}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{told}");
    watch.line_with("my-app: no leader: first was evicted");
    watch.line_with("my-app: second leads with token ");

    // Who leaves says so; who is killed says nothing, and nobody writes it.
    first.end_by("TERM");
    second.end_by("TERM");
    watch.line_with("my-app: no leader: second released: stopped");
    assert!(scene.out(&["election", "list"]).ends_with("\nmy-app    none (stopped)\n"));
    let mut third = scene.campaign("third");
    third.line_with("won");
    watch.line_with("my-app: third leads");
    third.end_by("KILL");
    watch.line_with("my-app: no leader: third did not renew: expired");
    eventually("the same by its times", async || {
        let list = scene.out(&["election", "list"]);
        list.ends_with("\nmy-app    third (overdue)\n").then_some(())
    })
    .await;
    assert_eq!(watch.end_by("INT"), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_kinds_are_seen_and_moved_and_keep_what_else_they_carry() {
    let scene = Scene::new().await;
    for (kind, plural) in [("configmap", "configmaps"), ("endpoints", "endpoints")] {
        let path = format!("/api/v1/namespaces/{}/{plural}", scene.namespace);
        scene.post(&path, json!({"metadata": {"name": "no-election"}})).await;
        let stays = match kind {
            "configmap" => json!({"metadata": {"name": "my-app"}, "data": {"theirs": "stays"}}),
            _ => json!({"metadata": {"name": "my-app", "labels": {"theirs": "stays"}}}),
        };
        scene.post(&path, stays).await;
        let mut watch = scene.start(&["election", "watch", "--kind", kind]);
        let mut first =
            scene.start(&["campaign", "my-app", "--kind", kind, "--lease=1s", "--identity=first"]);
        first.line_with("won");
        watch.line_with("my-app: first leads");
        let list = scene.out(&["election", "list", "--kind", kind]);
        assert_eq!(cells(&list)[2..], ["my-app", "first"]);
        let told =
            scene.out(&["election", "evict", "my-app", "--kind", kind, "--force", "--wait", "0s"]);
        assert!(told.starts_with("evicted first from my-app\n"), "{told}");
        first.line_with("lost: evicted");
        watch.line_with("first was evicted");
        let object = scene.send("GET", &format!("{path}/my-app"), "", Value::Null).await;
        assert!(object.to_string().contains(r#""theirs":"stays""#), "{object}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_while_its_lease_is_held_under_whatever_name() {
    let scene = Scene::new().await;
    let print = "echo $INCUMBENT_ELECTION $INCUMBENT_IDENTITY $INCUMBENT_TOKEN; exit 7";
    let told = scene.shell.run(&scene.args(&[
        "run",
        "my_app",
        "--object=my-app",
        "--lease=2s",
        "--identity=me",
        "--",
        "/bin/sh",
        "-c",
        print,
    ]));
    assert_eq!(told.code, Some(7), "{told:?}");
    let words = cells(&told.out);
    assert_eq!(words[..2], ["my_app", "me"]);
    assert!(words[2].parse::<u64>().is_ok_and(|token| token > 0), "{told:?}");
    let list = scene.out(&["election", "list"]);
    assert!(list.contains("my-app    none ("), "{list}");

    let line = scene.refuses(&["campaign", "my_app"], "is not a valid name of a Lease", 2);
    assert!(line.contains("--object, as in my-app"), "{line}");
    let line = scene.refuses(&["election", "info", "my_app"], "is not a valid name of a Lease", 2);
    assert!(line.contains("as in my-app"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_there_while_its_keeper_holds_the_lease() {
    let scene = Scene::new().await;
    let file = scene.shell.home().join("leads.json");
    let args = ["election", "file", "my-app", "leads.json", "--lease=1s", "--identity", "a"];
    let keeper = scene.start(&args);
    let read = async || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).ok()?).ok();
    let kept = eventually("a file", read).await;
    assert_eq!((&kept["election"], &kept["leader"]), (&"my-app".into(), &"a".into()));
    let ok = scene.out(&["election", "file", "my-app", "leads.json", "--check", "1m"]);
    assert!(ok.starts_with("OK: my-app: a wrote leads.json "), "{ok}");
    assert_eq!(keeper.end_by("TERM"), Some(15));
    assert!(!file.exists());
    let list = scene.out(&["election", "list"]);
    assert!(list.ends_with("none (work_ended)\n"), "{list}");
}

/// client-go's campaigners write the same record without our mark.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_of_client_go_are_seen_and_moved() {
    let scene = Scene::new().await;
    let time = "2026-01-01T00:00:00.000001Z";
    let spec = json!({
        "holderIdentity": "theirs", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": time, "renewTime": time,
    });
    scene.lease("theirs", spec).await;
    let told = scene.out(&["election", "info"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[3].starts_with("theirs    theirs (overdue)"), "{told}");
    assert_eq!(scene.json(&["election", "list", "-o", "json"])[0]["token"], Value::Null);

    let evict = ["election", "evict", "theirs", "--force", "--wait", "1s"];
    let told = scene.shell.run(&scene.args(&evict));
    assert_eq!((&*told.out, told.code), ("evicted theirs from theirs\n", Some(1)), "{told:?}");
    assert!(told.error.contains("no successor within 1s"), "{told:?}");
    let lease = format!("{}/theirs", scene.leases());
    let lease = scene.send("GET", &lease, "", Value::Null).await;
    assert_eq!(lease["spec"]["holderIdentity"], "");
    assert_eq!(lease["spec"]["leaseTransitions"], 3);
    scene.refuses(&evict, "election theirs: no leader", 3);
    assert_eq!(scene.refusal(&["election", "info", "absent"]).1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_away_is_waited_for_or_not() {
    let server = Arc::new(KubeServer::start(&[]).await);
    let scene = Scene::on(server).await;
    let mut watch = scene.start(&["election", "watch"]);
    let mut first = scene.campaign("first");
    first.line_with("won");
    watch.line_with("first leads");
    scene.server.kill();
    watch.line_with("my-app: no leader: first did not renew: expired");
    scene.refuses(&["election", "list"], "no answer of the API server", 4);
    scene.refuses(&["campaign", "my-app", "--timeout", "1s"], "no answer of the API server", 4);
    first.end_by("KILL");
    let mut second = scene.campaign("second"); // which waits
    scene.server.restart().await;
    second.line_with("won");
    watch.line_with("my-app: second leads");
}
