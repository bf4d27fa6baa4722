//! A gate in front of a store: it knows every request, answers in the store's place, holds what it is told to, and loses
//! answers.
//!
//! In front of fake-gcs-server it also translates: that program checks conditions in uploads of the JSON API alone, and
//! `object_store` speaks the XML API. The checking is the server's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::raw::{Message, ask};

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It never reaches the store, which seems to answer this.
    Answer(Message),
    /// The store gets it, and its answer is lost.
    LoseAnswer,
    /// The store gets it so much later.
    Late(Duration),
    /// The store's answer has this header as well.
    Adds(&'static str, &'static str),
    /// Nothing comes back until the gate is opened again; then the store gets it.
    Hold,
}

type Matching = (&'static str, Fault);

pub struct Gate {
    pub port: u16,
    inner: Arc<Inner>,
    _tasks: JoinSet<()>,
}

struct Inner {
    server: u16,
    translates: bool,
    /// One each for a request with that method.
    once: Mutex<VecDeque<Matching>>,
    /// For every request with that method.
    always: Mutex<Vec<Matching>>,
    requests: Mutex<Vec<Message>>,
    holds: watch::Sender<bool>,
}

impl Gate {
    pub async fn before(server: u16, translates: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            server,
            translates,
            once: Mutex::default(),
            always: Mutex::default(),
            requests: Mutex::default(),
            holds: watch::Sender::new(true),
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

    /// The next request with this method meets `fault`.
    pub fn once(&self, method: &'static str, fault: Fault) {
        self.inner.once.lock().unwrap().push_back((method, fault));
    }

    /// Every request with this method does.
    pub fn always(&self, method: &'static str, fault: Fault) {
        self.inner.always.lock().unwrap().push((method, fault));
    }

    /// Nothing more happens to requests, and those that are held go on.
    pub fn open(&self) {
        self.inner.once.lock().unwrap().clear();
        self.inner.always.lock().unwrap().clear();
        self.inner.holds.send_replace(false);
        self.inner.holds.send_replace(true);
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Message> {
        self.inner.requests.lock().unwrap().clone()
    }

    /// How many of the faults for one request each nobody has met.
    pub fn left(&self) -> usize {
        self.inner.once.lock().unwrap().len()
    }
}

/// An answer with a code and a message, as S3 gives it.
pub fn refusal(status: &str, code: &str, message: &str) -> Message {
    let mut answer = Message::new(format!("HTTP/1.1 {status}"));
    answer.body = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>").into();
    answer.with("content-type", "application/xml")
}

impl Inner {
    fn fault(&self, method: &str) -> Option<Fault> {
        let mut once = self.once.lock().unwrap();
        if let Some(at) = once.iter().position(|(of, _)| *of == method) {
            return once.remove(at).map(|(_, fault)| fault);
        }
        let always = self.always.lock().unwrap();
        always.iter().find(|(of, _)| *of == method).map(|(_, fault)| fault.clone())
    }

    async fn serve(&self, mut client: TcpStream) {
        let Some(request) = Message::receive(&mut client).await else { return };
        self.requests.lock().unwrap().push(request.clone());
        let fault = self.fault(request.method());
        let answer = match fault {
            Some(Fault::Answer(answer)) => Some(answer),
            Some(Fault::Hold) => {
                let mut holds = self.holds.subscribe();
                holds.mark_unchanged();
                let _ = holds.changed().await;
                self.forward(request).await
            }
            Some(Fault::Late(by)) => {
                tokio::time::sleep(by).await;
                self.forward(request).await
            }
            Some(Fault::Adds(name, value)) => {
                self.forward(request).await.map(|answer| answer.with(name, value))
            }
            Some(Fault::LoseAnswer) => {
                self.forward(request).await;
                None
            }
            None => self.forward(request).await,
        };
        if let Some(answer) = answer {
            let _ = answer.send(&mut client).await;
        }
    }

    async fn forward(&self, request: Message) -> Option<Message> {
        if !self.translates {
            return ask(self.server, &request).await; // signed for the host that it names
        }
        let host = format!("127.0.0.1:{}", self.server);
        if request.method() != "PUT" {
            return ask(self.server, &request.with("host", host)).await;
        }
        let (bucket, object) = request.second().trim_start_matches('/').split_once('/')?;
        let condition = request.header("x-goog-if-generation-match");
        let condition =
            condition.map_or(String::new(), |number| format!("&ifGenerationMatch={number}"));
        let object = object.replace('/', "%2F");
        let mut upload = Message::new(format!(
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
        let answer = ask(self.server, &upload).await?;
        if answer.second() != "200" {
            return Some(refusal(&answer.first[9..], "Refused", "by fake-gcs-server"));
        }
        let written: Value = serde_json::from_slice(&answer.body).ok()?;
        let generation = written["generation"].as_str()?;
        Some(
            Message::new("HTTP/1.1 200 OK")
                .with("etag", format!("\"{}\"", written["etag"].as_str().unwrap_or("none")))
                .with("x-goog-generation", generation),
        )
    }
}
