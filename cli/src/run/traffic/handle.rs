//! The candidate's end of the channel to its `run-traffic` process.

use std::future::pending;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::sentinel::ENVIRONMENT;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::messages::{ARGUMENTS, SUBCOMMAND, TrafficEvent, TrafficRequest};
use crate::candidate::NOTIFY_SOCKET;
use crate::error::{CliError, Code};
use crate::process::reaper::OURSELVES;
use crate::process::{StopTimes, Unsent, send, sleep_until};
use crate::run::grace::late_margin;

/// How long the checks at the start may take.
const START: Duration = Duration::from_secs(10);

/// A process that directs requests to this host, and withdraws when the term ends.
pub struct TrafficHandle {
    arguments: String,
    lease: Duration,
    marker: PathBuf,
    running: Option<Running>,
    /// What is not known to be withdrawn.
    term: Option<DirectedTerm>,
    moves_addresses: bool,
}

#[derive(Debug, Clone, Copy)]
struct DirectedTerm {
    token: u64,
    /// Whether a successor may not add the addresses yet.
    has_addresses: bool,
    /// The schedule that the process has acknowledged, and the last one that was sent.
    acknowledged: StopTimes,
    sent: StopTimes,
}

struct Running {
    /// It ends when the channel is closed, once all is withdrawn.
    process: Child,
    requests: StdStream,
    events: Lines<BufReader<UnixStream>>,
}

/// A process that is not ready. It is killed when this is dropped: what it still cleans could be of
/// a later term.
struct Starting(Option<Running>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(running) = &mut self.0 {
            let _ = running.process.start_kill(); // it may have ended
        }
    }
}

impl TrafficHandle {
    /// Starts the process, which checks whether it could direct requests here. `arguments`: those
    /// of this process, as JSON. `marker`: a file that is there while requests may come here.
    pub async fn start(
        arguments: String,
        lease: Duration,
        marker: PathBuf,
        moves_addresses: bool,
    ) -> Result<Self, CliError> {
        let (running, term) = (None, None);
        let mut handle = Self { arguments, lease, marker, running, term, moves_addresses };
        match timeout(START, handle.spawn(false)).await {
            Ok(Ok(())) => Ok(handle),
            Ok(Err(why)) => Err(CliError::new(Code::Failed, why)),
            Err(_) => {
                let why = format!("requests cannot be directed here: no result within {START:?}");
                Err(CliError::new(Code::Failed, why))
            }
        }
    }

    /// Starts a process that replaces one that is gone, and removes what that one left.
    /// `must_clean`: fails if it could not.
    async fn spawn(&mut self, must_clean: bool) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("cannot start run-traffic: {error}");
        let (ours, theirs) = StdStream::pair().map_err(cannot)?;
        let mut command = std::process::Command::new(OURSELVES);
        command
            .arg0("incumbent")
            .args([SUBCOMMAND, &self.lease.as_millis().to_string()])
            .arg(&self.marker)
            .env(ARGUMENTS, &self.arguments)
            .env_remove(NOTIFY_SOCKET)
            .env_remove(ENVIRONMENT)
            .process_group(0)
            .stdout(Stdio::null())
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let process = Command::from(command).spawn().map_err(cannot)?;
        ours.set_nonblocking(true).map_err(cannot)?;
        let events = ours.try_clone().and_then(UnixStream::from_std).map_err(cannot)?;
        let events = BufReader::new(events).lines();
        let mut starting = Starting(Some(Running { process, requests: ours, events }));
        loop {
            let event = match &mut starting.0 {
                Some(running) => running.event().await,
                None => None,
            };
            match event {
                Some(TrafficEvent::Cleaned) => {
                    if let Some(term) = &mut self.term {
                        term.has_addresses = false;
                    }
                }
                Some(TrafficEvent::Ready) if !(must_clean && self.has_addresses()) => {
                    self.running = starting.0.take();
                    self.term = None;
                    return Ok(());
                }
                Some(TrafficEvent::Failed { why, .. }) => return Err(why),
                Some(_) => {
                    return Err("another process has the address, and has not ended".to_owned());
                }
                None => return Err("run-traffic ended".to_owned()),
            }
        }
    }

    /// Has the process direct requests here: `directed` waits for it. After an error, or if that is
    /// dropped, `withdraw` is to be called.
    pub async fn direct(&mut self, token: u64, until: StopTimes) -> Result<(), String> {
        if self.term.is_some() {
            self.kill(); // it did not withdraw what is of an earlier term
        }
        let request = TrafficRequest::Direct { token, until };
        if self.running.as_ref().is_none_or(|running| running.request(&request).is_err()) {
            tokio::select! {
                started = self.spawn(false) => started?, // it was killed
                () = sleep_until(until.ask_at) => return Err("run-traffic does not start".to_owned()),
            }
            self.running.as_ref().map_or(Ok(()), |running| running.request(&request))?;
        }
        let has_addresses = self.moves_addresses;
        self.term = Some(DirectedTerm { token, has_addresses, acknowledged: until, sent: until });
        Ok(())
    }

    /// Waits until requests are directed here. Cancel safe.
    pub async fn directed(&mut self) -> Result<(), String> {
        let Some(term) = self.term else { return Err("run-traffic ended".to_owned()) };
        let late = term.acknowledged.kill_at + late_margin(self.lease);
        loop {
            match self.event(term.token, Some(late)).await? {
                TrafficEvent::Directed { .. } => {
                    if let Some(term) = &mut self.term {
                        term.acknowledged = term.sent;
                    }
                    return Ok(());
                }
                TrafficEvent::Failed { why, .. } => return Err(why),
                _ => {}
            }
        }
    }

    /// Has it continue, as the term was renewed.
    pub fn extend(&mut self, until: StopTimes) {
        if let (Some(running), Some(term)) = (&self.running, &mut self.term)
            && running.request(&TrafficRequest::Extend(until)).is_ok()
        {
            term.sent = until;
        }
    }

    /// Has it let no new requests come here.
    pub fn drain(&mut self) {
        if let Some(running) = &self.running {
            let _ = running.request(&TrafficRequest::Drain); // an error: `failed` returns
        }
    }

    /// Waits until requests no longer come here although the term continues: why. Cancel safe.
    pub async fn failed(&mut self) -> String {
        loop {
            let Some(term) = self.term else { return pending().await };
            let late = term.acknowledged.ask_at + late_margin(self.lease);
            match self.event(term.token, Some(late)).await {
                Ok(TrafficEvent::Extended { .. }) => {
                    if let Some(term) = &mut self.term {
                        term.acknowledged = term.sent;
                    }
                }
                Ok(TrafficEvent::Failed { why, .. }) | Err(why) => return why,
                Ok(_) => {}
            }
        }
    }

    /// Withdraws, and waits for it until `deadline`. Returns whether it is done.
    pub async fn withdraw(&mut self, deadline: Instant) -> bool {
        let Some(token) = self.term.map(|term| term.token) else { return true };
        let withdrawn = async {
            if let Some(running) = &self.running
                && running.request(&TrafficRequest::Withdraw).is_ok()
            {
                while let Ok(event) = self.event(token, None).await {
                    match event {
                        TrafficEvent::AddressesRemoved { .. } => {
                            if let Some(term) = &mut self.term {
                                term.has_addresses = false;
                            }
                        }
                        TrafficEvent::Withdrawn { .. } => {
                            self.term = None;
                            return Ok(());
                        }
                        _ => {}
                    }
                }
            }
            self.spawn(self.has_addresses()).await // it was killed: a new one removes what it has left
        };
        tokio::select! {
            biased;
            done = withdrawn => done.is_ok_and(|()| true),
            () = sleep_until(deadline) => false,
        }
    }

    /// Kills a process that does not respond: `withdraw` then starts another one.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.process.start_kill(); // it may have ended
        }
    }

    /// Whether a successor may not add the addresses yet.
    pub fn has_addresses(&self) -> bool {
        self.term.is_some_and(|term| term.has_addresses)
    }

    /// The next event of this term, until `late`. A process that does not respond is killed. Cancel
    /// safe.
    async fn event(&mut self, token: u64, late: Option<Instant>) -> Result<TrafficEvent, String> {
        let Some(running) = &mut self.running else {
            return Err("run-traffic was killed".to_owned());
        };
        loop {
            tokio::select! {
                biased;
                event = running.event() => match event {
                    Some(event) if event.token() == Some(token) => return Ok(event),
                    Some(_) => {}
                    None => return Err("run-traffic was killed".to_owned()),
                },
                () = sleep_until(late) => {
                    self.kill();
                    return Err("run-traffic does not respond".to_owned());
                }
            }
        }
    }
}

impl Running {
    /// The next event; `None` if the process is gone. Cancel safe.
    async fn event(&mut self) -> Option<TrafficEvent> {
        let line = self.events.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    fn request(&self, request: &TrafficRequest) -> Result<(), String> {
        send(&self.requests, request).map_err(|unsent| match unsent {
            Unsent::NotRead => "run-traffic does not read".to_owned(),
            Unsent::Gone => "run-traffic was killed".to_owned(),
        })
    }
}
