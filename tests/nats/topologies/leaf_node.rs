//! Candidates on both sides of a leaf node connection, with the bucket at the hub.

use async_nats::RequestErrorKind;
use incumbent::Successor;
use incumbent::nats::BucketErrorKind;
use incumbent_test_support::LeafNode;

use super::*;

/// A leaf node with a domain of its own, or without JetStream.
async fn leaf_node(own_domain: bool) -> LeafNode {
    let leaf = match own_domain {
        true => Server::builder().domain("leaf"),
        false => Server::builder().without_jetstream(),
    };
    let servers = LeafNode::start(leaf).await;
    prepared(servers.hub().connect().await, config()).await;
    servers
}

fn through_the_leaf() -> BucketConfig {
    config().domain("hub")
}

async fn candidates(servers: &LeafNode) -> (Candidate, Candidate) {
    let on_leaf = Candidate::start(servers.leaf(), &through_the_leaf(), "leaf").await;
    drop(leads(&on_leaf.election).await);
    (on_leaf, Candidate::start(servers.hub(), &config(), "hub").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_of_the_leaf_and_the_hub_replace_each_other() {
    for own_domain in [true, false] {
        let servers = leaf_node(own_domain).await;
        let (on_leaf, at_hub) = candidates(&servers).await;
        they_replace_each_other(&on_leaf, &at_hub).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_at_the_leaf_replaces_a_crashed_leader_at_the_hub() {
    let servers = leaf_node(false).await;
    let (on_leaf, at_hub) = candidates(&servers).await;
    drop(resigns_to(&on_leaf.election, &at_hub.election).await);
    they_replace_each_other(&at_hub, &on_leaf).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hub_and_the_leaf_have_queue_groups_of_their_own() {
    let servers = leaf_node(true).await;
    let at_hub = Members::on(&[servers.hub()], &config(), 16).await;
    let on_leaf = Members::on(&[servers.leaf()], &through_the_leaf(), 16).await;
    let writer = servers.hub().connect().await;
    let groups = [
        groups_on(&[servers.hub()], 16, &writer).await,
        groups_on(&[servers.leaf()], 16, &writer).await,
    ];
    let sets = [(&at_hub, groups[0]), (&on_leaf, groups[1])];
    each_group_receives_each_write(&writer, &sets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_link_ends_the_term_on_the_leaf() {
    let servers = leaf_node(false).await;
    let (on_leaf, at_hub) = candidates(&servers).await;
    a_link_is_cut_and_restored(servers.link(), &at_hub, &on_leaf, Outage::Closed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_link_ends_the_term_on_the_leaf() {
    let servers = leaf_node(true).await;
    let (on_leaf, at_hub) = candidates(&servers).await;
    a_link_is_cut_and_restored(servers.link(), &at_hub, &on_leaf, Outage::Silent).await;
}

/// A link that is away for less than a lease costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut_costs_no_term() {
    let servers = LeafNode::start(Server::builder().without_jetstream()).await;
    prepared(servers.hub().connect().await, config().ttl(CALM)).await;
    let bucket = opened(connect(servers.leaf().url()).await, through_the_leaf()).await;
    let builder = working(new_election("my_app", bucket.lock()).identity("leaf"));
    let election = builder.renewal(Duration::from_millis(300)).start().expect("a start");
    let leadership = leads(&election).await;
    servers.link().cut();
    eventually("a renewal fails", async || election.lock_failure().map(drop)).await;
    servers.link().restore();
    let before = leadership.deadline();
    eventually("a renewal", async || (leadership.deadline() > before).then_some(())).await;
    assert_eq!(election.token(), Some(leadership.token()), "the term continues");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_at_the_hub_needs_its_domain() {
    let servers = leaf_node(false).await;
    let on_leaf = servers.leaf().connect().await;
    let key = format!("$KV.{BUCKET}.my_app");
    let straight = on_leaf.request(key.clone(), "other".into()).await.expect_err("no responder");
    assert_eq!(straight.kind(), RequestErrorKind::NoResponders);
    let below = format!("$JS.hub.API.{key}");
    let answer = eventually("an acknowledgement", async || {
        on_leaf.request(below.clone(), "other".into()).await.ok()
    });
    let answer = answer.await.payload;
    assert!(String::from_utf8_lossy(&answer).contains("\"seq\""), "{answer:?}");
    let refused = Bucket::open(on_leaf, BUCKET).await.expect_err("no JetStream here");
    assert_eq!(refused.kind(), BucketErrorKind::Unavailable, "{refused}");
}

/// Those of docs/large-deployments.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_subjects_suffice_over_the_link() {
    let both = format!(
        r#""incumbent.{BUCKET}.>", "incumbent-roll-call.{BUCKET}.>", "incumbent-control.{BUCKET}.>", "incumbent-answer.{BUCKET}.>", "_INBOX.>""#
    );
    let users = format!(
        r#"authorization: {{ users: [
            {{ user: any, password: p }},
            {{ user: leaf, password: p, permissions: {{
                publish: [{both}, "$JS.hub.API.>"], subscribe: [{both}],
            }} }},
        ] }}
        no_auth_user: any"#
    );
    let hub = Server::builder().config(users);
    let leaf = Server::builder().without_jetstream();
    let servers = LeafNode::start_as("leaf:p@", hub, leaf).await;
    prepared(servers.hub().connect().await, config()).await;
    let (on_leaf, at_hub) = candidates(&servers).await;
    drop(leads_before(&on_leaf.election, &[&at_hub.election]).await);
    for candidate in [&on_leaf, &at_hub] {
        // The interest in answers crosses the link a little later.
        eventually("both answer", async || {
            let answers = candidate.election.roll_call(Duration::from_secs(1)).await.ok()?;
            assert!(answers.len() <= 2, "{answers:?}");
            (answers.len() == 2).then_some(())
        })
        .await;
    }
    for (from, to) in [(&on_leaf, &at_hub), (&at_hub, &on_leaf)] {
        drop(leads_before(&from.election, &[&to.election]).await);
        eventually("the handover", async || {
            if to.election.is_leader() {
                return Some(()); // the answer was lost
            }
            from.election.move_leader(Successor::Any).await.ok().map(drop)
        })
        .await;
        drop(leads(&to.election).await);
    }
    they_replace_each_other(&on_leaf, &at_hub).await;
}
