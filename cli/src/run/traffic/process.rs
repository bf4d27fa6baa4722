//! The process that directs requests to this host while its candidate leads.
//!
//! It withdraws by its own look at the clock, or at once if the candidate is gone, so that a
//! candidate that is killed, hangs or is suspended leaves nothing behind. In the list of processes
//! it is `run-traffic`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::timeout;

use super::messages::{ARGUMENTS, TrafficEvent, TrafficRequest};
use super::targets::{self as addresses, ParseTraffic, Targets};
use crate::output;
use crate::process::signals::SignalStreams;
use crate::process::{StopTimes, hide_credentials, send, sleep_until};

/// How long to wait after a failed removal of an address.
const RETRY: Duration = Duration::from_millis(50);
/// How long a removal may take.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How long a process without a candidate tries what the API server did not answer.
const OWED: Duration = Duration::from_secs(30);

/// Arguments: the lease in milliseconds, and the marker.
pub fn run(mut args: impl Iterator<Item = OsString>, parse: ParseTraffic) -> ExitCode {
    hide_credentials();
    let lease = args.next().and_then(|argument| argument.into_string().ok());
    let (Some(lease), Some(marker)) = (lease, args.next()) else { return ExitCode::FAILURE };
    let Ok(of_candidate) = std::env::var(ARGUMENTS) else { return ExitCode::FAILURE };
    let of_candidate = serde_json::from_str(&of_candidate).ok();
    let Some((args, lock)) = of_candidate.and_then(parse) else { return ExitCode::FAILURE };
    let lease = Duration::from_millis(lease.parse().unwrap_or(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let channel = Channel::open()?;
            let marker = PathBuf::from(marker);
            let opened = Targets::open(args, &lock, lease, || {
                let _ = std::fs::remove_file(&marker); // of a process that was killed
                channel.send(&TrafficEvent::Cleaned);
            });
            let targets = match opened.await {
                Ok(targets) => targets,
                Err(why) => {
                    channel.send(&TrafficEvent::Failed { token: 0, why });
                    return Ok(());
                }
            };
            channel.send(&TrafficEvent::Ready);
            let (token, until) = (0, None);
            let (extends, drains, orphaned) = (false, false, false);
            let traffic =
                Traffic { channel, targets, marker, token, until, extends, drains, orphaned };
            traffic.run().await
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format!("incumbent: cannot direct requests: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The candidate's end is its `TrafficHandle`.
struct Channel {
    requests: Lines<BufReader<OwnedReadHalf>>,
    events: StdStream,
}

impl Channel {
    fn open() -> io::Result<Self> {
        // The candidate ends this process, when it is done: not those who signal its group.
        let ends = [Signal::TERM, Signal::INT, Signal::HUP];
        let others = [Signal::QUIT, Signal::USR1, Signal::USR2];
        drop(SignalStreams::listen(&[ends, others].concat())?);
        let events = StdStream::from(stdin().as_fd().try_clone_to_owned()?);
        events.set_nonblocking(true)?;
        let (requests, writer) = UnixStream::from_std(events.try_clone()?)?.into_split();
        writer.forget();
        Ok(Self { requests: BufReader::new(requests).lines(), events })
    }

    /// The next request; `None` if the candidate is gone. Cancel safe.
    async fn request(&mut self) -> Option<TrafficRequest> {
        let line = self.requests.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Does not wait. A candidate that is gone is noticed by `request`.
    fn send(&self, event: &TrafficEvent) {
        let _ = send(&self.events, event);
    }
}

struct Traffic {
    channel: Channel,
    targets: Targets,
    /// This file is there while requests may be directed here: the guard waits for its removal
    /// before it releases the lock of a candidate that was killed.
    marker: PathBuf,
    /// The token of the last term.
    token: u64,
    /// When to withdraw without a request, while requests may be directed here.
    until: Option<StopTimes>,
    /// Requests that wait for the end of a step.
    extends: bool,
    drains: bool,
    orphaned: bool,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait,
    Direct,
    Extend,
    Drain,
    Withdraw,
}

impl Traffic {
    async fn run(mut self) -> io::Result<()> {
        let mut step = Step::Wait;
        loop {
            step = match step {
                Step::Withdraw => {
                    self.withdraw().await;
                    if self.orphaned {
                        let _ = timeout(OWED, self.targets.settle()).await;
                        return Ok(());
                    }
                    Step::Wait
                }
                other => self.perform(other).await,
            };
        }
    }

    /// Performs a step until it is done or there is something more urgent. Returns the next one.
    async fn perform(&mut self, step: Step) -> Step {
        let Self { channel, targets, marker, token, until, extends, drains, orphaned } = self;
        let of = *token;
        let first = until.map(|until| until.kill_at);
        let mut waits = false;
        let work = async {
            match (step, first) {
                (Step::Direct, Some(until)) => {
                    create(marker)?;
                    let directed = targets.direct(of, until).await;
                    directed.map(|()| Some(TrafficEvent::Directed { token: of }))
                }
                (Step::Extend, Some(until)) => {
                    let extended = targets.extend(until).await;
                    extended.map(|()| Some(TrafficEvent::Extended { token: of }))
                }
                (Step::Drain, Some(_)) => {
                    targets.drain().await;
                    Ok(None)
                }
                (_, Some(_)) => Ok(None),
                (_, None) => {
                    targets.settle().await;
                    Ok(None)
                }
            }
        };
        let mut work = pin!(work);
        loop {
            if waits && std::mem::take(drains) {
                return Step::Drain;
            }
            if waits && std::mem::take(extends) {
                return Step::Extend;
            }
            let withdraw_at = until.map(|until| until.ask_at);
            tokio::select! {
                biased;
                request = channel.request() => match request {
                    None => {
                        *orphaned = true;
                        return Step::Withdraw;
                    }
                    Some(TrafficRequest::Direct { token: of, until: first }) => {
                        (*token, *until, *extends, *drains) = (of, Some(first), false, false);
                        return Step::Direct;
                    }
                    Some(TrafficRequest::Extend(later)) if until.is_some() => {
                        (*until, *extends) = (Some(later), true);
                    }
                    Some(TrafficRequest::Drain) if until.is_some() => *drains = true,
                    Some(TrafficRequest::Extend(_) | TrafficRequest::Drain) => {} // it has withdrawn
                    Some(TrafficRequest::Withdraw) => return Step::Withdraw,
                },
                () = sleep_until(withdraw_at) => {
                    let why = "the term was not renewed in time".to_owned();
                    channel.send(&TrafficEvent::Failed { token: of, why });
                    return Step::Withdraw;
                }
                done = &mut work, if !waits => match done {
                    Ok(event) => {
                        waits = true;
                        if let Some(event) = event {
                            channel.send(&event);
                        }
                    }
                    Err(why) => {
                        channel.send(&TrafficEvent::Failed { token: of, why });
                        return Step::Withdraw;
                    }
                },
            }
        }
    }

    /// Withdraws all. An address is tried to be removed until its lifetime has ended.
    async fn withdraw(&mut self) {
        let Self { channel, targets, marker, token, until, .. } = self;
        let (token, until) = (*token, until.take());
        let (addresses, service) = targets.parts();
        let addresses = async {
            while let (Some(until), Err(why)) =
                (until, bounded(ATTEMPT, addresses::withdraw(addresses)).await)
            {
                if until.kill_at <= BootClock.now() {
                    output::note(format!(
                        "incumbent: cannot remove the address: {why}; its lifetime ends it"
                    ));
                    break;
                }
                tokio::time::sleep(RETRY).await;
            }
            channel.send(&TrafficEvent::AddressesRemoved { token });
        };
        let service = async {
            if let Some(service) = service
                && let Err(why) = service.withdraw().await
            {
                output::note(format!(
                    "incumbent: {why}; it is tried again, and the next leader replaces it"
                ));
            }
        };
        tokio::join!(addresses, service);
        let _ = std::fs::remove_file(marker); // or its directory is gone
        channel.send(&TrafficEvent::Withdrawn { token });
    }
}

fn create(marker: &Path) -> Result<(), String> {
    match File::create(marker) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot create {}: {error}", marker.display())),
    }
}

async fn bounded(
    within: Duration,
    work: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    timeout(within, work).await.unwrap_or_else(|_| Err("no response".to_owned()))
}
