//! Candidates in two clusters that gateways join, with the bucket in one of them.

use incumbent_test_support::Gateways;

use super::*;

async fn gateways(west: usize) -> Gateways {
    let clusters = Gateways::start(west).await;
    prepared(clusters.east().connect().await, config()).await;
    clusters
}

async fn candidates(clusters: &Gateways) -> (Candidate, Candidate) {
    let in_west = Candidate::start(&clusters.west()[0], &config(), "west").await;
    drop(leads(&in_west.election).await);
    (in_west, Candidate::start(clusters.east().server(0), &config(), "east").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_of_both_clusters_replace_each_other() {
    let clusters = gateways(1).await;
    let (in_west, in_east) = candidates(&clusters).await;
    drop(resigns_to(&in_west.election, &in_east.election).await);
    they_replace_each_other(&in_east, &in_west).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cluster_has_queue_groups_of_its_own() {
    let clusters = gateways(3).await;
    let east: Vec<_> = clusters.east().servers().iter().collect();
    let west: Vec<_> = clusters.west().iter().collect();
    let in_east = Members::on(&east, &config(), 15).await;
    let in_west = Members::on(&west, &config(), 15).await;
    let writer = clusters.east().connect().await;
    let groups = [groups_on(&east, 15, &writer).await, groups_on(&west, 15, &writer).await];
    let sets = [(&in_east, groups[0]), (&in_west, groups[1])];
    each_group_receives_each_write(&writer, &sets).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_gateway_ends_the_term_in_the_other_cluster() {
    let clusters = gateways(1).await;
    let (in_west, in_east) = candidates(&clusters).await;
    a_link_is_cut_and_restored(clusters.link(), &in_east, &in_west, Outage::Closed).await;
}
