//! What is wrong with the flags, the kubeconfig or the namespace.

use serde_json::{Value, json};

use super::scene::{Scene, kubeconfig};
use crate::shell::Shell;

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_another_lock_are_refused() {
    let shell = Shell::bare();
    let kubernetes = "--lock=kubernetes";
    for (args, told) in [
        (&["election", "list", kubernetes, "--bucket", "B"][..], "--bucket requires"),
        (&["election", "list", kubernetes, "-s", "h"], "--server requires --lock nats"),
        (&["campaign", "a", kubernetes, "--creds", "f"], "--creds requires"),
        (&["election", "list", "-n", "a"], "--namespace requires --lock kubernetes"),
        (&["campaign", "a", "--kind", "lease"], "--kind requires --lock kubernetes"),
        (&["campaign", "a", "--kubeconfig", "f"], "--kubeconfig requires"),
        (&["campaign", "a", "--object", "b"], "--object requires --lock kubernetes"),
    ] {
        shell.refuses(args, told, 2);
    }
    let scene = Scene::new().await;
    for (args, told) in [
        (&["campaign", "a", "--no-create"][..], "--no-create requires --lock nats"),
        (&["campaign", "a", "--lease", "1500ms"], "1.5s is not a whole number of seconds"),
        (
            &["run", "a", "--lease", "2s", "--grace", "2s", "--", "/bin/true"],
            "too long for a lease",
        ),
    ] {
        scene.refuses(args, told, 2);
    }
    scene.shell.refuses(
        &["election", "list", kubernetes, "--namespace", "../../nodes"],
        "cannot be the name of a namespace",
        2,
    );
    // A variable of the other lock is not meant for this one.
    let shell = Shell::bare()
        .with("NATS_URL", "nats://h")
        .with("KUBECONFIG", scene.server.kubeconfig().display().to_string());
    shell.out(&["election", "list", kubernetes, "-n", &scene.namespace]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_cannot_be_used_is_one_clear_line_without_secrets() {
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
        let told = match file {
            "data" => "failed to load client certificate".to_owned(),
            file => format!("the kubeconfig {file} cannot be used"),
        };
        let line = shell.refuses(&args, &told, 2);
        assert!(!line.contains("s3cret"), "{line}");
    }
    let args = ["election", "list", "--lock=kubernetes"];
    shell.refuses(&args, "no API server: set KUBECONFIG", 2);
    shell.write("away", &config(json!({"token": "s3cret"})));
    for args in [
        &["election", "list", "--kubeconfig", "away"][..],
        &["election", "evict", "a", "--force", "--kubeconfig", "away"],
        &["campaign", "a", "--timeout", "2s", "--kubeconfig", "away"],
    ] {
        shell.refuses(&[args, &["--lock=kubernetes"]].concat(), "no answer of the API server", 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_and_a_namespace_that_are_not_there_are_told() {
    let scene = Scene::new().await;
    scene.out(&["election", "list", "--context", "x"]);
    let by_url = |context| format!("kubernetes:{}?context={context}", scene.namespace);
    scene.shell.out(&["election", "list", "--lock", &by_url("x")]);
    scene.shell.refuses(
        &["election", "list", "--lock", &by_url("absent")],
        "it has no context \"absent\"",
        1,
    );
    let config = scene.server.kubeconfig().display().to_string();
    for args in [
        &["election", "list", "--context", "absent"][..],
        &["election", "list", "--context", "absent", "--kubeconfig", &config],
        &["campaign", "a", "--context", "absent"],
    ] {
        scene.refuses(args, "it has no context \"absent\"", 2);
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
        scene.shell.refuses(&[args, &lock, command].concat(), "no namespace absent: create it", 3);
    }
    scene.refuses(
        &["election", "list", "--life-kind", "lease"],
        "--life-kind requires --kind for-life",
        2,
    );
    // It is of NATS there, and its variable too.
    let shell = Shell::bare().with("NATS_CONTEXT", "absent").with("KUBECONFIG", config);
    shell.out(&["election", "list", "--lock", "kubernetes", "-n", &scene.namespace]);
}
