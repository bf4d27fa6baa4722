//! What a proxy refuses, and says.

use std::net::TcpListener;

use incumbent_test_support::{Server, connected, nats_options};
use rustix::process::Signal;

use super::{HOLD, Proxy, lead_at};
use crate::env::{CALM, Candidate, TestEnv, create_bucket, incumbent};

/// The exit code, and the last line.
async fn refused(flags: &[&str]) -> (Option<i32>, String) {
    let mut command = incumbent();
    command.arg("proxy").args(flags);
    let mut proxy = Candidate::start(command);
    let code = proxy.exit_code().await;
    let text = proxy.stderr();
    (code, text.lines().last().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bad_input_is_refused_in_one_line() {
    let env = TestEnv::start().await;
    let without_bucket = Server::start().await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let (url, empty) = (env.server.url(), without_bucket.url());
    let at_bucket = |listen| ["my_app", "--listen", listen, "--server", url.as_str()];
    let cases: [(&[&str], i32, &str); 5] = [
        (&at_bucket("nowhere"), 2, "incumbent: invalid --listen \"nowhere\": use a port"),
        (&at_bucket(&taken), 1, "incumbent: cannot listen at 127.0.0.1:"),
        (&["a name", "--listen", "0"], 2, "incumbent: \"a name\" is not a valid election name"),
        (&["my_app", "--listen", "0", "--server", &empty], 3, "incumbent: bucket"),
        (
            &["my_app", "--listen", "0", "--server", "nats://127.0.0.1:1", "--timeout", "1s"],
            4,
            "incumbent: ",
        ),
    ];
    for (flags, code, line) in cases {
        let (found, text) = refused(flags).await;
        assert!(found == Some(code) && text.starts_with(line), "{flags:?}: {found:?} {text}");
    }
    for flags in [["--hold", "0s"], ["--hold", "2h"], ["--max-connections", "0"]] {
        let (code, text) = refused(&[&["my_app", "--listen", "0"], &flags[..]].concat()).await;
        assert_eq!(code, Some(2), "{flags:?} {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_needs_the_permissions_of_an_observer_and_no_more() {
    let server = Server::builder().with_permissions().start().await;
    let admin = connected(|| nats_options("admin").connect(server.url())).await;
    let bucket = create_bucket(&admin, CALM).await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let election = incumbent::new_election("my_app", bucket.lock()).advertise(address);
    let election = election.start().expect("a start");
    let observer = server.url_as("observer", "pw");
    let lock = ["--server", &observer, "--inbox-prefix", "_INBOX_incumbent_observer"];
    let proxy = Proxy::of_lock(&lock, &HOLD);
    let _client = proxy.connect().await;
    listener.accept().expect("a connection");
    let unknown = server.url_as("observer", "other");
    let (code, line) = refused(&["my_app", "--listen", "0", "--server", &unknown]).await;
    assert!(code == Some(5) && line.contains("denies access"), "{code:?} {line}");
    election.stop().await;
}

#[tokio::test]
async fn address_that_cannot_be_used_is_named_in_a_line() {
    let env = TestEnv::calm().await;
    let _election = lead_at(&env, "http://\u{202e}nowhere").await;
    let mut proxy = Proxy::start(&env, &[]);
    proxy.wait_for_metric("incumbent_proxy_has_leader", 1.0).await;
    proxy.program.signal(Signal::TERM);
    proxy.program.exit().await;
    let text = proxy.program.stderr();
    let line = text.lines().find(|line| line.starts_with("here leads with token "));
    let line = line.unwrap_or_else(|| panic!("a line of the leader: {text}"));
    assert!(line.contains("neither host:port nor a URL with a port") && !line.contains('\u{202e}'));
}
