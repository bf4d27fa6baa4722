//! `incumbent life`: a command that runs when its pod becomes leader for life.

use serde_json::json;

use super::env::{NO_RIGHTS, SERVE, TestEnv, cells};

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_while_its_pod_leads() {
    let env = TestEnv::new().await;
    let uid = env.create_pod("first").await;
    env.create_pod("second").await;
    let mut first = env.start_life("first", SERVE);
    let output = cells(&first.line_with("serves"));
    assert_eq!(output[..3], ["serves", "my-app", "first"]);
    let lock = env.get_lock().await;
    assert_eq!(output[3], lock["metadata"]["resourceVersion"].as_str().unwrap());
    assert_eq!(output[4], "0");
    assert_eq!(lock["metadata"]["ownerReferences"][0]["uid"], uid);

    let mut second = env.start_life("second", SERVE);
    assert_eq!(second.line(), "incumbent: my-app: waiting: pod first leads");
    env.delete_pod("first").await;
    let next = cells(&second.line_with("serves"));
    assert!(next[3].parse::<u64>().unwrap() > output[3].parse().unwrap(), "{next:?}");
    first.line_with("stopping");
    let line = first.line_with("incumbent: ");
    assert!(line.contains("my-app: the lock was taken from pod first"), "{line}");
    assert_eq!(first.wait(), Some(3));
}

/// The kubelet restarts an ended container in the same pod.
#[tokio::test(flavor = "multi_thread")]
async fn next_container_of_a_pod_resumes_the_lock() {
    let env = TestEnv::new().await;
    env.create_pod("first").await;
    env.create_pod("second").await;
    let output = env.shell.run(&env.life_args("first", &[], "echo $INCUMBENT_RESUMED; exit 7"));
    assert_eq!((&*output.stdout, &*output.stderr, output.code), ("0\n", "", Some(7)));
    let lock = env.get_lock().await;
    let mut second = env.start_life("second", SERVE);
    second.line_with("pod first leads");

    let mut again = env.start_life("first", SERVE);
    assert!(again.line_with("serves").ends_with(" 1"), "resumed");
    again.signal("TERM");
    again.line_with("stopping");
    assert_eq!(again.wait(), Some(128 + 15));

    // The command ends with a killed program.
    let mut killed = env.start_life("first", SERVE);
    killed.line_with("serves");
    killed.signal("KILL");
    killed.line_with("stopping");
    let mut last = env.start_life("first", SERVE);
    last.line_with("serves");
    assert_eq!(env.get_lock().await, lock, "no candidate has written the lock");

    second.signal("TERM");
    assert_eq!(second.wait(), Some(128 + 15), "while it waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_killed_after_its_grace() {
    let env = TestEnv::new().await;
    env.create_pod("first").await;
    let stubborn = "trap '' TERM; echo up; while :; do /bin/sleep 0.05; done";
    let args = env.life_args("first", &["--grace", "200ms", "--signal", "INT"], stubborn);
    let mut first = env.shell.start_with_errors(&args);
    first.line_with("up");
    first.signal("TERM");
    assert_eq!(first.wait(), Some(128 + 15));
    let args = env.life_args("first", &["--life-kind", "lease"], "exit 0");
    assert_eq!(env.shell.run(&args).code, Some(0));
    let lease = env.get(&format!("{}/my-app", env.leases())).await;
    assert_eq!(lease["metadata"]["ownerReferences"][0]["name"], "first");
    let list = env.out(&["election", "list", "--kind", "for-life", "--life-kind", "lease"]);
    assert!(list.ends_with("\nmy-app    first\n"), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_failure_is_reported_in_one_line() {
    let env = TestEnv::new().await;
    env.create_pod("first").await;
    let config = env.server.kubeconfig().display().to_string();
    let namespace = &*env.namespace;
    for (args, expected, code) in [
        (&["life", "my app", "--namespace", namespace][..], "not a valid name of a ConfigMap", 2),
        (&["life", "my_app"], "choose another election name, as in my-app", 2),
        (&["life", "a", "--namespace", "absent"], "no namespace absent", 3),
        (&["life", "a", "--namespace", "Not One"], "cannot be the name of a namespace", 2),
        (&["life", "a", "--namespace", namespace, "--pod", "x"], "there is no Pod t", 2),
        (&["life", "a", "--pod", "x y"], "\"x y\" is not a valid name of a Kubernetes object", 2),
        (&["life", "a", "--context", "absent"], "it has no context \"absent\"", 2),
        (
            &["life", "a", "--kubeconfig", &config, "--context", "absent"],
            "it has no context \"absent\"",
            2,
        ),
        (&["life", "a", "--kubeconfig", "absent"], "the kubeconfig absent cannot be used", 2),
        (&["life", "a", "--poll", "1ms"], "a poll interval of 1ms is too short", 2),
    ] {
        env.shell.expect_refusal(&[args, &["--", "/bin/true"]].concat(), expected, code);
    }
    env.shell.expect_refusal(
        &["life", "a", "--", "/no/such/command"],
        "no command /no/such/command",
        127,
    );

    let lock = json!({"metadata": {"name": "theirs"}, "data": {"key": "value"}});
    env.post(&env.core("configmaps"), lock).await;
    let args = ["life", "theirs", "--namespace", namespace, "--pod", "first", "--", "/bin/true"];
    env.shell.expect_refusal(&args, "it has data, so it is not a lock; use another name", 2);
    for verb in ["info", "evict"] {
        env.shell.expect_refusal(
            &env.for_life_args(&["election", verb, "theirs"]),
            "is not the lock of a leader for life: it has data",
            1,
        );
    }

    // The program retries after a missing permission, because a server that has just started knows
    // no permissions.
    let no_rights = env.config_of(NO_RIGHTS);
    let args = env.life_args("first", &["--kubeconfig", &no_rights], "true");
    let output = env.shell.run(&args);
    let lines: Vec<&str> = output.stderr.lines().collect();
    let [waits, ends] = lines[..] else { panic!("two lines: {output:?}") };
    assert!(waits.contains("the right to get is missing") && waits.contains("my-app: waiting: "));
    assert!(ends.contains("the right to get is missing") && !ends.contains("waiting"), "{ends}");
    assert_eq!(output.code, Some(5));

    // No server listens at this port: the program waits for one.
    env.shell.write(
        "away",
        &std::fs::read_to_string(&config)
            .unwrap()
            .replace(&format!(":{}", env.server.port()), ":1"),
    );
    let args = env.life_args("first", &["--kubeconfig", "away"], "true");
    let mut waits = env.shell.start_with_errors(&args);
    let line = waits.line();
    assert!(line.contains("no response from the API server: "), "{line}");
    waits.signal("INT");
    assert_eq!(waits.wait(), Some(128 + 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_life_takes_part_for_life() {
    let env = TestEnv::new().await;
    for command in [
        &["run", "my-app", "--", "true"][..],
        &["run", "my-app", "--seats", "2", "--", "true"],
        &["campaign", "my-app"],
        &["election", "file", "my-app", "leads.json"],
    ] {
        let (verb, rest) = command.split_at(1);
        let args = [verb, &["--lock", "kubernetes", "--kind", "for-life"], rest].concat();
        env.shell.expect_refusal(&args, "use `incumbent life`", 2);
    }
}
