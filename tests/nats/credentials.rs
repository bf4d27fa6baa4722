//! Users of a server in operator mode, whose JWTs expire.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use incumbent::{Election, new_election};
use incumbent_test_support::{Server, eventually};
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempPath};

use crate::conformance::{LEASE, leads};
use crate::url::opened;

/// An account with JetStream, and the key that signs for its users.
struct Account {
    key: KeyPair,
    server: Server,
}

impl Account {
    async fn start() -> Self {
        let operator = KeyPair::new_operator();
        let own = signed(&operator, &operator, json!({ "type": "operator", "version": 2 }), None);
        let account = |storage: i32| {
            let key = KeyPair::new_account();
            let claims = json!({
                "type": "account", "version": 2,
                "limits": {
                    "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                    "wildcards": true, "conn": -1, "leaf": -1, "mem_storage": storage,
                    "disk_storage": storage, "streams": storage, "consumer": storage,
                },
            });
            let entry = format!("{}: {}", key.public_key(), signed(&operator, &key, claims, None));
            (key, entry)
        };
        // JetStream needs a system account, which has no JetStream itself.
        let ((system, system_entry), (key, entry)) = (account(0), account(-1));
        let config = format!(
            "debug: true\noperator: {own}\nsystem_account: {}\nresolver: MEMORY\n\
             resolver_preload: {{ {system_entry}, {entry} }}\n",
            system.public_key()
        );
        Self { key, server: Server::builder().config(config).start().await }
    }

    /// Writes a credentials file of a new user that expires after this time.
    fn write_user(&self, file: &Path, expires_in: Duration) {
        let user = KeyPair::new_user();
        let claims = json!({
            "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        });
        let jwt = signed(&self.key, &user, claims, Some(expires_in));
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(file, text).unwrap();
    }

    /// An election that is led by a user that expires after this time, and its credentials file.
    async fn leader(&self, expires_in: Duration) -> (TempPath, Election) {
        let file = NamedTempFile::new().unwrap().into_temp_path();
        self.write_user(&file, expires_in);
        let url = format!("{}/MINE?creds={}", self.server.url(), file.display());
        let lock = opened(&url).await.unwrap();
        let election = new_election("my_app", lock).lease(LEASE).start().unwrap();
        drop(leads(&election).await);
        (file, election)
    }
}

fn signed(issuer: &KeyPair, subject: &KeyPair, claims: Value, expires: Option<Duration>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut body = json!({
        "jti": "test", "iat": now.as_secs(), "iss": issuer.public_key(), "name": "test",
        "sub": subject.public_key(), "nats": claims,
    });
    if let Some(expires) = expires {
        body["exp"] = (now + expires).as_secs().into();
    }
    let encoded = |value: Value| BASE64.encode(value.to_string());
    let text =
        format!("{}.{}", encoded(json!({ "typ": "JWT", "alg": "ed25519-nkey" })), encoded(body));
    let signature = issuer.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", BASE64.encode(signature))
}

/// Waits for a renewal that begins later than now.
async fn renews(election: &Election) {
    let known = election.deadline().map(|deadline| deadline + LEASE);
    eventually("a renewal", async || (Some(election.deadline()?) > known).then_some(())).await;
}

#[tokio::test]
async fn expired_credentials_are_replaced_by_those_in_the_file() {
    let account = Account::start().await;
    // Long enough for a busy machine to open the lock and to lead.
    let (file, election) = account.leader(Duration::from_secs(40)).await;
    account.write_user(&file, Duration::from_secs(3600));
    eventually("the first user expires", async || {
        account.server.log().contains("User Authentication Expired").then_some(())
    })
    .await;
    // The connection of the first user is closed.
    renews(&election).await;
    election.stop().await;
}

/// As while another program writes it.
#[tokio::test]
async fn a_credentials_file_that_is_gone_is_used_as_read_before() {
    let account = Account::start().await;
    let (file, election) = account.leader(Duration::from_secs(3600)).await;
    file.close().unwrap();
    account.server.restart().await;
    renews(&election).await;
    election.stop().await;
}
