//! What keeps a candidate from leading is said on standard error, without a terminal too.

use incumbent_test_support::{PostgresServer, eventually};

use crate::shell::Shell;

/// The tables and the permissions of deploy/postgres.sql.
const FILE: &str = include_str!("../../../deploy/postgres.sql");
const WORK: [&str; 6] =
    ["--", "/bin/sh", "-c", "echo up $1; exec /bin/sleep 1000", "sh", "{shard}"];

/// The arguments of a member of the set `shop`.
fn member<'a>(shards: &'a str, lease: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let arguments =
        ["set", "run", "shop", "--settle", "100ms", "--shards", shards, "--lease", lease];
    [&arguments[..], flags, &WORK].concat()
}

#[tokio::test]
async fn member_with_another_number_of_shards_says_why_it_leads_none() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.start(&member("4", "24s", &["--identity", "first"]));
    for _ in 0..4 {
        first.line_with("up");
    }
    let (mut other, line) = eventually("the first one answers in time", async || {
        let mut other = shell.start_with_errors(&member("6", "24s", &["--identity", "other"]));
        let line = other.line();
        if line.starts_with("up ") {
            other.end_with("TERM"); // it has called the roll, and heard nobody
            return None;
        }
        Some((other, line))
    })
    .await;
    assert!(line.starts_with("incumbent: another member has 4 shards, and this one 6"), "{line}");
    first.end_with("TERM");
    assert!(other.line().starts_with("up "));
}

#[tokio::test]
async fn member_leads_once_it_has_the_permission_to_write() {
    let server = PostgresServer::start(&[]).await;
    // Else the first term waits for a former leader whose row was dropped with the tables, or lost
    // before the server was started.
    let old = "UPDATE incumbent_settings SET created_at = created_at - interval '1 day',
        longest_lease = '10s'";
    server.sql("postgres", &[FILE, old, "CREATE ROLE candidate LOGIN"]);
    let grant = |right: &str| {
        let grant = format!("GRANT {right} ON ALL TABLES IN SCHEMA public TO candidate");
        server.sql("postgres", &[&grant]);
    };
    grant("SELECT");
    let url = server.url_as("candidate", "postgres");
    let shell = Shell::bare();
    let run = ["run", "my_app", "--lock", &url, "--", "/bin/true"];
    let mut single = shell.start_with_errors(&run);
    let line = single.line();
    assert!(line.contains("permission denied"), "{line}");
    let mut candidate = shell.start_with_errors(&member("2", "10s", &["--lock", &url]));
    let line = candidate.line();
    assert!(line.starts_with("incumbent: ") && line.contains("permission denied"), "{line}");
    assert!(line.ends_with("retrying; `incumbent doctor` checks the rights"), "{line}");
    grant("INSERT, UPDATE");
    // Each shard finds out by itself, and one may be led before.
    let mut lines = [candidate.line(), candidate.line(), candidate.line()];
    lines.sort();
    assert_eq!(lines, ["incumbent: requests to the lock are no longer refused", "up 0", "up 1"]);
    assert_eq!(single.wait(), Some(0));
}
