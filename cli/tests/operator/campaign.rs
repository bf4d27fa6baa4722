//! `incumbent campaign`: standard output, standard error and exit code.

use incumbent_test_support::Server;
use serde_json::Value;

use crate::shell::Shell;

#[test]
fn version_is_printed() {
    let version = format!("incumbent {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(Shell::bare().out(&["--version"]), version);
}

#[test]
fn unreachable_server_is_reported_in_one_line() {
    let campaign = ["campaign", "my_app", "-s", "nats://127.0.0.1:1", "--timeout", "5s"];
    let line =
        Shell::bare().expect_refusal(&campaign, "cannot reach a NATS server at 127.0.0.1:1", 4);
    assert_eq!(line.matches("onnection refused").count(), 1, "{line}");
}

#[tokio::test]
async fn invalid_input_is_reported_in_one_line() {
    let (_server, shell) = Shell::serving().await;
    for (args, expected, code) in [
        (&["a name"][..], "\"a name\" is not a valid election", 2),
        (&["my_app", "--lease", "100ms"], "200ms", 2),
        (&["my_app", "--bucket", "not a bucket"], "not a bucket", 1),
        (&["my_app", "--bucket", "ABSENT", "--no-create"], "bucket ABSENT does not exist", 3),
        (&["my_app", "--creds", "/does/not/exist"], "/does/not/exist", 2),
    ] {
        shell.expect_refusal(&[&["campaign"], args].concat(), expected, code);
    }
}

/// Checks that need no server come before the connection.
#[test]
fn invalid_input_is_refused_before_connecting() {
    for (args, expected) in [
        (&["a..b"][..], "\"a..b\" is not a valid election"),
        (&["my_app", "--lease", "2h"], "7200s"),
    ] {
        let campaign = [&["campaign", "-s", "nats://127.0.0.1:1"], args].concat();
        Shell::bare().expect_refusal(&campaign, expected, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_may_start_before_its_server() {
    let server = Server::start().await;
    server.stop().await;
    let mut early = Shell::at(&server).start_with_errors(&["campaign", "my_app"]);
    let waits = early.line();
    assert!(waits.starts_with("incumbent: cannot reach a NATS server at 127.0.0.1:"), "{waits}");
    assert!(waits.ends_with("; retrying"), "{waits}");
    server.start_again().await;
    early.line_with("won: leading with token ");
}

/// A win, the report of another leader and a handover on SIGTERM, as text and as JSON lines.
#[tokio::test(flavor = "multi_thread")]
async fn campaign_prints_transitions_and_releases_on_sigterm() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.campaign("my_app", "first");
    let won = first.line();
    assert!(won.starts_with("won: leading with token "), "{won}");
    let base = ["campaign", "my_app", "--lease", "4s", "--identity", "second", "-o", "json"];
    let mut second = shell.start(&base);
    let seen: Value = serde_json::from_str(&second.line()).expect("JSON");
    assert_eq!((&seen["event"], &seen["leader"]), (&"leader".into(), &"first".into()));
    assert_eq!(first.end_with("TERM"), Some(15));
    let won: Value = serde_json::from_str(&second.line_with("\"won\"")).expect("JSON");
    assert!(won["token"].is_u64(), "{won}");
    assert_eq!(second.end_with("TERM"), Some(15));
}

/// The server accepts the connection and sends nothing.
#[test]
fn campaign_can_be_interrupted_while_connecting() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", silent.local_addr().expect("an address"));
    let campaign = Shell::bare().start(&["campaign", "my_app", "-s", &url, "--timeout", "30s"]);
    let _connection = silent.accept().expect("it connects");
    assert_eq!(campaign.end_with("TERM"), Some(15));
}
