//! A client that sends arbitrary protocol lines.

use incumbent_test_support::Server;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A connection to a server, without a client's care.
pub struct Raw(BufReader<TcpStream>);

impl Raw {
    pub async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.expect("a connection");
        let mut raw = Self(BufReader::new(stream));
        raw.line().await; // INFO
        raw.send(b"CONNECT {\"verbose\":false,\"headers\":true}\r\n").await;
        raw
    }

    /// Publishes a message whose headers are these bytes, and waits until the server has taken it.
    pub async fn publish(&mut self, subject: &str, headers: &[u8], value: &[u8]) {
        let (head, total) = (headers.len(), headers.len() + value.len());
        let mut bytes = format!("HPUB {subject} {head} {total}\r\n").into_bytes();
        bytes.extend_from_slice(headers);
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\nPING\r\n");
        self.send(&bytes).await;
        loop {
            let line = self.line().await;
            assert!(!line.starts_with("-ERR"), "{line}");
            if line.starts_with("PONG") {
                return;
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.expect("a connection that stays");
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("a line");
        assert!(!line.is_empty(), "the server has closed the connection");
        line
    }
}
