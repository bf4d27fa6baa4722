//! `incumbent proxy`: connections to the leader, through changes of the leader.
//!
//! Reads and writes of the tests block: what leads or serves meanwhile has threads of its own.

mod connections;
mod follow;
mod refusals;
mod worker;

use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use incumbent::Election;
use incumbent_test_support::eventually;

use crate::env::{Candidate, TIMEOUT, TestEnv, incumbent};
use crate::http::{free_port, get};

/// For a connection that is to reach a leader: on a busy machine a proxy may learn of it late.
const HOLD: [&str; 2] = ["--hold", "1h"];

/// A running proxy of `my_app`.
struct Proxy {
    program: Candidate,
    /// Where it listens.
    address: String,
    http: String,
}

impl Proxy {
    /// On the bucket of this server.
    fn start(env: &TestEnv, flags: &[&str]) -> Self {
        Self::of_lock(&["--server", &env.server.url()], flags)
    }

    fn of_lock(lock: &[&str], flags: &[&str]) -> Self {
        Self::of_command(incumbent(), lock, flags)
    }

    fn of_command(mut command: Command, lock: &[&str], flags: &[&str]) -> Self {
        let ((port, address), (http_port, http)) = (free_port(), free_port());
        command.args(["proxy", "my_app", "--listen", &port, "--http", &http_port]);
        command.args(lock).args(flags);
        Self { program: Candidate::start(command), address, http }
    }

    /// Waits until it listens, and the lock has responded.
    async fn ready(&self) {
        eventually("the lock has responded", async || {
            get(&self.http, "/readyz").filter(|(status, _)| *status == 200)
        })
        .await;
    }

    async fn connect(&self) -> TcpStream {
        let connect = async || connected(TcpStream::connect(&self.address)).ok();
        eventually("it listens", connect).await
    }

    /// The value of a metric, the sum of all labels: its name, or the beginning of it and of its
    /// labels behind the election.
    fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = get(&self.http, "/metrics")?;
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values = lines.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let values = values.collect::<Option<Vec<_>>>().filter(|values| !values.is_empty())?;
        Some(values.iter().sum())
    }

    async fn wait_for_metric(&self, name: &str, value: f64) {
        eventually(name, async || self.metric(name).filter(|now| *now == value)).await;
    }
}

/// No read and no write lasts forever.
fn connected(stream: io::Result<TcpStream>) -> io::Result<TcpStream> {
    let stream = stream?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// A leader in this process, and where it listens.
async fn lead(env: &TestEnv) -> (Election, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (lead_at(env, &address).await, listener)
}

/// A leader in this process that advertises this address.
async fn lead_at(env: &TestEnv, address: &str) -> Election {
    let lock = env.bucket().await.lock();
    let election = incumbent::new_election("my_app", lock).advertise(address);
    election.identity("here").start().expect("a start")
}
