//! PostgreSQL over TLS.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use incumbent::new_election;
use incumbent::sql::{Postgres, SqlError, SqlErrorKind, TableSetup};
use incumbent_test_support::{Authority, PostgresServer};
use tempfile::TempDir;

use crate::conformance::{leads, sees, working};
use crate::env::answer;

/// Longer than a busy machine holds up a leader. No test waits for it.
const LEASE: Duration = Duration::from_secs(30);

/// A server that knows its users by their certificates, and what a candidate has in its files.
struct Secured {
    server: PostgresServer,
    files: TempDir,
}

impl Secured {
    async fn start() -> Self {
        let authority = Authority::new();
        let server = PostgresServer::start_with_tls(&authority).await;
        let secured = Self { server, files: tempfile::tempdir().unwrap() };
        let [certificate, key] = authority.issue("postgres");
        secured.write("ca.pem", authority.certificate());
        secured.write("other-ca.pem", Authority::new().certificate());
        secured.write("ours.pem", &certificate);
        secured.write("ours.key", &key);
        secured
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// `query`: `@NAME` in it stands for a file.
    async fn connect(&self, host: &str, query: &str) -> Result<Postgres, SqlError> {
        let query = query.replace('@', &format!("{}/", self.files.path().display()));
        let port = self.server.port();
        let url = format!("postgres://postgres:hidden@{host}:{port}/postgres?{query}");
        answer(&url, TableSetup::create().max_lease(LEASE)).await
    }

    async fn refusal(&self, host: &str, query: &str) -> (SqlErrorKind, String) {
        let error = self.connect(host, query).await.expect_err("a refusal");
        let mut line = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            line += &format!(": {error}");
            source = error.source();
        }
        assert!(!line.contains("hidden"), "{line}");
        (error.kind(), line)
    }
}

const OURS: &str = "sslcert=@ours.pem&sslkey=@ours.key";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_election_is_held_and_heard_over_tls() {
    let secured = Secured::start().await;
    let query = format!("sslmode=verify-full&sslrootcert=@ca.pem&{OURS}");
    let campaign = async |identity: &str| {
        let lock = secured.connect("127.0.0.1", &query).await.unwrap().lock();
        working(new_election("my_app", lock).identity(identity).lease(LEASE)).start().unwrap()
    };
    let first = campaign("first").await;
    let token = leads(&first).await.token();
    let second = campaign("second").await;
    sees(&second, "first").await;
    first.stop().await;
    assert!(leads(&second).await.token() > token);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn certificates_are_checked_both_ways() {
    let secured = Secured::start().await;
    for (host, query, says) in [
        ("127.0.0.1", "sslmode=verify-ca&sslrootcert=@other-ca.pem", "certificate"),
        ("localhost", "sslmode=verify-full&sslrootcert=@ca.pem", "certificate"),
        ("127.0.0.1", "sslmode=require&sslrootcert=@other-ca.pem", "certificate"),
        ("127.0.0.1", "sslrootcert=@ca.pem", "add sslmode=verify-full"),
        ("127.0.0.1", "ssl_mode=verify-full&sslrootcert=@ca.pem", "none of those"),
        ("127.0.0.1", "sslmode=verify-full&sslpassword=hidden", "sslpassword: remove it"),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert=@missing.pem", "sslrootcert"),
    ] {
        let refused = secured.refusal(host, &format!("{query}&{OURS}")).await;
        assert!(refused.1.contains(says), "{refused:?}");
    }
    let without = secured.refusal("127.0.0.1", "sslmode=verify-full&sslrootcert=@ca.pem").await;
    assert_eq!(without.0, SqlErrorKind::Denied, "{without:?}");
    let plain = secured.refusal("127.0.0.1", "sslmode=disable").await;
    assert_eq!(plain.0, SqlErrorKind::Denied, "{plain:?}");
    // Without the mode that checks the host name it is not checked.
    let query = format!("sslmode=verify-ca&sslrootcert=@ca.pem&{OURS}");
    secured.connect("localhost", &query).await.unwrap();
}
