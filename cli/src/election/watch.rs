//! `election watch`.

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
#[cfg(target_os = "linux")]
use incumbent::Advertisement;
use incumbent::lock::CoolDownLeft;
use serde_json::json;
use time::OffsetDateTime;
#[cfg(target_os = "linux")]
use tokio::sync::mpsc;
#[cfg(target_os = "linux")]
use tokio::time::timeout;

use crate::candidate::cooling_down;
use crate::console::model::{Feed, Transition, cool_down_json, lost};
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::{ElectionRecord, ElectionState, Elections, shown, with_token};
use crate::output::text;
use crate::output::time_format;
use crate::output::{self, Format, Printing};
#[cfg(target_os = "linux")]
use crate::process::BackgroundTask;
#[cfg(target_os = "linux")]
use crate::run::{HOOK, HOOK_LIMIT, prepare_children, run_hook};

/// Print each change of leadership with its cause, as it happens, until interrupted.
///
/// Needs the permissions of an observer only, and creates no consumer. With Kubernetes, a leader
/// whose record has not changed for its lease, on this host's clock, has expired; without the
/// permission to `watch`, it polls every second. Of one election it also prints how long a new
/// holder cools down before it leads, which it asks the holder, on locks that carry roll calls.
#[derive(Args)]
pub struct Watch {
    /// The election; with Kubernetes its object [default: all].
    name: Option<String>,
    #[command(flatten)]
    printing: Printing,
    /// Run this shell command at each change, one after the other.
    ///
    /// It has INCUMBENT_EVENT, which is `leader` or `vacant`, INCUMBENT_ELECTION,
    /// INCUMBENT_IDENTITY and INCUMBENT_TOKEN of the leader, INCUMBENT_ADDRESS that it advertises,
    /// and INCUMBENT_CAUSE of a vacancy. What candidates write is in them: quote them. It does not
    /// inherit credentials of the lock, and is killed after a minute, or when this process ends.
    /// Its output goes to standard error. It runs after the change, and may be late: use --on-won
    /// of the candidates for what must not run beside another leader.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
}

impl Watch {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let elections = Elections::open(lock, self.name.as_deref()).await?;
        let mut feed = Feed::open(&elections, self.name.as_slice()).await?;
        #[cfg(target_os = "linux")]
        let hooks = match &self.exec {
            Some(text) => Some(Hooks::start(text.clone(), lock.secrets(&[]))?),
            None => None,
        };
        let ended = self
            .follow(&elections, &mut feed, async |transition| {
                #[cfg(target_os = "linux")]
                if let Some(hooks) = &hooks {
                    hooks.run(transition).await;
                }
                #[cfg(not(target_os = "linux"))]
                drop(transition);
            })
            .await;
        #[cfg(target_os = "linux")]
        if let Some(hooks) = hooks {
            hooks.end().await;
        }
        ended
    }

    /// Prints each change, and calls `on_change` with it, until the lock refuses.
    async fn follow(
        &self,
        elections: &Elections,
        feed: &mut Feed<'_>,
        on_change: impl AsyncFn(Transition),
    ) -> Result<(), CliError> {
        let mut failing = false;
        let mut asked = FuturesUnordered::new();
        loop {
            let next = tokio::select! {
                next = feed.next() => next,
                Some((status, left)) = asked.next() => {
                    if let Some(left) = left {
                        self.print_cool_down(&status, &left)?;
                    }
                    continue;
                }
            };
            match next {
                Ok(transition) => {
                    asked.clear();
                    if self.name.is_some() {
                        let status = transition.status();
                        asked.push(async move {
                            let left = elections.cool_down(&status).await;
                            (status, left)
                        });
                    }
                    if std::mem::take(&mut failing) {
                        output::note("lock recovered");
                    }
                    match self.printing.output {
                        Format::Json => output::json_line(&transition.json())?,
                        Format::Text => output::line(text(&transition))?,
                    }
                    on_change(transition).await;
                }
                // An unreachable server may come back; a missing bucket or permission does not.
                Err(failure @ CliError::Message { code: Code::Unreachable, .. }) => {
                    if !std::mem::replace(&mut failing, true) {
                        output::note(format!("lock failing: {failure}"));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn print_cool_down(&self, of: &ElectionRecord, left: &CoolDownLeft) -> Result<(), CliError> {
        let Some(holder) = of.holder() else { return Ok(()) };
        let time = time_format::rfc3339(OffsetDateTime::now_utc());
        match self.printing.output {
            Format::Json => output::json_line(&json!({
                "time": time,
                "election": of.election,
                "event": "cooling_down",
                "leader": holder.identity,
                "token": holder.token,
                "cool_down": cool_down_json(left),
            })),
            Format::Text => {
                let CoolDownLeft { left_ms, reason, .. } = left;
                let wait = Duration::from_millis(*left_ms);
                let wait = cooling_down(wait, text::printable(reason));
                let election = text::printable(&of.election);
                output::line(format!("[{time}] {election}: {} is {wait}", shown(holder)))
            }
        }
    }
}

/// How many changes wait for the command of --exec. With one more the watch waits, too, until a
/// command has ended.
#[cfg(target_os = "linux")]
const WAITING: usize = 1024;

/// The command of --exec, which runs beside the watch: a change meanwhile is not missed, and a
/// leader that renews meanwhile does not seem to have expired.
#[cfg(target_os = "linux")]
struct Hooks {
    changes: mpsc::Sender<Transition>,
    runs: BackgroundTask,
}

#[cfg(target_os = "linux")]
impl Hooks {
    fn start(text: String, withheld: Vec<String>) -> Result<Self, CliError> {
        prepare_children(HOOK)?;
        let (changes, mut waiting) = mpsc::channel(WAITING);
        let runs = tokio::spawn(async move {
            while let Some(transition) = waiting.recv().await {
                execute(&text, &transition, withheld.clone()).await;
            }
        });
        Ok(Self { changes, runs: BackgroundTask(runs) })
    }

    /// Runs the command for this change, after those before.
    async fn run(&self, transition: Transition) {
        let _ = self.changes.send(transition).await; // an error: it panicked, and said so
    }

    /// Waits for the commands of the changes so far, as long as one command may take.
    async fn end(mut self) {
        drop(self.changes);
        if timeout(HOOK_LIMIT, &mut self.runs.0).await.is_err() {
            output::note("incumbent: --exec was not run for each change before the watch ended");
        }
    }
}

/// Runs the command of --exec, and reports its failure.
#[cfg(target_os = "linux")]
async fn execute(text: &str, transition: &Transition, withheld: Vec<String>) {
    let (holder, cause) = (transition.outcome().ok(), transition.outcome().err());
    let advertised = holder.and_then(|holder| holder.advertisement.as_deref());
    let token = holder.and_then(|holder| holder.token).map(|token| token.to_string());
    let value = |text: Option<&str>| OsString::from(text::printable(text.unwrap_or_default()));
    let environment = [
        ("INCUMBENT_EVENT", value(Some(if holder.is_some() { "leader" } else { "vacant" }))),
        ("INCUMBENT_ELECTION", value(Some(&transition.election))),
        ("INCUMBENT_IDENTITY", value(holder.map(|holder| &*holder.identity))),
        ("INCUMBENT_TOKEN", token.unwrap_or_default().into()),
        ("INCUMBENT_ADDRESS", value(advertised.map(Advertisement::address))),
        ("INCUMBENT_CAUSE", value(cause)),
    ];
    if let Err(why) = run_hook("--exec", text, &environment, withheld).await {
        output::note(format!("incumbent: {why}"));
    }
}

fn text(event: &Transition) -> String {
    let time = time_format::rfc3339(event.time);
    let what = match (&event.now, &event.before) {
        (ElectionState::Held(now), _) if event.found => {
            let since = now
                .since
                .map(|since| format!(" since {}", time_format::rfc3339(time_format::utc(since))));
            format!("{} leads{}{}", shown(now), since.unwrap_or_default(), with_token(now.token))
        }
        (ElectionState::Held(now), Some(before)) if before.identity != now.identity => {
            format!("{} leads{}, succeeding {}", shown(now), with_token(now.token), shown(before))
        }
        (ElectionState::Held(now), _) => format!("{} leads{}", shown(now), with_token(now.token)),
        (ElectionState::Vacant(cause), Some(before)) => {
            format!("no leader: {} {}", shown(before), lost(cause.as_str()))
        }
        (ElectionState::Vacant(cause), None) => format!("no leader: {cause}"),
    };
    format!("[{time}] {}: {what}", text::printable(&event.election))
}
