//! What Azurite answers in Azure's own words, and how a candidate of Azure finds its account.

use std::process::Command;

use incumbent::lock::{Lock, LockAdmin, LockError, LockErrorKind, Reading, Write};
use incumbent::object_storage::Bucket;

use incumbent_test_support::object_stores::{ACCESS_KEY, ACCOUNT_KEY, ACCOUNT_SAS, BUCKET};
use incumbent_test_support::{HttpFault, HttpMessage, http_request, s3_error};

use crate::conformance::{appears, is_renewed, leads, working};
use crate::env::{Azure, LEASE, TIMEOUT, TestEnv, azure, write};

/// An account SAS with the permissions that `docs/object-storage.md` lists: to read, create and
/// write objects.
const MIN_SAS: &str = "sv=2020-12-06&ss=b&srt=o&sp=rcw&se=2999-01-01T00%3A00%3A00Z&sig=vEZ6i6rXjH1mpEB5pxsvYSyN5oZL%2FbByqN1vCiLgmek%3D";

/// Of the kind, in one line, with these words, and without what signs.
fn assert_error(error: &LockError, kind: LockErrorKind, words: &[&str]) {
    let text = format!("{error} {error:?}");
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {text}");
    }
    for secret in [ACCOUNT_KEY, "sig=", "StringToSign", "RequestId"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert!(!error.to_string().contains("\\n") && !error.to_string().contains('\n'), "{text}");
}

/// A key that was changed, a container that is not there, a SAS that may not do it.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn refusals_of_azure_are_reported_in_its_words() {
    let env = TestEnv::<Azure>::new(LEASE).await;
    let port = env.proxy.port();

    let other = azure(port).with_access_key("YW5vdGhlciBzZWNyZXQ=");
    let lock = Bucket::azure(other).unwrap().lock();
    // Azurite's code for it is AuthorizationFailure, Azure's is AuthenticationFailed; the message
    // is the same.
    let words = ["does not accept the credentials", "Server failed to authenticate"];
    assert_error(&lock.read("my_app", TIMEOUT).await.unwrap_err(), LockErrorKind::Denied, &words);
    assert_error(&lock.write("my_app", write(1)).await.unwrap_err(), LockErrorKind::Denied, &words);

    let lock = Bucket::azure(azure(port).with_container_name("elsewhere")).unwrap().lock();
    let words = ["create the bucket", "ContainerNotFound"];
    assert_error(
        &lock.read("my_app", TIMEOUT).await.unwrap_err(),
        LockErrorKind::Misconfigured,
        &words,
    );
    let error = lock.write("my_app", write(1)).await.unwrap_err();
    assert_error(&error, LockErrorKind::Misconfigured, &words);

    // An election may have any name, that of a refusal too.
    let lock = env.bucket().lock();
    let found = lock.read("ContainerNotFound", TIMEOUT).await.unwrap();
    assert!(matches!(found, Reading::Empty { proof: false }), "{found:?}");
    assert_eq!(lock.names(TIMEOUT).await.unwrap(), Vec::<String>::new());
    lock.write("my_app", write(1)).await.unwrap();
    assert_eq!(lock.names(TIMEOUT).await.unwrap(), ["my_app"]);
}

/// A blob with a lease of Azure's own can be written by its lessee alone: that is no rival's write,
/// and reading does not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leased_blob_is_not_a_conflict() {
    let env = TestEnv::<Azure>::new(LEASE).await;
    let lock = env.bucket().lock();
    let expected = Some(lock.write("my_app", write(1)).await.unwrap());
    let before = env.object().await;
    let target = format!("/{ACCESS_KEY}/{BUCKET}/{}?comp=lease&{ACCOUNT_SAS}", env.path());
    let lease = |action: &str| {
        HttpMessage::new(format!("PUT {target} HTTP/1.1"))
            .with("host", format!("127.0.0.1:{}", env.server.port()))
            .with("x-ms-lease-action", action)
            .with("x-ms-lease-duration", "-1")
            .with("x-ms-lease-break-period", "0")
    };
    let leased = http_request(env.server.port(), &lease("acquire")).await.unwrap();
    assert_eq!(leased.second(), "201", "{leased:?}");
    let next = Write { expected, ..write(2) };
    let error = lock.write("my_app", next.clone()).await.unwrap_err();
    assert_error(&error, LockErrorKind::Misconfigured, &["LeaseIdMissing"]);
    assert_eq!(env.object().await, before);
    let broken = http_request(env.server.port(), &lease("break")).await.unwrap();
    assert_eq!(broken.second(), "202", "{broken:?}");
    lock.write("my_app", next).await.unwrap();
}

/// Nor are these, which Azurite does not know. After an answer that was none, the first try may
/// have been applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn permanent_refusals_are_not_conflicts() {
    let env = TestEnv::<Azure>::new(LEASE).await;
    let lock = env.bucket().lock();
    for code in ["BlobImmutableDueToPolicy", "BlobArchived", "ContainerBeingDeleted"] {
        let refused = s3_error("409 Conflict", code, "as it is");
        env.proxy.once("PUT", HttpFault::Respond(refused.clone()));
        let error = lock.write("my_app", write(1)).await.unwrap_err();
        assert_error(&error, LockErrorKind::Misconfigured, &[code]);

        let busy = s3_error("503 Service Unavailable", "ServerBusy", "later");
        env.proxy.once("PUT", HttpFault::Respond(busy.with("retry-after", "0")));
        env.proxy.once("PUT", HttpFault::Respond(refused));
        let error = lock.write("my_app", write(1)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::OutcomeUnknown, "{error}");
    }
    assert_eq!(env.proxy.pending_faults(), 0);
}

const PREFIX: &str = "INCUMBENT_TEST_PREFIX";

/// `az://` has its account from the environment, which only a process of its own can be given.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_environment_with_the_least_rights_is_enough() {
    let env = TestEnv::<Azure>::new(LEASE).await;
    let port = env.proxy.port();
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AZURE_") {
            command.env_remove(name);
        }
    }
    command
        .args([
            "--exact",
            "azure::campaign_configured_by_the_environment",
            "--ignored",
            "--nocapture",
        ])
        .env(PREFIX, &env.prefix)
        .env("AZURE_STORAGE_ACCOUNT_NAME", ACCESS_KEY)
        .env("AZURE_STORAGE_SAS_TOKEN", MIN_SAS)
        .env("AZURE_STORAGE_ENDPOINT", format!("http://127.0.0.1:{port}/{ACCESS_KEY}"))
        .env("AZURE_ALLOW_HTTP", "true");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(env.object().await.is_some(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by the test before it"]
async fn campaign_configured_by_the_environment() {
    let Ok(prefix) = std::env::var(PREFIX) else { return };
    let bucket = Bucket::from_url(&format!("az://{BUCKET}/{prefix}")).unwrap();
    let lock = bucket.max_lease(LEASE).lock();
    // A busy machine may be too slow for a renewal or the release.
    let record = appears("a release", async || {
        let builder = incumbent::new_election("my_app", lock.clone()).lease(LEASE);
        let only = working(builder).start().unwrap();
        let leadership = leads(&only).await;
        if !is_renewed(&leadership).await {
            return None;
        }
        drop(leadership);
        only.stop().await;
        let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
        format!("{:?}", record.content).contains("Released").then_some(record)
    })
    .await;
    lock.evict("my_app", record.revision, TIMEOUT).await.unwrap();

    // The container is not theirs to list.
    let error = lock.names(TIMEOUT).await.unwrap_err();
    assert_error(&error, LockErrorKind::Denied, &["az://bucket"]);
}
