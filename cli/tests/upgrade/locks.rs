//! The locks on which any number of members campaign.

use incumbent_test_support::object_stores::{
    ACCESS_KEY, ACCOUNT_KEY, BUCKET, Program, SECRET_KEY, StoreServer,
};
use incumbent_test_support::{HttpFaultProxy, KubeServer, PostgresServer, Server};
use rustix::process::Signal;

use crate::fleet::{Fleet, MEMBERS, soon};
use crate::place::{ELECTION, LEASE, Place};
use crate::release::Release;

/// Upgrades and downgrades by kills before and after which all members of the other release wait,
/// through crashes whose terms expire, crashes that a sentinel reports, and orderly ends.
async fn check(place: Place, seed: u64) {
    let mut fleet = Fleet::new(place, seed);
    fleet.join_all(Release::Last);
    fleet.leader("the last release leads", |_| true).await;
    fleet.join_all(Release::This);
    fleet.all_see_the_leader().await;
    fleet.both_read_the_same().await;

    let (kill, term) = (Signal::KILL, Signal::TERM);
    for (number, signal) in [kill, kill, kill, kill, term, term].into_iter().enumerate() {
        let leader = fleet.leader("a leader", |_| true).await;
        let release = fleet.members[leader].release;
        fleet.leave_it_to_the_other(release, signal).await;
        if number >= 4 {
            fleet.evict_with(release).await;
        }
        fleet.sentinel = true; // the first members had none
        fleet.join_all(release);
        fleet.all_see_the_leader().await;
        fleet.both_read_the_same().await;
    }

    if !fleet.place.one_writer {
        fleet.suspend_the_leader().await;
    }
    if fleet.place.calls {
        fleet.move_to_the_other().await;
        fleet.move_to_the_other().await;
    }
    assert_eq!(fleet.members.len(), 2 * MEMBERS);
    fleet.all_lead_in_turn().await;
    fleet.journal.check(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_bucket() {
    let server = Server::start().await;
    let place = Place::new(format!("{}/B", server.url())).with("NATS_URL", server.url());
    let mut fleet = Fleet::new(place.with_calls().keep(server), 1);
    // Whoever comes first creates the bucket, and the other program reads its entries.
    fleet.join(Release::This, 0);
    fleet.sees_the_leader(0).await;
    for release in Release::BOTH {
        soon("both programs read the entry", || {
            let got = fleet.place.output_of(release, &["kv", "get", "B", ELECTION, "--raw"]);
            let read = String::from_utf8_lossy(&got.stdout).trim() == "this-0";
            if !read {
                println!("{release}: {got:?}"); // it may have expired on a busy machine
            }
            read.then_some(())
        })
        .await;
    }
    fleet.end(0, Signal::TERM);
    fleet.settle().await;
    check(fleet.place, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_lease() {
    let server = KubeServer::start(&[]).await;
    let config = server.kubeconfig().display().to_string();
    let place = Place::new("kubernetes:default").with("KUBECONFIG", config).with_calls();
    check(place.keep(server), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = PostgresServer::start(&[]).await;
    check(Place::new(server.url("postgres")).with_calls().keep(server), 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("locks.db").display().to_string();
    check(Place::new(format!("sqlite:{file}")).with_one_writer().keep(folder), 4).await;
}

fn in_bucket(scheme: &str) -> Place {
    Place::new(format!("{scheme}://{BUCKET}/e?max-lease={LEASE}s&max-clock-skew=0s&allow-http"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_storage_s3() {
    let server = StoreServer::start(Program::Versitygw).await;
    let place = in_bucket("s3")
        .with("AWS_ENDPOINT", format!("http://127.0.0.1:{}", server.port()))
        .with("AWS_ALLOW_HTTP", "true")
        .with("AWS_REGION", "us-east-1")
        .with("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .with("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    check(place.keep(server), 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_storage_azure() {
    let server = StoreServer::start(Program::Azurite).await;
    let endpoint = format!("http://127.0.0.1:{}/{ACCESS_KEY}", server.port());
    let place = in_bucket("az")
        .with("AZURE_STORAGE_ENDPOINT", endpoint)
        .with("AZURE_ALLOW_HTTP", "true")
        .with("AZURE_STORAGE_ACCOUNT_NAME", ACCESS_KEY)
        .with("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY);
    check(place.keep(server), 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_storage_gcs() {
    let server = StoreServer::start(Program::FakeGcs).await;
    let proxy = HttpFaultProxy::start(server.port(), true).await;
    let key = serde_json::json!({
        "gcs_base_url": format!("http://127.0.0.1:{}", proxy.port()), "disable_oauth": true,
        "client_email": "", "private_key": "", "private_key_id": "",
    });
    let place = in_bucket("gs").with("GOOGLE_SERVICE_ACCOUNT_KEY", key.to_string());
    check(place.keep(server).keep(proxy), 7).await;
}
