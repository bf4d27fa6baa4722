//! Three servers, and candidates on each of them that share queue groups.

use incumbent::Change;
use incumbent::lock::{Lock, LockErrorKind, Write};
use incumbent_test_support::Cluster;

use super::*;
use crate::lock::entry;

const STREAM: &str = "KV_CHORIA_LEADER_ELECTION";

/// The least lease that `doctor` accepts on a cluster.
const SAFE: Duration = Duration::from_secs(25);

async fn cluster(config: &BucketConfig) -> Cluster {
    let cluster = Cluster::start().await;
    prepared(cluster.connect().await, config.clone()).await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_delivered_once_per_group_in_the_whole_cluster() {
    let cluster = cluster(&config()).await;
    let servers: Vec<_> = cluster.servers().iter().collect();
    let members = Members::on(&servers, &config(), 24).await;
    let plain = Members::on(&servers, &config().queue_groups(0), 3).await;
    let writer = cluster.connect().await;
    let groups = groups_on(&servers, 24, &writer).await;
    assert!((2..=usize::from(GROUPS)).contains(&groups), "{groups} groups");
    each_group_receives_each_write(&writer, &[(&members, groups), (&plain, 3)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_on_other_servers_take_over() {
    let cluster = cluster(&config()).await;
    let first = Candidate::start(cluster.server(0), &config(), "first").await;
    drop(leads(&first.election).await);
    let second = Candidate::start(cluster.server(1), &config(), "second").await;
    they_replace_each_other(&first, &second).await;
}

/// A third of the lease lies between renewals, as by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_the_stream_leader_costs_no_term() {
    let config = config().ttl(SAFE);
    let cluster = cluster(&config).await;
    // Its server stays.
    let dead = cluster.await_stream_leader(STREAM).await;
    let [one, other] = [(dead + 1) % 3, (dead + 2) % 3].map(|index| cluster.server(index));
    let first = Candidate::start(one, &config, "first").await;
    let leadership = leads(&first.election).await;
    let mut standbys = Vec::new();
    for (number, server) in [one, other, one, other].into_iter().enumerate() {
        standbys.push(Candidate::start(server, &config, &format!("standby{number}")).await);
        sees(&standbys[number].election, "first").await;
    }
    let mut changes = first.election.changes();
    let before = leadership.deadline();
    // With most of the lease ahead, as a busy machine takes long to choose another stream leader.
    let before = soon("a renewal", leadership.renewed(before)).await.unwrap();
    cluster.server(dead).kill();
    eventually("another renewal", async || (leadership.deadline() > before).then_some(())).await;
    assert!(leadership.is_valid(), "the term continues");
    assert!(standbys.iter().all(|standby| !standby.election.is_leader()));
    soon("the leader stops", first.election.stop()).await;
    let mut losses = 0;
    while let Some(change) = changes.next().await {
        losses += usize::from(matches!(change, Change::Lost { .. }));
    }
    assert_eq!(losses, 1, "the stop is the only end of a term");
    let wins = standbys.iter().map(|standby| Box::pin(leads(&standby.election)));
    drop(futures_util::future::select_all(wins).await);
}

/// While a write of a key is in flight, servers refuse another one with error 10164, which says
/// nothing of its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_for_a_write_in_flight_costs_no_term() {
    let config = config().ttl(SAFE);
    let cluster = cluster(&config).await;
    // On a machine that stands still the stream loses its leader: the write is in flight nowhere.
    let refused = async || is_refused_in_flight(&cluster, &config).await.then_some(());
    eventually("a refusal for a write in flight", refused).await;
}

/// Whether a write is refused for another one, which takes a leader of the stream without a quorum.
async fn is_refused_in_flight(cluster: &Cluster, config: &BucketConfig) -> bool {
    let leading = cluster.await_stream_leader(STREAM).await;
    let at_leader = async || {
        let client = connect(cluster.server(leading).url()).await;
        opened(client, config.clone()).await.lock()
    };
    let rival = at_leader().await;
    let builder = working(new_election("my_app", at_leader().await).identity("only"));
    let election = builder.renewal(Duration::from_millis(500)).start().expect("a start");
    let leadership = leads(&election).await;
    let others = [(leading + 1) % 3, (leading + 2) % 3].map(|index| cluster.server(index));
    others.iter().for_each(|server| server.pause());
    eventually("a renewal fails", async || election.lock_failure().map(drop)).await;
    let create = Write { timeout: Duration::from_secs(1), ..entry(1, 1, None) };
    let refused = rival.write("my_app", create).await.expect_err("no quorum");
    others.iter().for_each(|server| server.resume());
    if is_passing(refused.kind()) {
        soon("the leader stops", election.stop()).await;
        return false;
    }
    assert_eq!(refused.kind(), LockErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains("10164"), "{refused}");
    let before = leadership.deadline();
    eventually("a renewal", async || (leadership.deadline() > before).then_some(())).await;
    assert_eq!(election.token(), Some(leadership.token()), "the term continues");
    true
}

/// A stream without a quorum serves no request: the leader stops by its own deadline, and there is
/// a leader again with the quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_quorum_ends_the_term_and_its_return_begins_another() {
    let cluster = cluster(&config()).await;
    let first = Candidate::start(cluster.server(2), &config(), "first").await;
    let leadership = leads(&first.election).await;
    let others = [cluster.server(0), cluster.server(1)];
    others.iter().for_each(|server| server.pause());
    eventually("the leader is out", async || (!first.election.is_leader()).then_some(())).await;
    assert!(!leadership.is_valid());
    drop(leadership);
    others.iter().for_each(|server| server.resume());
    drop(leads(&first.election).await);
}
