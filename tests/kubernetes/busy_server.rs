//! A server with scripted responses, such as those of an API server that is too busy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
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
                let request = request(&mut client).await;
                received.lock().unwrap().push(request);
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

/// Reads one request, with its body.
async fn request(client: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = client.read(&mut bytes).await {
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            break;
        }
    }
    text
}
