//! `doctor` of elections in object storage.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::Duration;

use incumbent_test_support::eventually;
use incumbent_test_support::object_stores::{ACCESS_KEY, Program, SECRET_KEY, StoreServer};

use crate::doctor::{doctor, expect_line};
use crate::shell::Shell;

pub async fn versitygw() -> (StoreServer, Shell) {
    let store = StoreServer::start(Program::Versitygw).await;
    let shell = shell_at(store.port());
    (store, shell)
}

pub fn shell_at(port: u16) -> Shell {
    Shell::bare()
        .with("AWS_ENDPOINT", format!("http://127.0.0.1:{port}"))
        .with("AWS_ALLOW_HTTP", "true")
        .with("AWS_REGION", "us-east-1")
        .with("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .with("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
}

#[tokio::test]
async fn store_is_checked_and_left_unchanged() {
    let (store, shell) = versitygw().await;
    let lock = ["--lock", "s3://bucket?max-lease=1m"];
    let report = doctor(&shell, &lock, 0);
    expect_line(&report, "ok       store ", "reachable and readable");
    expect_line(&report, "ok       conditions ", "are refused when they must be");
    expect_line(&report, "ok       clock ", "off the server's");
    expect_line(&report, "ok       round trip ", "with a lease of 1m");
    expect_line(&report, "ok       rights ", "all rights of a candidate");
    assert_eq!(store.objects(), [""; 0], "no object remains");

    // The object that a killed doctor leaves disturbs no later check. On a busy machine it may be
    // killed before it has made it, or after it has removed it.
    eventually("a killed doctor leaves its object", async || {
        let killed = shell.start(&[&["doctor"][..], &lock].concat());
        for _ in 0..10_000 {
            if !store.objects().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(killed);
        (store.objects() == ["incumbent-doctor"]).then_some(())
    })
    .await;
    doctor(&shell, &lock, 0);
    assert_eq!(store.objects(), [""; 0], "no object remains");

    let report = doctor(&shell, &[&lock[..], &["--role", "observer"]].concat(), 0);
    expect_line(&report, "unknown  rights ", "nothing is written for an observer");
    let report = doctor(&shell, &["--lock", "s3://bucket?max-lease=5s", "--lease", "9s"], 2);
    expect_line(&report, "error    round trip ", "see --lease");
}

#[tokio::test]
async fn wrong_bucket_and_wrong_credentials_are_errors() {
    let (_store, shell) = versitygw().await;
    let report = doctor(&shell, &["--lock", "s3://absent"], 2);
    expect_line(&report, "error    store ", "create the bucket, or use another");
    let shell = shell.with("AWS_SECRET_ACCESS_KEY", "wr0ng");
    let report = doctor(&shell, &["--lock", "s3://bucket"], 2);
    expect_line(&report, "error    rights ", "the store does not accept the credentials");
    assert!(!format!("{report:?}").contains("wr0ng"), "{report:?}");
    let shell = shell.with("AWS_ENDPOINT", "http://127.0.0.1:1");
    let report = doctor(&shell, &["--lock", "s3://bucket"], 2);
    expect_line(&report, "error    store ", "no response from the store");
}

/// A store that ignores conditions and keeps nothing.
fn unconditional_store() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            assert!(first.is_empty() || head.iter().any(|line| line.contains("AWS4-HMAC-SHA256")));
            let (status, body) = match first.split(' ').next() {
                Some("GET") if first.contains("list-type") => {
                    ("200 OK", "<ListBucketResult></ListBucketResult>")
                }
                Some("GET") => ("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"),
                Some("DELETE") => ("204 No Content", ""),
                _ => ("200 OK", ""),
            };
            let headers = "etag: \"1\"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT";
            let length = body.len();
            let response = format!(
                "HTTP/1.1 {status}\r\n{headers}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            let _ = (&stream).write_all(response.as_bytes());
        }
    });
    port
}

#[test]
fn store_that_ignores_conditions_is_an_error() {
    let report = doctor(&shell_at(unconditional_store()), &["--lock", "s3://bucket"], 2);
    expect_line(
        &report,
        "error    conditions ",
        "the store ignores If-None-Match and If-Match: every candidate would lead",
    );
    expect_line(&report, "warning  clock ", "ahead of the server's");
}
