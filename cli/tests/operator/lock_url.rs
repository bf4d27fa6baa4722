//! `--lock URL`.

use incumbent_test_support::Server;

use crate::shell::Shell;

#[tokio::test]
async fn bucket_is_named_by_url_or_variable() {
    let server = Server::start().await;
    let url = format!("{}/MINE", server.url());
    let shell = Shell::bare().with("INCUMBENT_LOCK", &*url);
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    let output = shell.out(&["election", "list"]);
    assert!(output.contains("my_app"), "{output}");
    let by_flags = ["election", "list", "--lock", "nats", "--bucket", "MINE", "--server"];
    assert_eq!(shell.out(&[&by_flags[..], &[&server.url()]].concat()), output);
    leader.end_with("TERM");
}

#[tokio::test]
async fn each_of_several_locks_is_held() {
    let server = Server::start().await;
    let shell = Shell::bare();
    let bucket = format!("{}/MINE?ttl=30s", server.url());
    let both = format!("sqlite:elections.db {bucket}");
    let mut leader = shell.start(&["campaign", "my_app", "--lock", &both]);
    leader.line_with("won");
    for one in ["sqlite:elections.db", &bucket] {
        let json = shell.json(&["election", "info", "my_app", "--lock", one, "-o", "json"]);
        assert!(json["elections"][0]["leader"].is_string(), "{json}");
    }
    shell.expect_refusal(&["election", "info", "--lock", &both], "select one of them", 2);
    leader.end_with("TERM");
}

/// Commands that read must not create the lock of a mistyped name.
#[tokio::test]
async fn reading_creates_nothing() {
    let server = Server::start().await;
    let shell = Shell::bare();
    let bucket = format!("{}/ABSENT", server.url());
    for (lock, expected, code) in
        [("sqlite:absent.db", "absent.db does not exist", 1), (&*bucket, "ABSENT", 3)]
    {
        for command in [
            &["election", "list"][..],
            &["election", "info", "a"],
            &["campaign", "a", "--no-create"],
        ] {
            let (line, exit) = shell.refusal(&[command, &["--lock", lock]].concat());
            assert!(line.contains(expected), "{line}");
            assert_eq!(exit, code, "{line}");
        }
    }
    assert!(!shell.home().join("absent.db").exists());
}

/// The server accepts connections and sends nothing.
#[test]
fn silent_server_fails_after_the_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let shell = Shell::bare();
    for lock in [format!("nats://{address}/B"), format!("postgres://me@{address}/db")] {
        for command in [&["election", "info", "e"][..], &["campaign", "e"]] {
            let args = [command, &["--timeout", "300ms", "--lock", &lock]].concat();
            shell.expect_refusal(&args, "no response within 300ms", 4);
        }
    }
}

#[test]
fn missing_credentials_are_reported_before_any_request() {
    // No metadata server issues credentials at this address.
    let unreachable = "127.0.0.1:1";
    let shell =
        Shell::bare().with("GCE_METADATA_HOST", unreachable).with("GCE_METADATA_IP", unreachable);
    shell.expect_refusal(
        &["election", "info", "a", "--timeout", "5s", "--lock", "gs://bucket"],
        "the object gs://bucket/a: there are no credentials for it",
        4,
    );
}

#[test]
fn invalid_url_is_refused_in_one_line_without_its_secret() {
    let shell = Shell::bare();
    let refused =
        |lock: &str| shell.refusal(&["campaign", "my_app", "--timeout", "1s", "--lock", lock]);
    for (lock, expected, code) in [
        ("mysql:x", "no lock has the scheme \"mysql\"", 2),
        ("bucket", "use nats, kubernetes, or a URL such as sqlite:PATH", 2),
        ("sqlite:", "it names no file, as sqlite:elections.db does", 2),
        ("sqlite:a?ttl=1s", "there is no option \"ttl\" here", 2),
        ("postgres:me:s3cret@host", "a database is named as postgres://USER@HOST:PORT/DATABASE", 2),
        (
            "postgres://me:s3cret@127.0.0.1:1/db",
            "cannot be used: no connection to 127.0.0.1:1/db",
            4,
        ),
        ("nats://me:s3cret@127.0.0.1:1/B", "cannot reach a NATS server at 127.0.0.1:1", 4),
        ("sqlite:absent/x.db", "there is no directory for absent/x.db", 1),
    ] {
        let (line, exit) = refused(lock);
        assert!(line.contains(expected) && !line.contains("s3cret"), "{line}");
        assert_eq!(exit, code, "{line}");
    }
    let (line, code) = shell.refusal(&["campaign", "a", "--lock", "sqlite:a.db", "--bucket", "B"]);
    assert_eq!((&*line, code), ("incumbent: --bucket requires --lock nats", 2));
}
