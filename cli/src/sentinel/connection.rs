//! One process that registers its terms.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent::protocol::RegisteredTerm;
use incumbent::sentinel::{
    HEARTBEAT, SentinelMessage, SentinelReply, VERSION, encode, read_message,
};
use rustix::process::{Pid, geteuid};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::registry::Registry;
use crate::process::{WatchedProcess, tree};

/// How long a process may take to introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to read on after the death of the process: what it sent is here already.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// How many replies may wait for a process that does not read.
const REPLIES: usize = 64;

/// What all connections of a sentinel share.
#[derive(Clone)]
pub struct Shared {
    pub registry: Arc<Registry>,
    /// Whether what a process leaves behind continues its work: then its terms are kept until
    /// the end of the program. Else its work dies with it.
    pub wraps: bool,
    /// How long to try to release.
    pub limit: Duration,
}

/// Serves a connection until its process is dead and its entries are released or kept. `refused`:
/// why it is served no more than that.
pub async fn serve(stream: UnixStream, shared: Shared, refused: Option<String>) {
    if let Err(why) = serve_process(stream, shared, refused).await {
        debug!(%why, "connection ended");
    }
}

async fn serve_process(
    stream: UnixStream,
    shared: Shared,
    refused: Option<String>,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let pid = peer.pid().and_then(Pid::from_raw);
    let (reader, mut writer) = stream.into_split();
    if peer.uid() != geteuid().as_raw() {
        let reason = "it serves its own user only: start it as the user of the program";
        return refuse(&mut writer, reason.to_owned()).await;
    }
    if let Some(reason) = refused {
        return refuse(&mut writer, reason).await;
    }
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let first = timeout(HELLO_TIMEOUT, read_message(&mut reader, &mut line)).await??;
    let process = match (first, pid) {
        (SentinelMessage::Status, _) => {
            return writer.write_all(&encode(&status(&shared.registry).await)).await;
        }
        (SentinelMessage::Hello { version, .. }, _) if version != VERSION => {
            let reason = format!("version {version} of its messages is unknown: use one release");
            return refuse(&mut writer, reason).await;
        }
        (SentinelMessage::Hello { started, .. }, Some(pid)) => {
            match identify(pid, started, shared.wraps) {
                Ok(process) => process,
                Err(reason) => return refuse(&mut writer, reason).await,
            }
        }
        (SentinelMessage::Hello { .. }, None) => {
            let reason = "the process is in another PID namespace: share it, as by \
                          shareProcessNamespace of a pod";
            return refuse(&mut writer, reason.to_owned()).await;
        }
        _ => return refuse(&mut writer, "the first message must be hello".to_owned()).await,
    };
    static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let (replies, queue) = mpsc::channel(REPLIES);
    let writer = Writer::new(writer, queue);
    let mut connection = Connection { number, shared, reader, line, replies, writer };
    let dead = connection.until_dead(&process).await;
    let Shared { registry, wraps, limit } = connection.shared.clone();
    // A dead process takes no place of a living one.
    drop((connection, process));
    let terms = registry.take(number);
    dead?;
    match wraps {
        true => registry.keep(terms),
        false => registry.release(terms, limit).await,
    }
    Ok(())
}

/// The process behind a connection, which must be one of the tree, if `wraps`.
fn identify(pid: Pid, started: u64, wraps: bool) -> Result<WatchedProcess, String> {
    let process = WatchedProcess::open(pid, started)
        .map_err(|why| format!("process {} cannot be watched: {why}", pid.as_raw_pid()))?;
    match wraps && !tree::is_descendant(pid) {
        true => Err(format!("process {} was not started here", pid.as_raw_pid())),
        false => Ok(process),
    }
}

async fn refuse(writer: &mut OwnedWriteHalf, reason: String) -> io::Result<()> {
    warn!(%reason, "refused a process");
    writer.write_all(&encode(&SentinelReply::Refused { reason })).await
}

async fn status(registry: &Registry) -> SentinelReply {
    let (processes, terms) = registry.counts();
    SentinelReply::Status { processes, terms, problem: registry.check_lock().await.err() }
}

struct Connection {
    number: u64,
    shared: Shared,
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
    replies: mpsc::Sender<SentinelReply>,
    writer: Writer,
}

impl Connection {
    /// Takes what the process registers, until it is dead.
    async fn until_dead(&mut self, process: &WatchedProcess) -> io::Result<()> {
        let mut heartbeat = interval(HEARTBEAT); // the first one at once
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                message = read_message(&mut self.reader, &mut self.line) => {
                    if message.and_then(|message| self.take(&message)).is_err() {
                        // A closed connection proves nothing. A living process connects again.
                        return process.dead_soon().await;
                    }
                }
                dead = process.dead() => {
                    dead?;
                    break;
                }
                // The reader notices an error.
                _ = self.writer.write() => {}
                _ = heartbeat.tick() => {
                    let _ = self.replies.try_send(SentinelReply::Watching { version: VERSION });
                }
            }
        }
        let drain = async {
            while let Ok(message) = read_message(&mut self.reader, &mut self.line).await
                && self.take(&message).is_ok()
            {}
        };
        let _ = timeout(DRAIN_TIMEOUT, drain).await; // a child may have inherited the connection
        Ok(())
    }

    fn take(&mut self, message: &SentinelMessage) -> io::Result<()> {
        let began = self.shared.registry.on_message(self.number, message);
        if let Some((election, term)) = began.map_err(io::Error::other)? {
            self.check(election, term);
        }
        Ok(())
    }

    /// Checks in the background that the term could be released, and reports a problem.
    fn check(&self, election: Arc<str>, term: RegisteredTerm) {
        let (registry, replies) = (Arc::clone(&self.shared.registry), self.replies.clone());
        let number = self.number;
        tokio::spawn(async move {
            if let Err(reason) = registry.check(number, &election, term).await {
                let _ = replies.try_send(SentinelReply::Unable { election, reason });
            }
        });
    }
}

/// Writes replies as far as the process reads them.
struct Writer {
    /// `None` after an error.
    stream: Option<OwnedWriteHalf>,
    queue: mpsc::Receiver<SentinelReply>,
    out: Vec<u8>,
}

impl Writer {
    fn new(stream: OwnedWriteHalf, queue: mpsc::Receiver<SentinelReply>) -> Self {
        Self { stream: Some(stream), queue, out: Vec::new() }
    }

    /// Writes something. Waits forever after an error. Cancel safe.
    async fn write(&mut self) {
        if self.out.is_empty() {
            match self.queue.recv().await {
                Some(reply) => self.out = encode(&reply),
                None => return pending().await,
            }
        }
        let Some(stream) = &mut self.stream else { return pending().await };
        match stream.write(&self.out).await {
            Ok(written) => drop(self.out.drain(..written)),
            Err(_) => self.stream = None,
        }
    }
}
