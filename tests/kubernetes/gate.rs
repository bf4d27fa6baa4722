//! A TCP gate in front of the API server, which can let its connections fall silent, and a server that is too busy.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections. Dropping it closes them.
pub struct Gate {
    pub port: u16,
    /// Connections that were accepted before this many silences pass nothing any more.
    silences: watch::Sender<u64>,
    _tasks: JoinSet<()>,
}

impl Gate {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let own_port = listener.local_addr().unwrap().port();
        let silences = watch::Sender::new(0);
        let told = silences.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = SocketAddr::from(([127, 0, 0, 1], port));
                connections.spawn(forward(client, server, told.subscribe()));
            }
        });
        Self { port: own_port, silences, _tasks: tasks }
    }

    /// Whatever is connected now stays connected, and hears nothing any more. New connections are served.
    pub fn silence(&self) {
        self.silences.send_modify(|silences| *silences += 1);
    }
}

async fn forward(client: TcpStream, server: SocketAddr, mut silences: watch::Receiver<u64>) {
    let since = *silences.borrow_and_update();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let passed = async {
        let there = tokio::io::copy(&mut from_client, &mut to_server);
        let back = tokio::io::copy(&mut from_server, &mut to_client);
        let _ = tokio::join!(there, back);
    };
    tokio::select! {
        () = passed => return,
        _ = silences.wait_for(|now| *now > since) => {}
    }
    std::future::pending::<()>().await; // both ends open
}

/// Answers requests as it is told, and each on a connection of its own.
pub struct Busy {
    pub port: u16,
    answers: Arc<Mutex<VecDeque<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Busy {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let answers = Arc::<Mutex<VecDeque<String>>>::default();
        let given = Arc::clone(&answers);
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let request = request(&mut client).await;
                heard.lock().unwrap().push(request);
                let Some(answer) = given.lock().unwrap().pop_front() else { continue };
                let _ = client.write_all(answer.as_bytes()).await;
                let _ = client.shutdown().await;
            }
        });
        Self { port, answers, asked, _tasks: tasks }
    }

    pub fn answers(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        self.answers.lock().unwrap().push_back(format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        ));
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// How many answers nobody has asked for.
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
