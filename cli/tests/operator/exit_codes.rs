//! Exit codes, colors, signals and closed output, on which scripts rely.

use std::io::Write;
use std::process::Stdio;

use futures_util::StreamExt;
use incumbent_test_support::Server;

use crate::shell::Shell;

#[test]
fn help_lists_the_exit_codes() {
    for args in [&["--help"][..], &["kv", "--help"], &["campaign", "--help"]] {
        let help = Shell::bare().out(args);
        for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "128+n "] {
            assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "{code}: {help}");
        }
    }
}

#[tokio::test]
async fn each_kind_of_failure_has_its_own_exit_code() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    assert_eq!(shell.run(&["kv", "put", "B", "k", "v"]).code, Some(0));
    assert_eq!(shell.refusal(&["kv", "add", "B"]).1, 1);
    assert_eq!(shell.run(&["kv", "gett"]).code, Some(2));
    assert_eq!(shell.refusal(&["kv", "get", "not a bucket", "k"]).1, 2);
    assert_eq!(shell.refusal(&["kv", "get", "B", "absent"]).1, 3);
    assert_eq!(shell.refusal(&["kv", "get", "ABSENT", "k"]).1, 3);
    assert_eq!(shell.refusal(&["kv", "ls", "-s", "127.0.0.1:1"]).1, 4);
}

#[test]
fn wrong_usage_is_one_line_with_the_help_to_read() {
    for (args, line) in [
        (
            &["campaign", "a", "--bukcet", "B"][..],
            "unexpected argument '--bukcet' found; a similar argument exists: '--bucket'; see `incumbent campaign --help`",
        ),
        (
            &["election", "inof"],
            "a similar subcommand exists: 'info'; see `incumbent election --help`",
        ),
        (&["kv", "get"], "not provided: <BUCKET> <KEY>; see `incumbent kv get --help`"),
    ] {
        Shell::bare().expect_refusal(args, line, 2);
    }
}

/// A lock that opens without a request is read once.
#[test]
fn unreachable_etcd_is_reported_in_one_line() {
    let campaign = ["campaign", "my_app", "--lock", "etcd://127.0.0.1:1/e", "--timeout", "5s"];
    Shell::bare().expect_refusal(&campaign, "no connection to etcd at 127.0.0.1:1", 4);
}

/// A filter that is ignored in part would suppress logs that the user needs.
#[test]
fn invalid_log_filter_is_a_usage_error() {
    for filter in ["incumbent=loud", "=,=", "incumbent=debug,,[", "\u{1b}[31m=5"] {
        let shell = Shell::bare().with("INCUMBENT_LOG", filter);
        let line = shell.expect_refusal(&["kv", "ls", "-s", "127.0.0.1:1"], "INCUMBENT_LOG", 2);
        assert!(line.contains("incumbent=debug") && !line.contains('\u{1b}'), "{line}");
    }
    for filter in ["", "debug", "incumbent=trace,async_nats=off"] {
        let shell = Shell::bare().with("INCUMBENT_LOG", filter);
        assert_eq!(shell.run(&["kv", "ls", "-s", "127.0.0.1:1"]).code, Some(4), "{filter:?}");
    }
}

/// Logs are colored by default on a terminal.
#[tokio::test]
async fn no_color_applies_to_logs() {
    let server = Server::start().await;
    for (variable, flag, colored) in [
        ("NO_COLOR", "auto", false),
        ("X", "auto", true),
        ("X", "never", false),
        ("NO_COLOR", "always", true),
    ] {
        let shell = Shell::at(&server).with(variable, "1");
        let mut terminal = shell.on_terminal(&["campaign", "my_app", "-v", "--color", flag]);
        terminal.wait_for("became leader");
        let (seen, _) = terminal.interrupt();
        let styled = seen.contains("\u{1b}[32m") || seen.contains("\u{1b}[2m");
        assert_eq!(styled, colored, "{variable}, {flag}: {seen:?}");
    }
}

#[tokio::test]
async fn missing_jetstream_is_reported_in_one_line() {
    let server = Server::builder().without_jetstream().start().await;
    let (line, code) = Shell::at(&server).refusal(&["kv", "ls"]);
    assert!(line.contains("no response from JetStream: enable it"), "{line}");
    assert_eq!(code, 4);
}

#[tokio::test]
async fn elections_without_jetstream_are_reported_with_advice() {
    let expected = "no response from JetStream: enable it on the server, or set --js-domain";
    let server = Server::builder().without_jetstream().start().await;
    for command in [&["election", "list"][..], &["election", "info", "a"], &["leader", "a"]] {
        Shell::at(&server).expect_refusal(command, expected, 4);
    }
    let (_server, shell) = Shell::with_leaders(&[("a", "b")]).await;
    shell.expect_refusal(&["election", "list", "--js-domain", "absent"], expected, 4);
}

/// The server accepts the connection, and answers no request.
#[test]
fn silent_server_is_reported_with_advice() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let info = br#"INFO {"server_id":"s","version":"2.11.0","max_payload":1048576,"headers":true,"proto":1}"#;
            let _ = client.write_all(&[&info[..], b"\r\nPONG\r\n"].concat());
            let _ = std::io::copy(&mut client, &mut std::io::sink());
        }
    });
    let args = ["election", "list", "--timeout", "5s", "-s", &url];
    Shell::bare().expect_refusal(&args, "see --timeout", 4);
}

/// A response of the server other than one that something is missing.
#[tokio::test]
async fn refused_request_is_a_failure() {
    let (server, shell) = Shell::serving().await;
    let client = server.connect().await;
    let info = r#"{"error":{"code":503,"err_code":10008,"description":"later"}}"#;
    let mut requests = client.subscribe("fake.STREAM.INFO.*").await.expect("a subscription");
    client.flush().await.expect("it is there");
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let reply = request.reply.expect("a subject");
            client.publish(reply, info.into()).await.expect("it is sent");
        }
    });
    let args = ["election", "list", "--js-api-prefix", "fake"].map(str::to_owned);
    let refused = move || shell.expect_refusal(&args.each_ref().map(|arg| &**arg), "later", 1);
    tokio::task::spawn_blocking(refused).await.expect("a refusal");
}

#[tokio::test]
async fn signal_ends_the_program_as_shells_expect() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    shell.out(&["kv", "put", "B", "k", "v"]);
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let mut watch = shell.start(&["kv", "watch", "B"]);
        watch.line_with("B > k");
        assert_eq!(watch.end_with(name), Some(number));
    }
}

/// What only lists has left nothing undone.
#[tokio::test]
async fn closed_output_is_a_failure_unless_of_a_listing() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    shell.out(&["kv", "put", "B", "a", "v"]);
    let mut leader = shell.campaign("my_app", "c1");
    leader.line_with("won");
    for (args, code) in [
        (&["kv", "keys", "B"][..], 0),
        (&["kv", "ls"], 0),
        (&["kv", "get", "B", "a"], 0),
        (&["kv", "watch", "B"], 0),
        (&["election", "list"], 0),
        (&["man"], 0),
        (&["leader", "my_app", "--identity", "c1"], 1),
        (&["doctor"], 1),
        (&["campaign", "other", "--timeout", "1m"], 1),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = shell.command(args);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let error = if code == 0 { "" } else { "incumbent: standard output was closed\n" };
        assert_eq!(String::from_utf8_lossy(&output.stderr), error, "{args:?}");
    }
}
