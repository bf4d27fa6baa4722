//! A store that answers reads and refuses every write.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent_test_support::eventually;

use crate::objects_doctor::{shell_at, versitygw};

/// Passes on what reads, and refuses what writes; counts that.
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

/// One request a connection.
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
        let answer =
            "HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        return client.write_all(answer.as_bytes()).ok();
    }
    let head = String::from_utf8(head).ok()?.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let mut upstream = TcpStream::connect(("127.0.0.1", server)).ok()?;
    upstream.write_all(head.as_bytes()).ok()?;
    std::io::copy(&mut upstream, &mut client).ok().map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_says_once_what_fails_and_who_led() {
    let (store, shell) = versitygw().await;
    let lock = "s3://bucket?longest-lease=2s";
    let campaign = |identity| ["campaign", "my_app", "--lock", lock, "--identity", identity];
    let mut first = shell.start(&campaign("v0"));
    first.line_with("won");
    let (port, refused) = read_only(store.port());
    let second = shell_at(port);
    let said = second.home().join("said");
    let mut command = second.command(&campaign("v1"));
    command.stdout(std::fs::File::create(&said).expect("a file"));
    let mut child = command.spawn().expect("it starts");
    let read = || std::fs::read_to_string(&said).expect("text");
    eventually("it sees who leads", async || read().contains("leader: v0").then_some(())).await;
    drop(first); // killed: nobody writes any more
    eventually("it has tried often", async || (refused.load(Ordering::SeqCst) > 5).then_some(()))
        .await;
    let said = read();
    child.kill().expect("it runs");
    child.wait().expect("an end");
    // On a busy machine a read may come too late as well, which is another failure.
    let (leaders, failures): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| line.starts_with("leader: "));
    assert_eq!(leaders, ["leader: v0", "leader: none"], "{said}");
    let write = "lock failing: write of the object s3://bucket/my_app: 405 Method Not Allowed";
    assert!(failures.contains(&write), "{said}");
    assert!(failures.len() < 5, "{said}");
}
