//! A server with scripted responses, such as those of an API server that is too busy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use incumbent_test_support::HttpMessage;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Sends one scripted response per request, each on a connection of its own.
pub struct BusyServer {
    pub port: u16,
    answers: Arc<Mutex<VecDeque<String>>>,
    requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl BusyServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::<Mutex<VecDeque<String>>>::default();
        let given = Arc::clone(&answers);
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let Some(request) = HttpMessage::receive(&mut client).await else { continue };
                let head = request.headers.iter().map(|(name, value)| format!("{name}: {value}"));
                let lines = [vec![request.first.clone()], head.collect()].concat();
                let body = String::from_utf8_lossy(&request.body);
                received.lock().unwrap().push(format!("{}\r\n\r\n{body}", lines.join("\r\n")));
                let Some(answer) = given.lock().unwrap().pop_front() else { continue };
                let _ = client.write_all(answer.as_bytes()).await;
                let _ = client.shutdown().await;
            }
        });
        Self { port, answers, requests, _tasks: tasks }
    }

    pub fn answers(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        self.answers.lock().unwrap().push_back(format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        ));
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The number of responses that were not requested yet.
    pub fn left(&self) -> usize {
        self.answers.lock().unwrap().len()
    }
}
