//! Takeovers and load on an object of Google Cloud Storage, ours beside vimeo/leaderelection's, in
//! turn on the same fake-gcs-server: lease and term 5 s, no skew to be allowed for.
//!
//! Ours run in this process, each on a runtime and connections of its own, so a crash is a runtime
//! that is gone; vimeo's are processes. Where their module cannot be had only ours are measured.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent::new_election;
use incumbent::object_storage::Bucket;
use incumbent_test_support::object_stores::{BUCKET, Program, StoreServer};
use incumbent_test_support::{HttpFaultProxy, go_program};
use object_store::gcp::GoogleCloudStorageBuilder;
use tokio::runtime::Runtime;

use support::{Candidate, End, load, show, takeover};

const LEASE: Duration = Duration::from_secs(5);
const TRIALS: u32 = 6;
const STANDBYS: usize = 49;
const STEADY: Duration = Duration::from_secs(30);
/// Until a standby polls at its slowest rate.
const SETTLE: Duration = Duration::from_secs(30);

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(StoreServer::start(Program::FakeGcs));
    let proxy = runtime.block_on(HttpFaultProxy::start(server.port(), true));
    let vimeo: Option<PathBuf> = std::panic::catch_unwind(|| go_program("vimeo")).ok();
    if vimeo.is_none() {
        println!("vimeo/leaderelection: not run, its module cannot be built here");
    }
    let kinds: Vec<Option<&Path>> = [None].into_iter().chain(vimeo.as_deref().map(Some)).collect();
    let asked = Arc::new(AtomicU64::new(0));
    let start = |kind: Option<&Path>, object: &str, identity: &str| match kind {
        None => ours(proxy.port(), object, identity),
        Some(program) => theirs(program, server.port(), object, identity, Arc::clone(&asked)),
    };
    for end in [End::Release, End::Crash] {
        let mut took = vec![Vec::new(); kinds.len()];
        for trial in 0..TRIALS {
            for (&kind, took) in kinds.iter().zip(&mut took) {
                let object = format!("{}-{end:?}-{trial}", name(kind));
                let age = SETTLE / 2 + LEASE * trial / TRIALS;
                took.push(takeover(|identity| start(kind, &object, identity), age, end));
            }
        }
        for (&kind, mut took) in kinds.iter().zip(took) {
            show(&format!("takeover after {end:?}, {}", name(kind)), &mut took);
        }
    }
    let requests = || proxy.requests().len() as f64 + asked.load(Ordering::Relaxed) as f64;
    for kind in kinds {
        let object = format!("{}-steady", name(kind));
        let start = |identity: &str| start(kind, &object, identity);
        let rate = load(start, STANDBYS, SETTLE, STEADY, requests);
        println!("requests, 1 leader and {STANDBYS} standbys, {}: {rate:.2} a second", name(kind));
    }
}

fn name(kind: Option<&Path>) -> &'static str {
    if kind.is_none() { "ours" } else { "vimeo" }
}

fn ours(port: u16, object: &str, identity: &str) -> Candidate {
    let account =
        r#"{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#;
    Candidate::ours(async || {
        let store = GoogleCloudStorageBuilder::new()
            .with_bucket_name(BUCKET)
            .with_base_url(&format!("http://127.0.0.1:{port}"))
            .with_service_account_key(account);
        let bucket = Bucket::google(store).expect("a bucket").allow_http().max_lease(LEASE);
        let lock = bucket.max_clock_skew(Duration::ZERO).lock();
        new_election(object, lock).identity(identity).lease(LEASE)
    })
}

/// It has no release: a successor waits for the end of the term.
fn theirs(
    program: &Path,
    port: u16,
    object: &str,
    identity: &str,
    asked: Arc<AtomicU64>,
) -> Candidate {
    let mut command = Command::new(program);
    command.env("STORAGE_EMULATOR_HOST", format!("127.0.0.1:{port}"));
    command.args(["-count", "-bucket", BUCKET, "-object", object, "-identity", identity]);
    command.args(["-term", &format!("{}s", LEASE.as_secs())]);
    Candidate::other(&mut command, move |said| {
        if said == "asks" {
            asked.fetch_add(1, Ordering::Relaxed);
        }
    })
}
