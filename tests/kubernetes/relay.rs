//! Between one candidate of client-go and the API server, in plain HTTP: it can cut that one off
//! alone, in more than one way.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::env::{Kind, TestEnv};

/// What becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They are passed on, and answered.
    Passes,
    /// Nothing is passed on or answered.
    Cut,
    /// Renewals are refused. A release is passed on, and its answer does not come.
    ReleasesOnly,
    /// The first create is held up until [`Relay::lands`]; from then on everything passes.
    HoldsCreate,
    /// The first write is held up until [`Relay::lands`]; from then on everything passes.
    HoldsWrite,
}

pub struct Relay {
    pub port: u16,
    way: watch::Sender<Way>,
    held: Arc<Notify>,
    landed: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// `identity`: of the candidate, by which its renewals are known.
    pub async fn start(server: kube::Client, identity: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let way = watch::Sender::new(Way::Passes);
        let (held, landed) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let shared = (way.clone(), Arc::clone(&held), Arc::clone(&landed));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, server.clone(), identity, shared.clone()));
            }
        });
        Self { port, way, held, landed, _tasks: tasks }
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Passes on what was held up, and waits until the server has answered it.
    pub async fn lands(&self) {
        self.held.notify_one();
        self.landed.notified().await;
    }

    /// A kubeconfig of the server behind this relay.
    pub fn kubeconfig<K: Kind>(&self, env: &TestEnv<K>) -> PathBuf {
        let file = env.server.file(&format!("{}-relay.kubeconfig", env.namespace));
        let server = format!("http://127.0.0.1:{}", self.port);
        let config = json!({
            "apiVersion": "v1", "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": server } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "x",
        });
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }
}

async fn relay(
    mut client: TcpStream,
    server: kube::Client,
    identity: &'static str,
    (way, held, landed): (watch::Sender<Way>, Arc<Notify>, Arc<Notify>),
) {
    let Some((head, body)) = request(&mut client).await else { return };
    let renews = body.windows(identity.len()).any(|part| part == identity.as_bytes());
    let is_write = !head.starts_with("GET ");
    let now = *way.borrow();
    match now {
        Way::Cut => return hang(client).await,
        Way::ReleasesOnly if is_write && renews => {
            let refused = b"HTTP/1.1 500 no\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = client.write_all(refused).await;
            return;
        }
        Way::HoldsCreate if head.starts_with("POST ") && head.contains("/leases") => {
            way.send_replace(Way::Passes);
            held.notified().await;
        }
        Way::HoldsWrite if is_write => {
            way.send_replace(Way::Passes);
            held.notified().await;
        }
        Way::Passes | Way::ReleasesOnly | Way::HoldsCreate | Way::HoldsWrite => {}
    }
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let mut passed = http::Request::builder().method(method).uri(path);
    for line in head.lines().skip(1) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if ["accept", "content-type"].contains(&&*name.to_ascii_lowercase()) {
            passed = passed.header(name, value);
        }
    }
    let Ok(answer) = server.send(passed.body(Body::from(body)).unwrap()).await else { return };
    if [Way::HoldsCreate, Way::HoldsWrite].contains(&now) && is_write {
        landed.notify_one();
    }
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return };
    let body = body.to_bytes();
    if now == Way::ReleasesOnly && is_write {
        return hang(client).await;
    }
    let kind = parts.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        parts.status.as_u16(),
        body.len()
    );
    let _ = client.write_all(head.as_bytes()).await;
    let _ = client.write_all(&body).await;
}

/// Sends no response for longer than any client waits.
async fn hang(client: TcpStream) {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    drop(client);
}

async fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut all, mut bytes) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = client.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
        all.extend_from_slice(bytes.get(..read)?);
        let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(all.get(..end)?).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
        });
        let body = all.get(end + 4..)?;
        if body.len() >= length.unwrap_or(0) {
            return Some((head, body.to_vec()));
        }
    }
}
