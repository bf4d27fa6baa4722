//! As much of HTTP as a request to a server's monitoring port needs.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The JSON behind a path of a server's monitoring port, or `None` where it does not answer, or
/// answers anything but 200.
pub async fn monitor(server: SocketAddr, path: &str) -> Option<Value> {
    let answer = timeout(Duration::from_secs(2), fetch(server, path)).await.ok()?.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).filter(|status| *status == "200")?;
    serde_json::from_str(body).ok()
}

pub(crate) async fn fetch(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    // Version 1.0 forbids the server to send the body in chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
