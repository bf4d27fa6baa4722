//! `incumbent leader`.

use incumbent_test_support::Server;

use crate::shell::{CommandOutput, Shell};

/// The output of a run that is no failure: standard output, standard error and the exit code.
fn parts(output: &CommandOutput) -> (&str, &str, Option<i32>) {
    (&output.stdout, &output.stderr, output.code)
}

/// Candidates without `--identity` and this command have the same default.
#[tokio::test]
async fn default_identity_is_that_of_candidates() {
    let (_server, shell) = Shell::serving().await;
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    shell.out(&["leader", "my_app"]);
    let lock = ["--lock", "sqlite:elections.db", "--lease", "30s"];
    let mut leader = shell.start(&[&["campaign", "my_app"], &lock[..]].concat());
    leader.line_with("won");
    shell.out(&["leader", "my_app", "--lock", "sqlite:elections.db"]);
}

#[tokio::test]
async fn nothing_is_created() {
    let (_server, shell) = Shell::serving().await;
    shell.expect_refusal(&["leader", "my_app"], "the bucket does not exist", 3);
    shell.expect_refusal(&["election", "list"], "the bucket does not exist", 3);
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    let output = shell.run(&["leader", "my_app", "--bucket", "B"]);
    let line = "incumbent: election my_app: no leader (absent)\n";
    assert_eq!(parts(&output), ("", line, Some(3)));
    assert_eq!(shell.out(&["kv", "keys", "B"]), "");
    let absent = ["leader", "my_app", "--lock", "sqlite:absent.db"];
    shell.expect_refusal(&absent, "absent.db does not exist", 1);
    assert!(!shell.home().join("absent.db").exists());
    shell.expect_refusal(&["leader", "my_app", "-s", "127.0.0.1:1"], "127.0.0.1:1", 4);
    assert_eq!(shell.refusal(&["leader", "a name"]).1, 2);
}

/// A database does not tell when the holder wrote last: a dead one stays in it.
#[tokio::test]
async fn leader_whose_lease_is_over_is_none() {
    let shell = Shell::bare();
    let lock = ["--lock", "sqlite:elections.db"];
    let flags = ["campaign", "my_app", "--identity", "c1", "--lease", "20s"];
    let mut leader = shell.start(&[&flags[..], &lock].concat());
    leader.line_with("won");
    let ask = || shell.run(&[&["leader", "my_app", "--identity", "c1"], &lock[..]].concat());
    assert_eq!(parts(&ask()), ("c1\n", "", Some(0)));
    leader.end_with("KILL");
    let output = ask();
    let line = "incumbent: election my_app: no leader (expired)\n";
    assert_eq!(parts(&output), ("", line, Some(3)));
}

/// The permissions of `deploy/nats-permissions.conf`, without those to write.
#[tokio::test]
async fn rights_of_an_observer_suffice() {
    let observer = "{ user: observer, password: o, permissions: { \
        publish: [\"$JS.API.STREAM.INFO.KV_B\", \"$JS.API.STREAM.MSG.GET.KV_B\"], \
        subscribe: [\"_INBOX_observer.>\"] } }";
    let config = format!("authorization {{ users: [{{ user: admin, password: a }}, {observer}] }}");
    let server = Server::builder().config(config).start().await;
    let shell = Shell::at(&server).with("NATS_USER", "admin").with("NATS_PASSWORD", "a");
    let mut leader = shell.start(&["campaign", "my_app", "--bucket", "B", "--identity", "c1"]);
    leader.line_with("won");
    let flags = ["--bucket", "B", "--user", "observer", "--password", "o"];
    let flags = [&flags[..], &["--inbox-prefix", "_INBOX_observer"]].concat();
    let url = server.url_as("observer", "o") + "/B?create=no&inbox-prefix=_INBOX_observer";
    for lock in [flags, vec!["--lock", &url]] {
        let output = shell.run(&[&["leader", "my_app", "--identity", "c1"], &lock[..]].concat());
        assert_eq!(parts(&output), ("c1\n", "", Some(0)), "{lock:?}");
    }
}
