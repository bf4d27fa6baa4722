//! What passes a proxy that holds, and when.

use std::time::Duration;

use incumbent_test_support::FaultProxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers each byte with itself.
async fn echo() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = socket.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn what_was_held_back_arrives_once_it_is_released() {
    let proxy = FaultProxy::start(echo().await).await;
    let connect = || TcpStream::connect(("127.0.0.1", proxy.port()));
    let mut first = connect().await.unwrap();
    first.write_all(b"1").await.unwrap();
    assert_eq!(first.read_u8().await.unwrap(), b'1');
    proxy.hold();
    let mut second = connect().await.unwrap();
    for socket in [&mut first, &mut second] {
        socket.write_all(b"2").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(100), socket.read_u8()).await;
        assert!(early.is_err(), "{early:?}");
    }
    proxy.release();
    for socket in [&mut first, &mut second] {
        assert_eq!(socket.read_u8().await.unwrap(), b'2');
    }
}
