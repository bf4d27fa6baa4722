//! Invalid flags, kubeconfigs and namespaces.

use std::io::Read;

use serde_json::{Value, json};

use super::env::{TestEnv, kubeconfig};
use crate::shell::Shell;

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_another_lock_are_refused() {
    let shell = Shell::bare();
    let kubernetes = "--lock=kubernetes";
    for (args, expected) in [
        (&["election", "list", kubernetes, "--bucket", "B"][..], "--bucket requires"),
        (&["election", "list", kubernetes, "-s", "h"], "--server requires --lock nats"),
        (&["campaign", "a", kubernetes, "--creds", "f"], "--creds requires"),
        (&["election", "list", "-n", "a"], "--namespace requires --lock kubernetes"),
        (&["campaign", "a", "--kind", "lease"], "--kind requires --lock kubernetes"),
        (&["campaign", "a", "--kubeconfig", "f"], "--kubeconfig requires"),
        (&["campaign", "a", "--object", "b"], "--object requires --lock kubernetes"),
    ] {
        shell.expect_refusal(args, expected, 2);
    }
    let env = TestEnv::new().await;
    for (args, expected) in [
        (&["campaign", "a", "--no-create"][..], "--no-create requires --lock nats"),
        (&["campaign", "a", "--lease", "1500ms"], "1.5s is not a whole number of seconds"),
        (
            &["run", "a", "--lease", "2s", "--grace", "2s", "--", "/bin/true"],
            "too long for a lease",
        ),
    ] {
        env.expect_refusal(args, expected, 2);
    }
    // Each shard has an object of its own: --object is no way out.
    let set = ["set", "run", "My_Set", "--shards", "2", "--", "/bin/true"];
    let line = env.expect_refusal(&set, "choose another one, as in my-set", 2);
    assert!(!line.contains("--object"), "{line}");
    env.shell.expect_refusal(
        &["election", "list", kubernetes, "--namespace", "../../nodes"],
        "cannot be the name of a namespace",
        2,
    );
    // A variable of another lock has no effect.
    let shell = Shell::bare()
        .with("NATS_URL", "nats://h")
        .with("KUBECONFIG", env.server.kubeconfig().display().to_string());
    shell.out(&["election", "list", kubernetes, "-n", &env.namespace]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_kubeconfig_is_reported_in_one_line_without_secrets() {
    let shell = Shell::bare();
    let config = |user: Value| kubeconfig("https://127.0.0.1:1", &user);
    shell.write("junk", "s3cret: [");
    shell.write("kind", &config(json!("s3cret")));
    shell.write("type", &config(json!({"token": {"s3cret": 1}})));
    let data = json!({"client-certificate-data": "s3cret!", "client-key-data": "s3cret!"});
    shell.write("data", &config(data));
    shell.write("nothing", "{}");
    for file in ["junk", "kind", "type", "data", "nothing", "absent"] {
        let args = ["election", "list", "--lock=kubernetes", "--kubeconfig", file];
        let expected = match file {
            "data" => "failed to load client certificate".to_owned(),
            file => format!("the kubeconfig {file} cannot be used"),
        };
        let line = shell.expect_refusal(&args, &expected, 2);
        assert!(!line.contains("s3cret"), "{line}");
    }
    let args = ["election", "list", "--lock=kubernetes"];
    let line = shell.expect_refusal(&args, "no API server: set KUBECONFIG", 2);
    assert!(!line.contains("::"), "{line}");
    // By a URL, it is no usage of this program.
    let by_url = "--lock=kubernetes:a?kubeconfig=absent";
    for args in [&["doctor", by_url][..], &["election", "create", "a", by_url]] {
        shell.expect_refusal(args, "the kubeconfig absent cannot be used", 1);
    }
    shell.write("away", &config(json!({"token": "s3cret"})));
    for args in [
        &["election", "list", "--kubeconfig", "away"][..],
        &["election", "evict", "a", "--force", "--kubeconfig", "away"],
        &["campaign", "a", "--timeout", "2s", "--kubeconfig", "away"],
    ] {
        shell.expect_refusal(
            &[args, &["--lock=kubernetes"]].concat(),
            "no response from the API server",
            4,
        );
    }
}

/// Nothing is started first: no program, and no page.
#[test]
fn unusable_kubeconfig_is_reported_before_the_work_begins() {
    let shell = Shell::bare();
    let flags = ["--lock=kubernetes", "--kubeconfig", "absent"];
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for (command, work) in [
        (&["sentinel"][..], &["--", "/bin/echo", "started"][..]),
        (&["sentinel", "--listen", "own/socket"], &[]),
        (&["set", "run", "a", "--shards", "2", "--http", &address], &["--", "/bin/true"]),
    ] {
        let args = [command, &flags, work].concat();
        shell.expect_refusal(&args, "the kubeconfig absent cannot be used", 2);
    }
    assert!(!shell.home().join("own").exists());
}

/// A kubeconfig that is replaced is missing for a moment.
#[test]
fn kubeconfig_is_read_once() {
    let shell = Shell::bare();
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("https://{}", server.local_addr().expect("an address"));
    shell.write("config", &kubeconfig(&address, &json!({"token": "t"})));
    let flags = ["campaign", "a", "--lock=kubernetes", "--kubeconfig", "config"];
    let mut candidate = shell.start_with_errors(&flags);
    // What was not read would reset the connection, which is another error.
    let close_one = || {
        let (mut attempt, _) = server.accept().expect("an attempt");
        let _ = attempt.read(&mut [0; 16_384]).expect("the greeting of TLS");
    };
    close_one();
    candidate.line_with("no response from the API server");
    std::fs::remove_file(shell.home().join("config")).expect("it is there");
    // The first of these may have been under way.
    for _ in 0..3 {
        close_one();
    }
    assert_eq!(candidate.next_line(), None);
    assert_eq!(candidate.end_with("TERM"), Some(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_context_and_namespace_are_reported() {
    let env = TestEnv::new().await;
    env.out(&["election", "list", "--context", "x"]);
    let by_url = |context| format!("kubernetes:{}?context={context}", env.namespace);
    env.shell.out(&["election", "list", "--lock", &by_url("x")]);
    env.shell.expect_refusal(
        &["election", "list", "--lock", &by_url("absent")],
        "it has no context \"absent\"",
        1,
    );
    let config = env.server.kubeconfig().display().to_string();
    for args in [
        &["election", "list", "--context", "absent"][..],
        &["election", "list", "--context", "absent", "--kubeconfig", &config],
        &["campaign", "a", "--context", "absent"],
    ] {
        env.expect_refusal(args, "it has no context \"absent\"", 2);
    }
    for args in [
        &["election", "list"][..],
        &["election", "list", "--kind", "for-life"],
        &["election", "info", "a"],
        &["election", "evict", "a", "--kind", "configmap"],
        &["campaign", "a"],
        &["run", "a"],
    ] {
        let lock = ["--lock", "kubernetes", "--namespace", "absent"];
        let command: &[&str] = if args[0] == "run" { &["--", "/bin/true"] } else { &[] };
        env.shell.expect_refusal(
            &[args, &lock, command].concat(),
            "no namespace absent: create it",
            3,
        );
    }
    let by_url = ["election", "list", "--lock", "kubernetes:absent"];
    env.shell.expect_refusal(&by_url, "no namespace absent: create it", 3);
    env.expect_refusal(
        &["election", "list", "--life-kind", "lease"],
        "--life-kind requires --kind for-life",
        2,
    );
    // NATS_CONTEXT names a context of NATS, and has no effect here.
    let shell = Shell::bare().with("NATS_CONTEXT", "absent").with("KUBECONFIG", config);
    shell.out(&["election", "list", "--lock", "kubernetes", "-n", &env.namespace]);
}
