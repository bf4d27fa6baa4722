//! Commands on clusters and leaf nodes, and with many standbys.

use incumbent_test_support::{Cluster, LeafNode, Server, client_options, connected, eventually};

use crate::doctor::{doctor, expect_line};
use crate::shell::{BUCKET, Shell};

/// It reports a cluster of its own name.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_on_a_leaf_node_is_not_one_on_a_cluster() {
    let servers = LeafNode::start(Server::builder().domain("leaf")).await;
    let shell = Shell::at(servers.leaf());
    shell.out(&["kv", "add", BUCKET, "--election", "--ttl", "20s", "-q"]);
    expect_line(&doctor(&shell, &[], 0), "ok       bucket ", "fit elections");
}

#[tokio::test]
async fn a_short_lease_on_a_cluster_is_a_warning() {
    let cluster = Cluster::start().await;
    let shell = Shell::at(cluster.server(0));
    for (bucket, ttl, code) in [("SHORT", "20s", 1), ("LONG", "25s", 0)] {
        shell.out(&["kv", "add", bucket, "--election", "--ttl", ttl, "-q"]);
        cluster.await_stream_leader(&format!("KV_{bucket}")).await;
        let report = doctor(&shell, &["--bucket", bucket], code);
        match code {
            0 => expect_line(&report, "ok       bucket ", "fit elections"),
            _ => expect_line(&report, "warning  bucket ", "set max_age to 25s or more"),
        };
    }
}

#[tokio::test]
async fn queue_groups_are_advised_for_hundreds_of_standbys() {
    let users = r#"authorization: { users: [
        { user: any, password: p },
        { user: candidate, password: p, permissions: {
            publish: ["$KV.>", "incumbent.>", "$JS.API.>"], subscribe: ["incumbent.>", "_INBOX.>"],
        } },
    ] }"#;
    let server = Server::builder().config(users).start().await;
    let user = |name| Shell::at(&server).with("NATS_USER", name).with("NATS_PASSWORD", "p");
    user("any").out(&["kv", "add", BUCKET, "--election", "-q"]);
    let mut standbys = Vec::new();
    for number in 0..400 {
        let options = || client_options().user_and_password("any".into(), "p".into());
        let client = connected(|| options().connect(server.url())).await;
        let subject = format!("incumbent.{BUCKET}.my_app");
        let subscribed = match number % 2 {
            0 => client.queue_subscribe(subject, "incumbent-1".into()).await,
            _ => client.subscribe(subject).await,
        };
        standbys.push((subscribed.expect("a subscription"), client));
    }
    for (_, client) in &standbys {
        client.flush().await.expect("a flush");
    }
    let advice = "200 connections receive every write of election my_app";
    let report = eventually("the connections are listed in time", async || {
        let report = doctor(&user("any"), &[], 0);
        report.stdout.contains(" standbys ").then_some(report)
    })
    .await;
    expect_line(&report, "ok       standbys ", advice);
    let edit = format!("nats stream edit KV_{BUCKET} --metadata incumbent.queue-groups=8)");
    expect_line(&report, "ok       standbys ", &edit);
    // Listing connections is a permission that nothing else needs.
    let report = doctor(&user("candidate"), &[], 0);
    assert!(!report.stdout.contains("connections"), "{report:?}");
    standbys.truncate(398);
    eventually("fewer connections", async || {
        let report = doctor(&user("any"), &[], 0);
        (!report.stdout.contains("connections")).then_some(())
    })
    .await;
}
