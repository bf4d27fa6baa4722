//! Reads the lock while somebody looks, and carries out what browsers ask.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::hub::{Request, SEND_EVERY, Shared, busy};
use crate::console::model::{Answer, Command, Model, Moment, Source, execute, forward};
use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::Elections;

/// How long the lock is read after the last browser has gone: it may be about to reload the page.
const LINGER: Duration = Duration::from_secs(5);
/// The pause before the lock is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the lock may fail before it is opened again: credentials or the bucket may be others.
const REOPEN_AFTER: Duration = Duration::from_secs(30);
/// How often browsers are sent a sign that the reader lives.
const BEAT: Duration = Duration::from_secs(5);
/// How many observations wait.
const OBSERVATIONS: usize = 256;
/// How many roll calls, and how many other requests, are under way at once.
const AT_ONCE: usize = 8;
/// How long a request may take.
pub const WITHIN: Duration = Duration::from_secs(25);

type Outcome = Result<Answer, CliError>;

/// Reads while somebody looks, until the server has ended.
pub async fn follow(
    shared: Arc<Shared>,
    mut requests: mpsc::Receiver<Request>,
    lock: LockArgs,
    names: Vec<String>,
) {
    let (shared, lock, names) = (&*shared, &lock, &*names);
    let beat = async {
        loop {
            sleep(BEAT).await;
            shared.beat();
        }
    };
    let read = async {
        let mut viewers = shared.viewers.subscribe();
        loop {
            let first = tokio::select! {
                Ok(_) = viewers.wait_for(|count| *count > 0) => None,
                Some(request) = requests.recv() => Some(request),
                else => return,
            };
            let mut asked = Requests::new(&mut requests, first);
            match look(shared, lock, names, &mut asked).await {
                Ok(()) => shared.reset(),
                Err(failure) => {
                    asked.refuse(&failure);
                    shared.fail(&failure);
                    sleep(PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = beat => {}
        () = read => {}
    }
}

/// Follows the elections until nobody has looked for a while.
async fn look(
    shared: &Shared,
    lock: &LockArgs,
    names: &[String],
    asked: &mut Requests<'_>,
) -> Result<(), CliError> {
    let elections = Elections::open_for(lock, names).await?;
    let source = Source::open(&elections, names).await?;
    shared.opened(elections.plain_title());
    let mut model = Some(Model::new(source.origin()));
    let (sender, mut observed) = mpsc::channel(OBSERVATIONS);
    let mut reading = pin!(forward(source, sender));
    let run = |election: String, asked: Command| async {
        let outcome = match names.is_empty() || names.contains(&election) {
            true => timeout(WITHIN, execute(&elections, &election, asked)).await,
            false => Ok(Err(not_shown(&election))),
        };
        (election, outcome.unwrap_or_else(|_| Err(undecided())))
    };
    let (mut rolls, mut changes) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut ticks = interval(SEND_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut viewers = shared.viewers.subscribe();
    let mut unwatched = pin!(unwatched(&mut viewers));
    let mut failing_since = None;
    loop {
        tokio::select! {
            () = &mut reading => return Ok(()), // never: this side is open
            Some(observed) = observed.recv() => match observed {
                Ok(observed) => {
                    failing_since = None;
                    shared.observe(&mut model, observed);
                }
                Err(failure) => {
                    shared.fail(&failure);
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > REOPEN_AFTER {
                        return Err(failure);
                    }
                }
            },
            _ = ticks.tick() => shared.tick(Moment::now()),
            Some(request) = asked.next() => match request.asked {
                Command::CallRoll if rolls.len() < AT_ONCE => {
                    if let Some(election) = asked.join_roll(request) {
                        rolls.push(run(election, Command::CallRoll));
                    }
                }
                what if changes.len() < AT_ONCE && !matches!(what, Command::CallRoll) => {
                    let (answer, change) = (request.answer, run(request.election, what));
                    changes.push(async { (answer, change.await) });
                }
                _ => drop(request.answer.send(Err(busy()))),
            },
            Some((election, outcome)) = rolls.next(), if !rolls.is_empty() => {
                shared.take_roll(&election, &outcome);
                asked.answer_roll(&election, &outcome);
            }
            Some((answer, (election, outcome))) = changes.next(), if !changes.is_empty() => {
                log(&election, &outcome);
                let _ = answer.send(outcome); // an error: the browser has gone
            }
            () = &mut unwatched, if rolls.is_empty() && changes.is_empty() => return Ok(()),
        }
    }
}

/// The requests of browsers. Roll calls of one election that are requested at once are one.
struct Requests<'r> {
    receiver: &'r mut mpsc::Receiver<Request>,
    first: Option<Request>,
    rolls: HashMap<String, Vec<oneshot::Sender<Outcome>>>,
}

impl<'r> Requests<'r> {
    fn new(receiver: &'r mut mpsc::Receiver<Request>, first: Option<Request>) -> Self {
        Self { receiver, first, rolls: HashMap::new() }
    }

    /// Cancel safe.
    async fn next(&mut self) -> Option<Request> {
        match self.first.take() {
            Some(first) => Some(first),
            None => self.receiver.recv().await,
        }
    }

    /// The election whose roll has to be called; `None` if it is being called.
    fn join_roll(&mut self, request: Request) -> Option<String> {
        let waiting = self.rolls.entry(request.election.clone()).or_default();
        waiting.push(request.answer);
        (waiting.len() == 1).then_some(request.election)
    }

    fn answer_roll(&mut self, election: &str, outcome: &Outcome) {
        for answer in self.rolls.remove(election).unwrap_or_default() {
            let _ = answer.send(outcome.clone()); // an error: the browser has gone
        }
    }

    /// Answers all that wait: the lock could not be opened, or fails.
    fn refuse(&mut self, failure: &CliError) {
        let waiting = self.rolls.drain().flat_map(|(_, waiting)| waiting);
        let first = self.first.take().into_iter();
        let queued = std::iter::from_fn(|| self.receiver.try_recv().ok());
        let rest = first.chain(queued).map(|request| request.answer);
        waiting.chain(rest).for_each(|answer| drop(answer.send(Err(failure.clone()))));
    }
}

fn log(election: &str, outcome: &Outcome) {
    match outcome {
        Ok(Answer::Done(line)) => tracing::info!(election, line, "changed by a page"),
        Ok(Answer::Roll(_)) => {}
        Err(failure) => tracing::info!(election, %failure, "change by a page refused"),
    }
}

pub fn not_shown(election: &str) -> CliError {
    CliError::new(Code::NotFound, format!("election {election}: this page does not show it"))
}

fn undecided() -> CliError {
    let within = WITHIN.as_secs();
    let message = format!("no response within {within}s: see the page whether it was done");
    CliError::new(Code::Unreachable, message)
}

/// Waits until nobody has looked for a while.
async fn unwatched(viewers: &mut watch::Receiver<usize>) {
    loop {
        let _ = viewers.wait_for(|count| *count == 0).await; // an error: the server has ended
        let is_back = timeout(LINGER, viewers.wait_for(|count| *count > 0)).await;
        if !matches!(is_back, Ok(Ok(_))) {
            return;
        }
    }
}
