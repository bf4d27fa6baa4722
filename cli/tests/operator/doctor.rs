//! `doctor` of elections in a bucket, and helpers for the tests of other locks.

use incumbent_test_support::{Server, Version, jetstream_on, on_versions};
use serde_json::Value;

use crate::shell::{BUCKET, CommandOutput, Shell};

/// The line of this level that contains this text. Panics without one.
pub fn expect_line<'a>(report: &'a CommandOutput, level: &str, text: &str) -> &'a str {
    let mut lines = report.stdout.lines();
    let found = lines.find(|line| line.starts_with(level) && line.contains(text));
    found.unwrap_or_else(|| panic!("no {level:?} with {text:?}: {report:?}"))
}

/// How often a report is made anew because requests took long.
const TRIES: usize = 20;

/// Runs a command that begins with `doctor`. A report that requests take long is made anew: that is
/// a matter of the machine.
pub fn run_doctor(shell: &Shell, args: &[&str]) -> CommandOutput {
    let is_slow = |report: &CommandOutput| {
        let words = ["which leaves little margin", "so no candidate can lead"];
        words.iter().any(|text| report.stdout.contains(text))
    };
    let mut reports = (0..TRIES).map(|_| shell.run(args));
    reports.find(|report| !is_slow(report)).expect("requests that do not take long")
}

/// Runs `incumbent doctor`, and checks that standard error is empty and the exit code is `code`.
pub fn doctor(shell: &Shell, args: &[&str], code: i32) -> CommandOutput {
    let report = run_doctor(shell, &[&["doctor"], args].concat());
    assert_eq!((report.stderr.as_str(), report.code), ("", Some(code)), "{report:?}");
    report
}

/// A server with a bucket for elections.
async fn start_env() -> (Server, Shell) {
    let (server, shell) = Shell::with_leaders(&[]).await;
    (server, shell)
}

#[tokio::test]
async fn healthy_bucket_is_left_unchanged() {
    let (_server, shell) = start_env().await;
    let before = shell.json(&["kv", "status", BUCKET, "-o", "json"]);
    let report = doctor(&shell, &[], 0);
    expect_line(&report, "ok       clock rate ", "parts per million now");
    let after = shell.json(&["kv", "status", BUCKET, "-o", "json"]);
    assert_eq!(before, after, "no entry is stored");
}

on_versions!(#[tokio::test] old_server_is_a_warning: v2_10);
async fn old_server_is_a_warning(version: Version) {
    let server = Server::builder().version(version).start().await;
    let shell = Shell::at(&server);
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    let report = doctor(&shell, &[], 1);
    let old =
        expect_line(&report, "warning  server ", "nats-server 2.10.26: it has no TTLs per entry");
    assert!(old.ends_with("upgrade to 2.11.10 or later"), "{old}");
    expect_line(&report, "warning  bucket ", "no message TTLs");
    expect_line(&report, "warning  bucket ", "no expiry markers");
}

#[tokio::test]
async fn server_without_jetstream_is_an_error() {
    let server = Server::builder().without_jetstream().start().await;
    let report = doctor(&Shell::at(&server), &[], 2);
    expect_line(
        &report,
        "error    jetstream ",
        "no response from JetStream: enable it on the server",
    );
    expect_line(&report, "unknown  round trip ", "no response");
}

#[test]
fn unreachable_server_is_a_finding() {
    let shell = Shell::bare();
    let report = doctor(&shell, &["-s", "127.0.0.1:1"], 2);
    expect_line(&report, "error    server ", "cannot reach a NATS server at 127.0.0.1:1");
    let report = doctor(&shell, &["-s", "127.0.0.1:1", "-o", "json"], 2);
    let json: Value = serde_json::from_str(&report.stdout).expect("JSON");
    assert_eq!(
        (&json["worst"], &json["findings"][0]["check"]),
        (&"error".into(), &"server".into())
    );
}

/// A candidate of a URL with a TTL connects in the background.
#[tokio::test]
async fn server_of_a_url_with_a_ttl_is_reached_or_reported() {
    let users = "authorization: { users: [{ user: me, password: p }] }";
    let server = Server::builder().config(users).start().await;
    let shell = Shell::bare();
    for (url, expected) in [
        ("nats://127.0.0.1:1".to_owned(), "cannot reach a NATS server at 127.0.0.1:1"),
        (server.url_as("me", "wr0ng"), "denies access"),
    ] {
        let lock = format!("{url}/B?ttl=10s");
        let report = doctor(&shell, &["--timeout", "2s", "--lock", &lock], 2);
        expect_line(&report, "error    server ", expected);
    }
}

#[tokio::test]
async fn invalid_usage_is_not_a_finding() {
    let (_server, shell) = start_env().await;
    for args in [&["doctor", "a name"][..], &["doctor", "--bucket", "no bucket"]] {
        shell.expect_refusal(args, "is not a valid", 2);
    }
}

#[tokio::test]
async fn missing_or_unfit_bucket_is_reported_with_a_fix() {
    let (_server, shell) = Shell::serving().await;
    let report = doctor(&shell, &["--bucket", "ABSENT"], 1);
    expect_line(&report, "warning  jetstream ", "`incumbent kv add ABSENT --election`");
    shell.out(&["kv", "add", "ENDLESS", "-q"]);
    let report = doctor(&shell, &["--bucket", "ENDLESS"], 2);
    expect_line(&report, "error    bucket ", "set max_age to between 1s and 1h");
    shell.out(&["kv", "add", "B", "--ttl", "1m", "--storage", "memory", "-q"]);
    let report = doctor(&shell, &["--bucket", "B"], 1);
    expect_line(&report, "warning  bucket ", "entries are kept in memory");
    expect_line(&report, "warning  bucket ", "no republish");
    let report = doctor(&shell, &["--bucket", "B", "--lease", "2m"], 2);
    expect_line(&report, "error    round trip ", "see --lease");
}

#[tokio::test]
async fn rights_are_checked_per_role() {
    let users = r#"authorization: { users: [
        { user: admin, password: p },
        { user: candidate, password: p, permissions: {
            publish: ["$KV.B.my_app", "incumbent.B.my_app", "$JS.API.STREAM.INFO.KV_B", "$JS.API.STREAM.MSG.GET.KV_B"],
            subscribe: ["incumbent.B.my_app", "_INBOX.>"],
        } },
        { user: no_hints, password: p, permissions: {
            publish: ["$KV.B.>", "$JS.API.STREAM.INFO.KV_B"], subscribe: "_INBOX.>",
        } },
        { user: observer, password: p, permissions: {
            publish: ["$JS.API.STREAM.INFO.KV_B", "$JS.API.STREAM.MSG.GET.KV_B"],
            subscribe: ["incumbent.B.>", "_INBOX.>"],
        } },
        { user: no_rights, password: p, permissions: { publish: "x", subscribe: "_INBOX.>" } },
    ] }"#;
    let server = Server::builder().config(users).start().await;
    let user = |name| Shell::at(&server).with("NATS_USER", name).with("NATS_PASSWORD", "p");
    let doctor =
        |name, args: &[&str], code| doctor(&user(name), &[&["--bucket", "B"], args].concat(), code);
    let report = doctor("candidate", &["my_app"], 2);
    expect_line(
        &report,
        "error    rights ",
        "a candidate needs publishing to $JS.API.STREAM.CREATE.KV_B; grant it",
    );
    // A candidate creates the bucket. The checks must not disturb its term.
    let admin = user("admin");
    let mut leader = admin.start(&["campaign", "my_app", "--bucket", "B"]);
    leader.line_with("won");
    let term = || {
        admin.json(&["election", "info", "--bucket", "B", "-o", "json"])["elections"][0]["token"]
            .clone()
    };
    let before = term();

    let report = doctor("candidate", &["my_app"], 0);
    expect_line(&report, "ok       rights ", "all rights of a candidate");
    expect_line(
        &report,
        "ok       rights ",
        "not the rights of an administrator: publishing to $JS.API.STREAM.CREATE.KV_B",
    );
    let report = doctor("candidate", &["my_app", "--checkpoint"], 2);
    expect_line(
        &report,
        "error    rights ",
        "a candidate needs publishing to $KV.B.$checkpoint.my_app; grant it",
    );
    expect_line(&report, "ok       checkpoint ", "none yet: the first leader creates it");
    let report = doctor("admin", &["my_app", "--checkpoint"], 0);
    expect_line(&report, "ok       rights ", "all rights of a candidate");
    expect_line(&report, "ok       checkpoint ", "none yet: the first leader creates it");
    let report = doctor("candidate", &["other"], 2);
    expect_line(
        &report,
        "error    rights ",
        "a candidate needs publishing to $KV.B.other; grant it",
    );
    let report = doctor("no_hints", &[], 1);
    let less = expect_line(
        &report,
        "warning  rights ",
        "a candidate works better with publishing to $JS.API.STREAM.MSG.GET.KV_B",
    );
    assert!(less.contains("subscribing to incumbent.B.incumbent-doctor"), "{less}");
    assert!(less.contains("publishing to incumbent.B.incumbent-doctor"), "{less}");
    expect_line(&report, "unknown  bucket ", "the keys could not be read");
    doctor("observer", &["--role", "observer"], 0);
    let report = doctor("observer", &["--role", "administrator"], 2);
    expect_line(
        &report,
        "error    rights ",
        "an administrator needs publishing to $JS.API.STREAM.CREATE.KV_B",
    );
    let report = doctor("no_rights", &[], 2);
    expect_line(
        &report,
        "error    jetstream ",
        "permission denied: publish to \"$JS.API.STREAM.INFO.KV_B\"",
    );
    expect_line(&report, "error    rights ", "publishing to $KV.B.incumbent-doctor");
    let wrong = user("no_rights").with("NATS_PASSWORD", "wrong");
    expect_line(&self::doctor(&wrong, &[], 2), "error    server ", "denies access");

    assert_eq!(admin.json(&["kv", "keys", "B", "-o", "json"]), serde_json::json!(["my_app"]));
    assert_eq!((term().is_u64(), term()), (true, before), "the term continues");
}

#[tokio::test]
async fn shared_identity_is_distinguished_from_a_restart() {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--ttl", "1h", "--history", "9", "-q"]);
    let jetstream = jetstream_on(server.connect().await);
    let write = async |election: &str, writer: &str| {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Incumbent-Write", format!("{writer}-1"));
        let subject = format!("$KV.B.{election}");
        let sent = jetstream.publish_with_headers(subject, headers, "c1.example.net".into()).await;
        sent.expect("sent").await.expect("stored");
    };
    for (election, writer) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "3"), ("a", "2")] {
        write(election, writer).await;
    }
    let report = doctor(&shell, &["--bucket", "B"], 1);
    expect_line(&report, "ok       identities ", "no duplicate identities");
    write("a", "1").await;
    let report = doctor(&shell, &["--bucket", "B"], 1);
    expect_line(
        &report,
        "warning  identities ",
        "share the identity \"c1.example.net\" in a; give each its own",
    );
}

#[tokio::test]
async fn monitoring_port_reports_the_sync_interval() {
    let (server, shell) = start_env().await;
    let port = server.varz().await["http_port"].to_string();
    let report = doctor(&shell, &["--monitor", &format!("127.0.0.1:{port}")], 1);
    expect_line(
        &report,
        "warning  disk ",
        "sync_interval: 2m: a power failure may lose acknowledged writes",
    );
    let nats = server.address().to_string();
    for (address, why) in [("127.0.0.1:1", "refused"), (nats.as_str(), "not the response of")] {
        let report = doctor(&shell, &["--monitor", address], 1);
        assert!(expect_line(&report, "warning  disk ", "cannot read").contains(why), "{report:?}");
    }
}
