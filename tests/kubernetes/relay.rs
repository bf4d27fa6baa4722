//! Between one candidate of client-go and the API server, in plain HTTP: it can cut that one off
//! alone, in more than one way.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use incumbent_test_support::HttpMessage;
use kube::client::Body;
use serde_json::json;
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
    /// The first request is not passed on or answered; from then on everything passes.
    LosesFirst,
    /// The first create is held up until [`Relay::lands`]; from then on everything passes.
    HoldsCreate,
    /// The first write is held up until [`Relay::lands`]; from then on everything passes.
    HoldsWrite,
}

pub struct Relay {
    pub port: u16,
    way: watch::Sender<Way>,
    holds: Holds,
    _tasks: JoinSet<()>,
}

/// What becomes of a request that is held up.
#[derive(Default, Clone)]
struct Holds {
    /// It has come.
    held: Arc<Notify>,
    /// It may go on.
    released: Arc<Notify>,
    /// The server has answered it.
    landed: Arc<Notify>,
}

impl Holds {
    async fn hold(&self) {
        self.held.notify_one();
        self.released.notified().await;
    }
}

impl Relay {
    /// `identity`: of the candidate, by which its renewals are known.
    pub async fn start(server: kube::Client, identity: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().unwrap().port();
        let way = watch::Sender::new(Way::Passes);
        let holds = Holds::default();
        let shared = (way.clone(), holds.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, server.clone(), identity, shared.clone()));
            }
        });
        Self { port, way, holds, _tasks: tasks }
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Waits until a request is held up.
    pub async fn holds(&self) {
        self.holds.held.notified().await;
    }

    /// Passes on what was held up, and waits until the server has answered it.
    pub async fn lands(&self) {
        self.holds.released.notify_one();
        self.holds.landed.notified().await;
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
    (way, holds): (watch::Sender<Way>, Holds),
) {
    let Some(request) = HttpMessage::receive(&mut client).await else { return };
    let renews = request.body.windows(identity.len()).any(|part| part == identity.as_bytes());
    let is_write = request.method() != "GET";
    let now = *way.borrow();
    match now {
        Way::Cut => return hang(client).await,
        Way::LosesFirst => {
            way.send_replace(Way::Passes);
            return hang(client).await;
        }
        Way::ReleasesOnly if is_write && renews => {
            let _ = HttpMessage::new("HTTP/1.1 500 no").send(&mut client).await;
            return;
        }
        Way::HoldsCreate if request.method() == "POST" && request.second().contains("/leases") => {
            way.send_replace(Way::Passes);
            holds.hold().await;
        }
        Way::HoldsWrite if is_write => {
            way.send_replace(Way::Passes);
            holds.hold().await;
        }
        Way::Passes | Way::ReleasesOnly | Way::HoldsCreate | Way::HoldsWrite => {}
    }
    let mut passed = http::Request::builder().method(request.method()).uri(request.second());
    for name in ["accept", "content-type"] {
        if let Some(value) = request.header(name) {
            passed = passed.header(name, value);
        }
    }
    let passed = passed.body(Body::from(request.body)).unwrap();
    let Ok(answer) = server.send(passed).await else { return };
    if [Way::HoldsCreate, Way::HoldsWrite].contains(&now) && is_write {
        holds.landed.notify_one();
    }
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return };
    let body = body.to_bytes();
    if now == Way::ReleasesOnly && is_write {
        return hang(client).await;
    }
    let kind = parts.headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let mut passed = HttpMessage::new(format!("HTTP/1.1 {} x", parts.status.as_u16()));
    passed.body = body.to_vec();
    let _ = passed.with("content-type", kind).send(&mut client).await;
}

/// Sends no response for longer than any client waits.
async fn hang(client: TcpStream) {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    drop(client);
}
