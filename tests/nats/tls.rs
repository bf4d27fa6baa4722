//! Credentials are sent by TLS alone where TLS is configured.

use std::path::Path;

use incumbent::LockUrl;
use incumbent::lock_url::LockUrlErrorKind;
use incumbent::nats::{TlsFiles, connect_options, with_servers};
use incumbent_test_support::{Authority, Port, Server, connected, eventually};

use crate::url::opened;

/// What a server has to log of each client, and its user.
const USERS: &str = "debug: true\ntrace: true\nauthorization { user: me, password: s3cret }\n";

/// Whether a client has sent its credentials.
fn knows_credentials(server: &Server) -> bool {
    server.log().lines().any(|line| line.contains("cid:") && line.contains("[CONNECT "))
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let file = directory.join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[tokio::test]
async fn server_without_tls_never_receives_credentials() {
    let server = Server::builder().config(USERS).start().await;
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = write(directory.path(), "ca.pem", authority.certificate());
    let at = server.address();
    for url in [format!("nats://me:s3cret@{at}/B?ca={ca}"), format!("tls://me:s3cret@{at}/B")] {
        let refused = url.parse::<LockUrl>().unwrap().open().await.unwrap_err();
        assert_eq!(refused.kind(), LockUrlErrorKind::Unavailable, "{refused}");
    }
    let [certificate, key] = authority.issue("me");
    let mut tls = TlsFiles::default();
    let file = |name, text| write(directory.path(), name, text).into();
    tls.client = Some((file("me.pem", &certificate), file("me.key", &key)));
    let url = server.url_as("me", "s3cret");
    let (options, addresses) = with_servers(connect_options(), &url, &tls).unwrap();
    options.connect(addresses).await.unwrap_err();
    assert!(!knows_credentials(&server), "{}", server.log());
    opened(&format!("{url}/B")).await.unwrap();
    assert!(knows_credentials(&server), "{}", server.log());
}

#[tokio::test]
async fn advertised_server_without_tls_never_receives_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = write(directory.path(), "ca.pem", authority.certificate());
    let [certificate, key] = authority.issue("127.0.0.1");
    let certificate = write(directory.path(), "server.pem", &certificate);
    let key = write(directory.path(), "server.key", &key);
    let route = Port::pick();
    let cluster = |listen: u16, routes: &str| {
        let route = route.number();
        let peer = routes.replace("ROUTE", &format!("nats://127.0.0.1:{route}"));
        format!("{USERS}cluster {{ name: test, listen: \"127.0.0.1:{listen}\"{peer} }}\n")
    };
    let tls = format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n");
    let first = cluster(route.number(), "") + &tls;
    let first = Server::builder().without_jetstream().config(first).start().await;
    let second = cluster(Port::pick().number(), ", routes: [\"ROUTE\"]");
    let second = Server::builder().without_jetstream().config(second).start().await;

    let mut files = TlsFiles::default();
    files.authorities = Some(ca.into());
    let url = first.url_as("me", "s3cret");
    let (options, addresses) = with_servers(connect_options(), &url, &files).unwrap();
    let client = connected(|| options.clone().connect(addresses.clone())).await;
    let advertised = format!("{}", second.address());
    eventually("the address of the second server", async || {
        let pool = client.server_pool().await.ok()?;
        pool.iter().any(|server| server.addr.as_url_str().contains(&advertised)).then_some(())
    })
    .await;
    first.stop().await;
    eventually("an attempt", async || second.log().contains("authentication error").then_some(()))
        .await;
    assert!(knows_credentials(&first) && !knows_credentials(&second), "{}", second.log());
}
