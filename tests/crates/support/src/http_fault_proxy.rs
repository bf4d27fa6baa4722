//! An HTTP proxy in front of an object store that records requests, responds in the store's place,
//! delays, holds and loses messages.
//!
//! In front of fake-gcs-server it also translates: that program checks conditions in uploads of the
//! JSON API alone, and `object_store` uses the XML API. The server still checks the conditions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::http_message::{HttpMessage, http_request};

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum HttpFault {
    /// The proxy responds with this, and the request does not reach the store.
    Respond(HttpMessage),
    /// The store gets the request, and its response is lost.
    LoseResponse,
    /// The store gets the request so much later.
    Delay(Duration),
    /// The store's response gets this header as well.
    AddHeader(&'static str, &'static str),
    /// The store never gets the request, and its connection stays open.
    Hold,
}

/// A method, and what happens to a request with it.
type Matching = (&'static str, HttpFault);

/// Forwards requests to a store, except for the faults that a test sets. Dropping it closes its
/// connections.
#[derive(Debug)]
pub struct HttpFaultProxy {
    port: u16,
    inner: Arc<Inner>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Inner {
    server: u16,
    translates: bool,
    /// Each for one request with that method.
    once: Mutex<VecDeque<Matching>>,
    /// For every request with that method.
    always: Mutex<Vec<Matching>>,
    requests: Mutex<Vec<HttpMessage>>,
}

impl HttpFaultProxy {
    /// A proxy in front of the store on this port; `translates` for fake-gcs-server.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start(server: u16, translates: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("the address of a bound socket").port();
        let inner = Arc::new(Inner {
            server,
            translates,
            once: Mutex::default(),
            always: Mutex::default(),
            requests: Mutex::default(),
        });
        let passing = Arc::clone(&inner);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let inner = Arc::clone(&passing);
                connections.spawn(async move { inner.serve(client).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, inner, _tasks: tasks }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Applies `fault` to the next request with this method.
    pub fn once(&self, method: &'static str, fault: HttpFault) {
        self.inner.once.lock().unwrap_or_else(PoisonError::into_inner).push_back((method, fault));
    }

    /// Applies `fault` to every request with this method.
    pub fn always(&self, method: &'static str, fault: HttpFault) {
        self.inner.always.lock().unwrap_or_else(PoisonError::into_inner).push((method, fault));
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<HttpMessage> {
        self.inner.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of faults for a single request that were not applied yet.
    pub fn pending_faults(&self) -> usize {
        self.inner.once.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A response with an error code and a message, as S3 sends it.
pub fn s3_error(status: &str, code: &str, message: &str) -> HttpMessage {
    let mut response = HttpMessage::new(format!("HTTP/1.1 {status}"));
    response.body =
        format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>").into();
    response.with("content-type", "application/xml")
}

impl Inner {
    fn fault(&self, method: &str) -> Option<HttpFault> {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = once.iter().position(|(of, _)| *of == method) {
            return once.remove(at).map(|(_, fault)| fault);
        }
        let always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        always.iter().find(|(of, _)| *of == method).map(|(_, fault)| fault.clone())
    }

    async fn serve(&self, mut client: TcpStream) {
        let Some(request) = HttpMessage::receive(&mut client).await else { return };
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let fault = self.fault(request.method());
        let response = match fault {
            Some(HttpFault::Respond(response)) => Some(response),
            Some(HttpFault::Hold) => std::future::pending().await,
            Some(HttpFault::Delay(by)) => {
                tokio::time::sleep(by).await;
                self.forward(request).await
            }
            Some(HttpFault::AddHeader(name, value)) => {
                self.forward(request).await.map(|response| response.with(name, value))
            }
            Some(HttpFault::LoseResponse) => {
                self.forward(request).await;
                None
            }
            None => self.forward(request).await,
        };
        if let Some(response) = response {
            let _ = response.send(&mut client).await;
        }
    }

    async fn forward(&self, request: HttpMessage) -> Option<HttpMessage> {
        if !self.translates {
            return http_request(self.server, &request).await; // signed for the host that it names
        }
        let host = format!("127.0.0.1:{}", self.server);
        if request.method() != "PUT" {
            return http_request(self.server, &request.with("host", host)).await;
        }
        let (bucket, object) = request.second().trim_start_matches('/').split_once('/')?;
        let condition = request.header("x-goog-if-generation-match");
        let condition =
            condition.map_or(String::new(), |number| format!("&ifGenerationMatch={number}"));
        let object = object.replace('/', "%2F");
        let mut upload = HttpMessage::new(format!(
            "POST /upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={object}{condition} HTTP/1.1"
        ))
        .with("host", host)
        .with("content-type", "multipart/related; boundary=cut");
        upload.body = [
            b"--cut\r\ncontent-type: application/json\r\n\r\n{}\r\n--cut\r\ncontent-type: application/octet-stream\r\n\r\n",
            &*request.body,
            b"\r\n--cut--\r\n",
        ]
        .concat();
        let response = http_request(self.server, &upload).await?;
        if response.second() != "200" {
            return Some(s3_error(&response.first[9..], "Refused", "by fake-gcs-server"));
        }
        let written: Value = serde_json::from_slice(&response.body).ok()?;
        let generation = written["generation"].as_str()?;
        Some(
            HttpMessage::new("HTTP/1.1 200 OK")
                .with("etag", format!("\"{}\"", written["etag"].as_str().unwrap_or("none")))
                .with("x-goog-generation", generation),
        )
    }
}
