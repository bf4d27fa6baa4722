//! HTTP over one connection a request, without keeping anything: for a test's own requests, and for its gate.

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request or an answer.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// As in `PUT /bucket/object HTTP/1.1`, or `HTTP/1.1 200 OK`.
    pub first: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Message {
    pub fn new(first: impl Into<String>) -> Self {
        Self { first: first.into(), ..Self::default() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// The same with a header set.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The second word: the target of a request, the status of an answer.
    pub fn second(&self) -> &str {
        self.first.split(' ').nth(1).unwrap_or_default()
    }

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

    pub async fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes()).await
    }

    /// Reads one; `None` where the other end has nothing to say. An answer without a length lasts until the end.
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
        let is_answer = message.first.starts_with("HTTP/");
        let length = length.unwrap_or(if is_answer { usize::MAX } else { 0 });
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

/// One request to a port of this machine.
pub async fn ask(port: u16, request: &Message) -> Option<Message> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    request.send(&mut stream).await.ok()?;
    Message::receive(&mut stream).await
}

/// The transport of an administrator's `object_store`.
#[derive(Debug)]
pub struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Self))
    }
}

impl HttpService for Plain {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
            let mut message = Message::new(format!("{} {target} HTTP/1.1", parts.method));
            for (name, value) in &parts.headers {
                message = message.with(name.as_str(), value.to_str().expect("a plain header"));
            }
            let port = parts.uri.port_u16().expect("a port");
            message = message.with("host", parts.uri.authority().expect("a host").as_str());
            message.body = body.collect().await?.to_bytes().to_vec();
            let lost = || {
                let none = io::Error::other("no answer");
                HttpError::new(HttpErrorKind::Interrupted, none)
            };
            let answer = ask(port, &message).await.ok_or_else(lost)?;
            let mut response = http::Response::builder().status(answer.second());
            for (name, value) in &answer.headers {
                response = response.header(name, value);
            }
            let never = |error: std::convert::Infallible| match error {};
            let body = Full::new(Bytes::from(answer.body)).map_err(never);
            Ok(response.body(HttpResponseBody::new(body)).expect("an answer"))
        })
    }
}
