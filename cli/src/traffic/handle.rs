//! The candidate's end of the channel to its `run-traffic` process.

use std::future::pending;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use incumbent::clock::{BootClock, Instant, sleep_until};
use incumbent::sentinel::{ENVIRONMENT, encode};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::messages::{SUBCOMMAND, TrafficEvent, TrafficRequest};
use crate::candidate::NOTIFY_SOCKET;
use crate::error::{CliError, Code};
use crate::process::StopTimes;
use crate::process::reaper::OURSELVES;

/// How long the checks at the start may take.
const START: Duration = Duration::from_secs(10);
/// How much later than the process the candidate acts itself.
const MARGIN: Duration = Duration::from_millis(50);

/// A process that directs requests to this host, and withdraws when the term ends.
pub struct TrafficHandle {
    arguments: String,
    lease: Duration,
    marker: PathBuf,
    running: Option<Running>,
    /// Whether a successor may not add the addresses yet.
    has_addresses: bool,
}

struct Running {
    /// It ends when the channel is closed, once all is withdrawn.
    process: Child,
    requests: StdStream,
    events: Lines<BufReader<UnixStream>>,
    /// The token of the term that is not known to be withdrawn.
    token: Option<u64>,
    /// The schedule that it has acknowledged.
    acknowledged: Option<StopTimes>,
    /// The last one that was sent.
    sent: Option<StopTimes>,
}

impl TrafficHandle {
    /// Starts the process, which checks whether it could direct requests here. `arguments`: those
    /// of this process, as JSON. `marker`: a file that is there while requests may come here.
    pub async fn start(
        arguments: String,
        lease: Duration,
        marker: PathBuf,
    ) -> Result<Self, CliError> {
        let mut handle = Self { arguments, lease, marker, running: None, has_addresses: false };
        match timeout(START, handle.spawn()).await {
            Ok(Ok(())) => Ok(handle),
            Ok(Err(why)) => Err(CliError::new(Code::Failed, why)),
            Err(_) => {
                let message =
                    format!("requests cannot be directed here: no result within {START:?}");
                Err(CliError::new(Code::Failed, message))
            }
        }
    }

    async fn spawn(&mut self) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("cannot start run-traffic: {error}");
        let (ours, theirs) = StdStream::pair().map_err(cannot)?;
        let mut command = std::process::Command::new(OURSELVES);
        command
            .arg0("incumbent")
            .args([SUBCOMMAND, &self.arguments, &self.lease.as_millis().to_string()])
            .arg(&self.marker)
            .env_remove(NOTIFY_SOCKET)
            .env_remove(ENVIRONMENT)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let process = Command::from(command).spawn().map_err(cannot)?;
        ours.set_nonblocking(true).map_err(cannot)?;
        let events = ours.try_clone().and_then(UnixStream::from_std).map_err(cannot)?;
        let mut running = Running {
            process,
            requests: ours,
            events: BufReader::new(events).lines(),
            token: None,
            acknowledged: None,
            sent: None,
        };
        match running.event().await {
            Some(TrafficEvent::Ready) => {
                self.running = Some(running);
                self.has_addresses = false; // it has removed them
                Ok(())
            }
            Some(TrafficEvent::Failed(why)) => Err(why),
            _ => Err("run-traffic ended".to_owned()),
        }
    }

    /// Directs requests here. After an error, or if this is dropped, `withdraw` is to be called.
    pub async fn direct(&mut self, token: u64, until: StopTimes) -> Result<(), String> {
        let request = TrafficRequest::Direct { token, until };
        if self.running.as_ref().is_none_or(|running| running.request(&request).is_err()) {
            self.spawn().await?; // it was killed
            self.running.as_ref().map_or(Ok(()), |running| running.request(&request))?;
        }
        let Some(running) = &mut self.running else { return Err("run-traffic ended".to_owned()) };
        self.has_addresses = true;
        (running.token, running.acknowledged) = (Some(token), Some(until));
        loop {
            match running.event().await {
                Some(TrafficEvent::Directed) => return Ok(()),
                Some(TrafficEvent::Failed(why)) => return Err(why),
                Some(_) => {}
                None => return Err("run-traffic was killed".to_owned()),
            }
        }
    }

    /// Has it continue, as the term was renewed.
    pub fn extend(&mut self, until: StopTimes) {
        if let Some(running) = &mut self.running
            && running.request(&TrafficRequest::Extend(until)).is_ok()
        {
            running.sent = Some(until);
        }
    }

    /// Has it let no new requests come here.
    pub fn drain(&mut self) {
        if let Some(running) = &self.running {
            let _ = running.request(&TrafficRequest::Drain); // an error: `failed` returns
        }
    }

    /// Waits until requests no longer come here although the term goes on: why. Cancel safe.
    pub async fn failed(&mut self) -> String {
        let Some(running) = &mut self.running else { return pending().await };
        loop {
            let late = running.acknowledged.map(|until| until.ask_at + MARGIN);
            tokio::select! {
                event = running.event() => match event {
                    Some(TrafficEvent::Extended) => {
                        running.acknowledged = running.sent.or(running.acknowledged);
                    }
                    Some(TrafficEvent::Failed(why)) => return why,
                    Some(_) => {}
                    None => return "run-traffic was killed".to_owned(),
                },
                () = sleep(late) => {
                    let _ = running.process.start_kill(); // it may have ended
                    return "run-traffic does not respond".to_owned();
                }
            }
        }
    }

    /// Withdraws, and waits for it until `by`.
    pub async fn withdraw(&mut self, by: Instant) {
        let Some(running) = &mut self.running else { return self.restart(by).await };
        let Some(token) = running.token else { return };
        let withdrawn = async {
            running.request(&TrafficRequest::Withdraw)?;
            loop {
                match running.event().await {
                    Some(TrafficEvent::AddressesRemoved { token: of }) if of == token => {
                        self.has_addresses = false;
                    }
                    Some(TrafficEvent::Withdrawn { token: of }) if of == token => {
                        running.token = None;
                        return Ok(());
                    }
                    Some(_) => {}
                    None => return Err("run-traffic was killed".to_owned()),
                }
            }
        };
        tokio::select! {
            done = withdrawn => if done.is_err() {
                self.restart(by).await;
            },
            () = sleep(Some(by)) => {}
        }
    }

    /// Whether a successor may add the addresses.
    pub fn addresses_are_removed(&self) -> bool {
        !self.has_addresses
    }

    /// A new process removes what the killed one left.
    async fn restart(&mut self, by: Instant) {
        self.running = None;
        tokio::select! {
            started = self.spawn() => if let Err(why) = started {
                tracing::warn!(%why, "what a killed process left was not removed");
            },
            () = sleep(Some(by)) => {}
        }
    }
}

impl Running {
    /// The next event; `None` if the process is gone. Cancel safe.
    async fn event(&mut self) -> Option<TrafficEvent> {
        let line = self.events.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Does not wait: a suspended process does not read.
    fn request(&self, request: &TrafficRequest) -> Result<(), String> {
        let message = encode(request);
        match (&self.requests).write(&message) {
            Ok(written) if written == message.len() => Ok(()),
            Ok(_) => Err("run-traffic does not read".to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err("run-traffic does not read".to_owned())
            }
            Err(_) => Err("run-traffic was killed".to_owned()),
        }
    }
}

async fn sleep(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(BootClock, until).await,
        None => pending().await,
    }
}
