//! Elections across several servers: clusters, leaf nodes and gateways.

mod cluster;
mod figures;
mod gateways;
mod leaf_node;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use incumbent::nats::{Bucket, BucketConfig};
use incumbent::{Cause, Election, new_election};
use incumbent_test_support::{Link, Proxy, Server, connected, eventually};

use crate::conformance::{is_passing, leads, leads_before, lost, resigns_to, sees, soon, working};
use crate::env::{BUCKET, CALM, opened, prepared};
use crate::queue_groups::{Hints, hints_of};

const GROUPS: u8 = 8;

/// A lease that links and crashed candidates outlast in a test. Longer than a busy machine holds up
/// a leader.
const SHORT: Duration = Duration::from_secs(12);

fn config() -> BucketConfig {
    BucketConfig::new(BUCKET).ttl(SHORT).queue_groups(GROUPS)
}

async fn connect(url: String) -> async_nats::Client {
    let options = || {
        async_nats::ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(50))
    };
    connected(|| options().connect(&url)).await
}

/// A candidate behind a proxy of its own.
struct Candidate {
    election: Election,
    proxy: Proxy,
}

impl Candidate {
    async fn start(server: &Server, config: &BucketConfig, identity: &str) -> Self {
        let proxy = Proxy::start(server.address());
        let lock = opened(connect(proxy.url()).await, config.clone()).await.lock();
        let election = working(new_election("my_app", lock).identity(identity));
        Self { election: election.start().expect("a start"), proxy }
    }

    /// Closes its connection for good, as the end of its process does.
    fn crash(&self) {
        self.proxy.refuse(true);
        self.proxy.cut();
    }
}

/// The leader goes, in one way and another, and the standby leads next, each of both in turn.
async fn they_replace_each_other(first: &Candidate, second: &Candidate) {
    for (from, to) in [(first, second), (second, first)] {
        drop(leads_before(&from.election, &[&to.election]).await);
        drop(resigns_to(&from.election, &to.election).await);
    }
    let leadership = leads_before(&first.election, &[&second.election]).await;
    first.crash();
    let next = leads(&second.election).await;
    assert!(!leadership.is_valid() && next.token() > leadership.token());
}

/// What becomes of the connections of a link.
#[derive(Clone, Copy)]
enum Outage {
    Closed,
    Silent,
}

/// Cuts a link with the leader on the far side of it. A standby beside the bucket leads after the
/// leader has stopped, and the former leader stands by once the link is restored.
async fn a_link_is_cut_and_restored(
    link: &Link,
    near: &Candidate,
    far: &Candidate,
    outage: Outage,
) {
    let leadership = leads_before(&far.election, &[&near.election]).await;
    let mut changes = far.election.changes();
    match outage {
        Outage::Closed => link.cut(),
        Outage::Silent => link.hold(),
    }
    let next = leads(&near.election).await;
    assert!(!leadership.is_valid() && !far.election.is_leader(), "the first one is out before");
    assert!(next.token() > leadership.token());
    assert!(matches!(lost(&mut changes).await, Cause::Expired { .. }));
    match outage {
        Outage::Closed => link.restore(),
        Outage::Silent => link.release(),
    }
    sees(&far.election, near.election.identity()).await;
    assert!(next.is_valid() && near.election.is_leader(), "the return changes nothing");
    soon("the leader stops", near.election.stop()).await;
    drop(leads(&far.election).await);
}

/// Members of queue groups that are connected to some servers.
struct Members(Vec<Hints>);

impl Members {
    async fn on(servers: &[&Server], config: &BucketConfig, count: usize) -> Self {
        let mut members = Vec::new();
        for server in servers.iter().cycle().take(count) {
            let bucket = opened(server.connect().await, config.clone()).await;
            members.push(hints_of(&bucket.lock(), "my_app").await);
        }
        Self(members)
    }

    fn take(&self) -> usize {
        self.0.iter().map(|hints| hints.stored.swap(0, Ordering::SeqCst)).sum()
    }
}

/// The queue groups that this many members on these servers join, once a hint has reached them.
async fn groups_on(servers: &[&Server], members: usize, writer: &async_nats::Client) -> usize {
    eventually("each member has joined", async || {
        let key = format!("$KV.{BUCKET}.my_app");
        writer.request(key, "other".into()).await.ok()?; // an acknowledgement
        let joined = joined_on(servers).await;
        let groups: BTreeSet<_> = joined.iter().collect();
        (joined.len() == members).then_some(groups.len())
    })
    .await
}

/// The group of each member on these servers that has joined one.
async fn joined_on(servers: &[&Server]) -> Vec<String> {
    let mut groups = Vec::new();
    for server in servers {
        let connz = server.monitor("/connz?subs=detail").await;
        let connections = connz["connections"].as_array().into_iter().flatten();
        let clients = connections.filter(|it| it["kind"] == "Client"); // no leaf nodes
        let subs = clients.flat_map(|it| it["subscriptions_list_detail"].as_array());
        let hints = format!("incumbent.{BUCKET}.my_app");
        let of_hints = subs.flatten().filter(|sub| sub["subject"] == *hints);
        groups.extend(of_hints.filter_map(|sub| Some(sub["qgroup"].as_str()?.to_owned())));
    }
    groups
}

/// Checks that a write is delivered to a member of each group among some members, of each set of
/// members.
async fn each_group_receives_each_write(writer: &async_nats::Client, sets: &[(&Members, usize)]) {
    const WRITES: usize = 20;
    let key = format!("$KV.{BUCKET}.my_app");
    eventually("each group receives each write", async || {
        sets.iter().for_each(|(members, _)| {
            members.take();
        });
        for _ in 0..WRITES {
            writer.request(key.clone(), "other".into()).await.ok()?; // an acknowledgement
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let received: Vec<_> = sets.iter().map(|(members, _)| members.take()).collect();
        let expected: Vec<_> = sets.iter().map(|(_, groups)| WRITES * groups).collect();
        (received == expected).then_some(())
    })
    .await;
}
