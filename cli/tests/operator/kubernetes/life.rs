//! `incumbent life`: a command that runs once its pod leads for life.

use serde_json::json;

use super::scene::{NOBODY, SERVE, Scene, cells};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_once_its_pod_leads_and_ends_when_the_lock_is_lost() {
    let scene = Scene::new().await;
    let uid = scene.pod("first").await;
    scene.pod("second").await;
    let mut first = scene.life("first", SERVE);
    let told = cells(&first.line_with("serves"));
    assert_eq!(told[..3], ["serves", "my-app", "first"]);
    let lock = scene.lock().await;
    assert_eq!(told[3], lock["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(told[4], "0");
    assert_eq!(lock["metadata"]["ownerReferences"][0]["uid"], uid);

    let mut second = scene.life("second", SERVE);
    assert_eq!(second.line(), "incumbent: my-app: waiting: pod first leads");
    scene.delete_pod("first").await;
    let next = cells(&second.line_with("serves"));
    assert!(next[3].parse::<u64>().unwrap() > told[3].parse().unwrap(), "{next:?}");
    first.line_with("asked");
    let line = first.line_with("incumbent: ");
    assert!(line.contains("my-app: the lock was taken from pod first"), "{line}");
    assert_eq!(first.ended(), Some(3));
}

/// The kubelet starts a container again that has ended, in the same pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_leaves_the_lock_to_the_next_one_of_its_pod() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    scene.pod("second").await;
    let told = scene.shell.run(&scene.life_args("first", &[], "echo $INCUMBENT_RESUMED; exit 7"));
    assert_eq!((&*told.out, &*told.error, told.code), ("0\n", "", Some(7)));
    let lock = scene.lock().await;
    let mut second = scene.life("second", SERVE);
    second.line_with("pod first leads");

    let mut again = scene.life("first", SERVE);
    assert!(again.line_with("serves").ends_with(" 1"), "resumed");
    again.signal("TERM");
    again.line_with("asked");
    assert_eq!(again.ended(), Some(128 + 15));

    // One that is killed takes the command with it.
    let mut killed = scene.life("first", SERVE);
    killed.line_with("serves");
    killed.signal("KILL");
    killed.line_with("asked");
    let mut last = scene.life("first", SERVE);
    last.line_with("serves");
    assert_eq!(scene.lock().await, lock, "nobody has written");

    second.signal("TERM");
    assert_eq!(second.ended(), Some(128 + 15), "while it waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_stop_is_killed_after_its_grace() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let stubborn = "trap '' TERM; echo up; while :; do /bin/sleep 0.05; done";
    let args = scene.life_args("first", &["--grace", "200ms", "--signal", "INT"], stubborn);
    let mut first = scene.shell.start_with_errors(&args);
    first.line_with("up");
    first.signal("TERM");
    assert_eq!(first.ended(), Some(128 + 15));
    let args = scene.life_args("first", &["--life-kind", "lease"], "exit 0");
    assert_eq!(scene.shell.run(&args).code, Some(0));
    let lease = scene.get(&format!("{}/my-app", scene.leases())).await;
    assert_eq!(lease["metadata"]["ownerReferences"][0]["name"], "first");
    let list = scene.out(&["election", "list", "--kind", "for-life", "--life-kind", "lease"]);
    assert!(list.ends_with("\nmy-app    first\n"), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_is_one_clear_line() {
    let scene = Scene::new().await;
    scene.pod("first").await;
    let config = scene.server.kubeconfig().display().to_string();
    let namespace = &*scene.namespace;
    for (args, told, code) in [
        (&["life", "my app", "--namespace", namespace][..], "not a valid name of a ConfigMap", 2),
        (&["life", "my_app"], "choose another election name, as in my-app", 2),
        (&["life", "a", "--namespace", "absent"], "no namespace absent", 3),
        (&["life", "a", "--namespace", "Not One"], "cannot be the name of a namespace", 2),
        (&["life", "a", "--namespace", namespace, "--pod", "x"], "there is no Pod t", 2),
        (&["life", "a", "--pod", "x y"], "\"x y\" is no name of a Kubernetes object", 2),
        (&["life", "a", "--context", "absent"], "it has no context \"absent\"", 2),
        (
            &["life", "a", "--kubeconfig", &config, "--context", "absent"],
            "it has no context \"absent\"",
            2,
        ),
        (&["life", "a", "--kubeconfig", "absent"], "the kubeconfig absent cannot be used", 2),
        (&["life", "a", "--poll", "1ms"], "a poll every 1ms is too often", 2),
    ] {
        let told = (told, code);
        scene.shell.refuses(&[args, &["--", "/bin/true"]].concat(), told.0, told.1);
    }
    scene.shell.refuses(
        &["life", "a", "--", "/no/such/command"],
        "no command /no/such/command",
        127,
    );

    let lock = json!({"metadata": {"name": "theirs"}, "data": {"key": "value"}});
    scene.post(&scene.core("configmaps"), lock).await;
    let args = ["life", "theirs", "--namespace", namespace, "--pod", "first", "--", "/bin/true"];
    scene.shell.refuses(&args, "it has data, so it is no lock; take another name", 2);
    for verb in ["info", "evict"] {
        scene.shell.refuses(
            &scene.for_life(&["election", verb, "theirs"]),
            "is no lock of a leader for life: it has data",
            1,
        );
    }

    // A right that is missing may come: a server that has just started knows none.
    let nobody = scene.config_of(NOBODY);
    let args = scene.life_args("first", &["--kubeconfig", &nobody], "true");
    let told = scene.shell.run(&args);
    let lines: Vec<&str> = told.error.lines().collect();
    let [waits, ends] = lines[..] else { panic!("two lines: {told:?}") };
    assert!(waits.contains("the right to get is missing") && waits.contains("my-app: waiting: "));
    assert!(ends.contains("the right to get is missing") && !ends.contains("waiting"), "{ends}");
    assert_eq!(told.code, Some(5));

    // Nobody listens there: it is waited for.
    scene.shell.write(
        "away",
        &std::fs::read_to_string(&config)
            .unwrap()
            .replace(&format!(":{}", scene.server.port()), ":1"),
    );
    let args = scene.life_args("first", &["--kubeconfig", "away"], "true");
    let mut waits = scene.shell.start_with_errors(&args);
    let line = waits.line();
    assert!(line.contains("no answer of the API server: "), "{line}");
    waits.signal("INT");
    assert_eq!(waits.ended(), Some(128 + 2));
}
