//! HTTP/1.1 messages, each on a connection of its own.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request or a response.
#[derive(Debug, Clone, Default)]
pub struct HttpMessage {
    /// The first line, as in `PUT /bucket/object HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub first: String,
    /// The headers, in the order in which they were sent.
    pub headers: Vec<(String, String)>,
    /// The body, without its transfer encoding.
    pub body: Vec<u8>,
}

impl HttpMessage {
    /// A message with this first line.
    pub fn new(first: impl Into<String>) -> Self {
        Self { first: first.into(), ..Self::default() }
    }

    /// The value of a header, whose name may be in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// Sets a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The second word of the first line: the target of a request, the status of a response.
    pub fn second(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

    /// The method of a request.
    pub fn method(&self) -> &str {
        self.first.split(' ').next().unwrap_or_default()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.first);
        for (name, value) in &self.headers {
            if !["content-length", "connection", "transfer-encoding"]
                .contains(&&*name.to_ascii_lowercase())
            {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", self.body.len()));
        [head.as_bytes(), &self.body].concat()
    }

    /// Sends it, with `Connection: close` and its length.
    ///
    /// # Errors
    ///
    /// Those of writing to the stream.
    pub async fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes()).await
    }

    /// Reads one; `None` if the stream ends or fails before its headers do. A response without a
    /// length ends with the stream.
    pub async fn receive(stream: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut message = Self::new(lines.next()?);
        let pair = |line: &str| {
            line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        message.headers = lines.filter_map(pair).collect();
        let mut body = bytes.split_off(end + 4);
        let length = message.header("content-length").and_then(|length| length.parse().ok());
        let is_response = message.first.starts_with("HTTP/");
        let length = length.unwrap_or(if is_response { usize::MAX } else { 0 });
        while body.len() < length && stream.read_buf(&mut body).await.ok()? > 0 {}
        let chunked = message.header("transfer-encoding") == Some("chunked");
        message.body = if chunked { unchunked(&body) } else { body };
        Some(message)
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = std::str::from_utf8(&rest[..end]).ok();
        let length = length.and_then(|text| usize::from_str_radix(text, 16).ok()).unwrap_or(0);
        if length == 0 || rest.len() < end + 4 + length {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
    body
}

/// Sends a request to a port of this machine, and returns the response; `None` if there is none.
pub async fn http_request(port: u16, request: &HttpMessage) -> Option<HttpMessage> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    request.send(&mut stream).await.ok()?;
    HttpMessage::receive(&mut stream).await
}
