//! A proxy before a server of a cluster.

use incumbent_test_support::{Cluster, Proxy};

#[tokio::test]
async fn a_client_of_the_proxy_learns_of_no_other_server() {
    let cluster = Cluster::start().await;
    let proxy = Proxy::start(cluster.server(0).address());
    let client = async_nats::connect(proxy.url()).await.unwrap();
    assert_eq!(client.server_info().connect_urls, Vec::<String>::new());
    let direct = cluster.connect().await;
    assert_ne!(direct.server_info().connect_urls, Vec::<String>::new());
}
