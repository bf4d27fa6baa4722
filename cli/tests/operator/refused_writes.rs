//! A store that serves reads and refuses every write.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent_test_support::eventually;

use crate::object_storage_doctor::{shell_at, versitygw};

/// A proxy that forwards reads, and refuses and counts writes.
fn read_only(server: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || serve(client, server, &counted));
        }
    });
    (port, refused)
}

/// Serves one request per connection.
fn serve(mut client: TcpStream, server: u16, refused: &AtomicUsize) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    if head.starts_with(b"PUT ") {
        refused.fetch_add(1, Ordering::SeqCst);
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length?.trim().parse().ok()?];
        client.read_exact(&mut body).ok()?;
        let response =
            "HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        return client.write_all(response.as_bytes()).ok();
    }
    let head = String::from_utf8(head).ok()?.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut upstream = TcpStream::connect(("127.0.0.1", server)).ok()?;
    upstream.write_all(head.as_bytes()).ok()?;
    std::io::copy(&mut upstream, &mut client).ok().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_reports_each_lock_failure_once() {
    let (store, shell) = versitygw().await;
    let lock = "s3://bucket?max-lease=2s";
    let campaign = |identity| ["campaign", "my_app", "--lock", lock, "--identity", identity];
    let mut first = shell.start(&campaign("v0"));
    first.line_with("won");
    let (port, refused) = read_only(store.port());
    let second = shell_at(port);
    let file = second.home().join("output");
    let mut command = second.command(&campaign("v1"));
    command.stdout(std::fs::File::create(&file).expect("a file"));
    let mut child = command.spawn().expect("it starts");
    let read = || std::fs::read_to_string(&file).expect("text");
    eventually("the leader is reported", async || read().contains("leader: v0").then_some(()))
        .await;
    drop(first); // killed: no candidate writes any more
    eventually("several writes were refused", async || {
        (refused.load(Ordering::SeqCst) > 5).then_some(())
    })
    .await;
    let output = read();
    child.kill().expect("it runs");
    child.wait().expect("an end");
    // On a busy machine a read may time out as well, which is another failure.
    let (leaders, failures): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| line.starts_with("leader: "));
    assert_eq!(leaders, ["leader: v0", "leader: none"], "{output}");
    let write = "lock failing: write of the object s3://bucket/my_app: 405 Method Not Allowed";
    assert!(failures.contains(&write), "{output}");
    assert!(failures.len() < 5, "{output}");
}
