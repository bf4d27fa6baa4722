//! The operations on one server.

use incumbent_test_support::{Server, Version};

#[tokio::test]
async fn every_version_starts_and_reports_its_number() {
    for version in Version::ALL {
        let server = Server::builder().version(version).start().await;
        assert_eq!(server.varz().await["version"], version.number());
        assert!(server.jsz().await["config"].is_object(), "{version} has no JetStream");
    }
}

#[tokio::test]
async fn servers_and_their_files_end_with_their_owner() {
    let server = Server::start().await;
    server.pause();
    let address = server.address();
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
}
