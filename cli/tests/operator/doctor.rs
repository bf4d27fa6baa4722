//! `doctor`.

use incumbent_test_support::{Server, Version};
use serde_json::Value;

use crate::shell::{Shell, Told};

const BUCKET: &str = "CHORIA_LEADER_ELECTION";

/// The line of this level about something.
pub fn line<'a>(told: &'a Told, level: &str, about: &str) -> &'a str {
    let mut lines = told.out.lines();
    let found = lines.find(|line| line.starts_with(level) && line.contains(about));
    found.unwrap_or_else(|| panic!("no {level:?} about {about:?}: {told:?}"))
}

/// Runs it, and checks that nothing was told on standard error.
pub fn doctor(shell: &Shell, args: &[&str], code: i32) -> Told {
    let told = shell.run(&[&["doctor"], args].concat());
    assert_eq!((told.error.as_str(), told.code), ("", Some(code)), "{told:?}");
    told
}

async fn scene() -> (Server, Shell) {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", BUCKET, "--election", "-q"]);
    (server, shell)
}

#[tokio::test]
async fn where_all_is_well_it_says_so_and_leaves_nothing() {
    let (_server, shell) = scene().await;
    let before = shell.json(&["kv", "status", BUCKET, "-o", "json"]);
    let told = doctor(&shell, &[], 0);
    line(&told, "ok       server ", "nats-server 2.15.1, JetStream API level 5");
    line(&told, "ok       jetstream ", "with bucket CHORIA_LEADER_ELECTION");
    line(&told, "ok       clock ", "off the server's");
    line(&told, "ok       round trip ", "with a lease of 1m a request times out after 5s");
    for role in ["an observer", "a candidate", "an administrator"] {
        line(&told, "ok       rights ", &format!("all rights of {role}"));
    }
    line(&told, "ok       bucket ", "fit elections");
    line(&told, "ok       clock rate ", "parts per million now");
    line(&told, "unknown  identities ", "the last write of each election only");
    line(&told, "unknown  disk ", "see --monitor");
    let json = shell.json(&["doctor", "--output", "json"]);
    assert_eq!(json["worst"], "unknown");
    assert_eq!(json["findings"][0]["check"], "server");
    assert_eq!(json["findings"][0]["level"], "ok");
    let after = shell.json(&["kv", "status", BUCKET, "-o", "json"]);
    assert_eq!(before, after, "nothing is stored");
}

#[tokio::test]
async fn an_old_server_is_told() {
    let server = Server::builder().version(Version::V2_10).start().await;
    let shell = Shell::at(&server);
    let mut campaigner = shell.start(&["campaign", "my_app"]);
    campaigner.line_with("won");
    let told = doctor(&shell, &[], 1);
    let old = line(&told, "warning  server ", "nats-server 2.10.26: it has no TTLs per entry");
    assert!(old.ends_with("upgrade to 2.11.2 or later"), "{old}");
    line(&told, "warning  bucket ", "no TTL a message");
    line(&told, "warning  bucket ", "no markers of expiry");
}

#[tokio::test]
async fn a_server_without_jetstream_is_an_error() {
    let server = Server::builder().without_jetstream().start().await;
    let told = doctor(&Shell::at(&server), &[], 2);
    line(&told, "error    jetstream ", "no response from JetStream: enable it on the server");
    line(&told, "unknown  round trip ", "no response");
}

#[test]
fn no_server_is_a_finding() {
    let shell = Shell::bare();
    let told = doctor(&shell, &["-s", "127.0.0.1:1"], 2);
    line(&told, "error    server ", "cannot reach a NATS server at 127.0.0.1:1");
    let told = doctor(&shell, &["-s", "127.0.0.1:1", "-o", "json"], 2);
    let json: Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!(
        (&json["worst"], &json["findings"][0]["check"]),
        (&"error".into(), &"server".into())
    );
}

#[tokio::test]
async fn wrong_usage_is_no_finding() {
    let (_server, shell) = scene().await;
    for args in [&["doctor", "a name"][..], &["doctor", "--bucket", "no bucket"]] {
        let (told, code) = shell.refusal(args);
        assert!(told.contains("is not a valid"), "{told}");
        assert_eq!(code, 2);
    }
}

#[tokio::test]
async fn a_bucket_that_is_missing_or_wrong_is_told_with_the_cure() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let told = doctor(&shell, &["--bucket", "ABSENT"], 1);
    line(&told, "warning  jetstream ", "`incumbent kv add ABSENT --election`");
    shell.out(&["kv", "add", "ENDLESS", "-q"]);
    let told = doctor(&shell, &["--bucket", "ENDLESS"], 2);
    line(&told, "error    bucket ", "set max_age to between 1s and 1h");
    shell.out(&["kv", "add", "B", "--ttl", "1m", "--storage", "memory", "-q"]);
    let told = doctor(&shell, &["--bucket", "B"], 1);
    line(&told, "warning  bucket ", "entries are kept in memory");
    line(&told, "warning  bucket ", "no republish");
    let told = doctor(&shell, &["--bucket", "B", "--lease", "2m"], 2);
    line(&told, "error    round trip ", "see --lease");
}

#[tokio::test]
async fn rights_are_judged_role_by_role() {
    let users = r#"authorization: { users: [
        { user: admin, password: p },
        { user: candidate, password: p, permissions: {
            publish: ["$KV.B.my_app", "incumbent.B.my_app", "$JS.API.STREAM.INFO.KV_B", "$JS.API.STREAM.MSG.GET.KV_B"],
            subscribe: ["incumbent.B.my_app", "_INBOX.>"],
        } },
        { user: deaf, password: p, permissions: {
            publish: ["$KV.B.>", "$JS.API.STREAM.INFO.KV_B"], subscribe: "_INBOX.>",
        } },
        { user: observer, password: p, permissions: {
            publish: ["$JS.API.STREAM.INFO.KV_B", "$JS.API.STREAM.MSG.GET.KV_B"],
            subscribe: ["incumbent.B.>", "_INBOX.>"],
        } },
        { user: nobody, password: p, permissions: { publish: "x", subscribe: "_INBOX.>" } },
    ] }"#;
    let server = Server::builder().config(users).start().await;
    let user = |name| Shell::at(&server).with("NATS_USER", name).with("NATS_PASSWORD", "p");
    let doctor =
        |name, args: &[&str], code| doctor(&user(name), &[&["--bucket", "B"], args].concat(), code);
    // The bucket is made by one who stands there, and takes no harm from what is tried beside it.
    let admin = user("admin");
    let mut leader = admin.start(&["campaign", "my_app", "--bucket", "B"]);
    leader.line_with("won");
    let term = || {
        admin.json(&["election", "info", "--bucket", "B", "-o", "json"])["elections"][0]["token"]
            .clone()
    };
    let before = term();

    let told = doctor("candidate", &["my_app"], 0);
    line(&told, "ok       rights ", "all rights of a candidate");
    line(
        &told,
        "ok       rights ",
        "not the rights of an administrator: publishing to $JS.API.STREAM.CREATE.KV_B",
    );
    let told = doctor("candidate", &["other"], 2);
    line(&told, "error    rights ", "a candidate needs publishing to $KV.B.other; grant it");
    let told = doctor("deaf", &[], 1);
    let less = line(
        &told,
        "warning  rights ",
        "a candidate works better with publishing to $JS.API.STREAM.MSG.GET.KV_B",
    );
    assert!(less.contains("subscribing to incumbent.B.incumbent-doctor"), "{less}");
    assert!(less.contains("publishing to incumbent.B.incumbent-doctor"), "{less}");
    line(&told, "unknown  bucket ", "the keys could not be read");
    doctor("observer", &["--role", "observer"], 0);
    let told = doctor("observer", &["--role", "administrator"], 2);
    line(
        &told,
        "error    rights ",
        "an administrator needs publishing to $JS.API.STREAM.CREATE.KV_B",
    );
    let told = doctor("nobody", &[], 2);
    line(
        &told,
        "error    jetstream ",
        "permission denied: publish to \"$JS.API.STREAM.INFO.KV_B\"",
    );
    line(&told, "error    rights ", "publishing to $KV.B.incumbent-doctor");
    let wrong = user("nobody").with("NATS_PASSWORD", "wrong");
    line(&self::doctor(&wrong, &[], 2), "error    server ", "denies access");

    assert_eq!(admin.json(&["kv", "keys", "B", "-o", "json"]), serde_json::json!(["my_app"]));
    assert_eq!((term().is_u64(), term()), (true, before), "it leads on");
}

#[tokio::test]
async fn two_campaigners_of_one_name_are_told_apart_from_one_that_started_anew() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--ttl", "1m", "--history", "9", "-q"]);
    let client = server.connect().await;
    let jetstream = async_nats::jetstream::new(client);
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
    let told = doctor(&shell, &["--bucket", "B"], 1);
    line(&told, "ok       identities ", "no duplicate identities");
    write("a", "1").await;
    let told = doctor(&shell, &["--bucket", "B"], 1);
    line(
        &told,
        "warning  identities ",
        "share the identity \"c1.example.net\" in a; give each its own",
    );
}

#[tokio::test]
async fn the_monitoring_port_tells_when_writes_are_on_disk() {
    let (server, shell) = scene().await;
    let port = server.varz().await["http_port"].to_string();
    let told = doctor(&shell, &["--monitor", &format!("127.0.0.1:{port}")], 1);
    line(
        &told,
        "warning  disk ",
        "sync_interval: 2m: a power failure may lose acknowledged writes",
    );
    let nats = server.address().to_string();
    for (address, why) in [("127.0.0.1:1", "refused"), (nats.as_str(), "not the response of")] {
        let told = doctor(&shell, &["--monitor", address, "--timeout", "5s"], 1);
        assert!(line(&told, "warning  disk ", "cannot read").contains(why), "{told:?}");
    }
}
