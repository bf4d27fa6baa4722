//! A member by the npm package `democracy`, in a process of Node's.

use std::net::SocketAddr;
use std::process::Stdio;

use incumbent_test_support::checkout;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::conformance::soon;
use crate::env::{INTERVAL, TIMEOUT};

const VERSION: &str = "democracy-3.1.3";

pub struct Node {
    pub id: String,
    child: Child,
    orders: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
}

impl Node {
    /// A member that listens, with `more` options.
    pub async fn start(source: SocketAddr, peers: &[SocketAddr], weight: f64, more: Value) -> Self {
        let id = format!("node-{source}");
        let mut options = json!({
            "id": id,
            "source": source.to_string(),
            "peers": peers.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            "weight": weight,
            "interval": INTERVAL.as_millis() as u64,
            "timeout": TIMEOUT.as_millis() as u64,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            options[key] = value.clone();
        }
        let tools = checkout().join(".tools").join(VERSION);
        let mut child = Command::new(tools.join("node"))
            .arg(checkout().join("tests/peer/node/peer.js"))
            .arg(tools.join("node_modules/democracy"))
            .arg(options.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("Node.js and democracy: run scripts/install-democracy.sh");
        let orders = child.stdin.take().expect("its input");
        let events = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut node = Self { id, child, orders, events };
        node.event("listening").await;
        node
    }

    /// Waits for an event, and returns its content. Those before it are skipped.
    pub async fn event(&mut self, name: &str) -> Value {
        self.event_where(name, |_| true).await
    }

    /// Waits for an event that `wanted` takes, and returns its content. Those before it are
    /// skipped.
    pub async fn event_where(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        soon(&format!("{}: {name}", self.id), async {
            loop {
                let event = self.next().await;
                if event["event"] == name && wanted(&event["data"]) {
                    return event["data"].clone();
                }
            }
        })
        .await
    }

    /// The next event, whatever it is.
    pub async fn next(&mut self) -> Value {
        let line = self.events.next_line().await.expect("its output").expect("it continues");
        println!("{}: {line}", self.id);
        serde_json::from_str(&line).expect("a JSON line")
    }

    pub async fn order(&mut self, verb: &str, argument: Value) {
        let line = format!("{}\n", json!([verb, argument]));
        self.orders.write_all(line.as_bytes()).await.expect("it listens");
    }

    /// What it believes now.
    pub async fn look(&mut self) -> Value {
        self.order("look", Value::Null).await;
        self.event("looked").await
    }

    /// Waits until it takes `id` for the only leader.
    pub async fn follows(&mut self, id: &str) {
        soon(&format!("{} follows {id}", self.id), async {
            while self.look().await["leaders"] != json!([id]) {
                tokio::time::sleep(INTERVAL).await;
            }
        })
        .await;
    }

    /// Ends it without a last word.
    pub async fn crash(mut self) {
        self.child.kill().await.expect("it is killed");
    }
}
