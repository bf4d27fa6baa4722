//! Where observations come from: polls, and the lock's reports of writes.

use std::collections::VecDeque;
use std::future::ready;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use incumbent::lock::ElectionUpdate;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use super::Model;
use super::election::Transition;
use super::heard::{Heard, Hint, Verdict};
use super::observation::{Moment, Observation, Origin, Read};
use crate::error::CliError;
use crate::lock::elections::{ElectionRecord, Elections, Position, Watcher};
use crate::output::time_format::until;

/// The poll interval if the watcher reports changes.
const WITH_UPDATES: Duration = Duration::from_secs(5);
/// The poll interval if it does not.
const WITHOUT_UPDATES: Duration = Duration::from_secs(1);
/// How many named elections are read concurrently.
const READS: usize = 32;
/// How long hints are collected, so that many elections are read together.
const COLLECT: Duration = Duration::from_millis(10);
/// How long a write that the lock has may be on its way.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The pause after an error of the lock.
const PAUSE: Duration = Duration::from_millis(250);

/// Sends all observations of a source, and its errors, until nobody receives them: what a view does
/// with them delays or repeats no read.
pub async fn forward(mut source: Source<'_>, to: mpsc::Sender<Result<Observation, CliError>>) {
    loop {
        let observed = source.next().await;
        let has_failed = observed.is_err();
        if to.send(observed).await.is_err() {
            return;
        }
        if has_failed {
            sleep(PAUSE).await;
        }
    }
}

/// The outcome of a poll.
enum Answer {
    Position(Option<Position>),
    /// All elections, read after this position.
    All(Option<Position>, Vec<ElectionRecord>),
}

/// An election, and its last write by a read.
type Confirmed = (String, Option<ElectionRecord>);

/// The elections of a lock, or some of them by name.
pub struct Source<'a> {
    elections: &'a Elections,
    names: &'a [String],
    watcher: Watcher<'a>,
    ticks: Interval,
    /// The poll that is under way.
    poll: Option<BoxFuture<'a, Result<Answer, CliError>>>,
    /// When the last poll began, and how long the last one took that has ended.
    polled: (Instant, Duration),
    heard: Heard,
    /// The read that confirms hints, and when it begins if it is not under way.
    confirm: Option<BoxFuture<'a, Result<Vec<Confirmed>, CliError>>>,
    confirm_at: Option<Instant>,
    /// Observations that are to be returned.
    ready: VecDeque<Observation>,
    /// Whether writes were missed since the last read.
    has_missed: bool,
    /// The position that the watcher has to reach before `due`.
    awaited: Option<Position>,
    /// When all elections are read again.
    due: Option<Instant>,
    /// When they were read last.
    read_at: Option<Instant>,
}

impl<'a> Source<'a> {
    /// Watches the named elections, or all if none is named.
    pub async fn open(elections: &'a Elections, names: &'a [String]) -> Result<Self, CliError> {
        let watcher = elections.watch(names).await?;
        let mut ticks =
            interval(if watcher.reports_every_change() { WITH_UPDATES } else { WITHOUT_UPDATES });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (poll, heard) = (None, Heard::default());
        let polled = (Instant::now(), Duration::ZERO);
        Ok(Self {
            elections,
            names,
            watcher,
            ticks,
            poll,
            polled,
            heard,
            confirm: None,
            confirm_at: None,
            ready: VecDeque::new(),
            has_missed: false,
            awaited: None,
            due: None,
            read_at: None,
        })
    }

    /// What a model has to know of the lock.
    pub fn origin(&self) -> Origin {
        let is_watched = self.watcher.reports_every_change();
        let watched_for = if is_watched { WITH_UPDATES } else { Duration::ZERO };
        Origin::of(self.elections, !self.names.is_empty(), watched_for)
    }

    /// The next observation. The first one is of all elections.
    ///
    /// An error does not end the source: the next call continues. Cancel safe.
    pub async fn next(&mut self) -> Result<Observation, CliError> {
        loop {
            if let Some(observation) = self.ready.pop_front() {
                return Ok(observation);
            }
            if let Some(confirm) = &mut self.confirm {
                let read = confirm.await;
                self.confirm = None;
                match read {
                    Ok(read) => read.into_iter().for_each(|read| self.on_confirmed(read)),
                    Err(failure) => {
                        self.heard.forget();
                        self.has_missed = true;
                        return Err(failure);
                    }
                }
                continue;
            }
            if let Some(poll) = &mut self.poll {
                let answer = poll.await;
                self.poll = None;
                self.polled.1 = self.polled.0.elapsed();
                self.on_answer(answer?);
                continue;
            }
            if self.confirm_at.is_some_and(|at| at <= Instant::now()) {
                self.begin_confirm();
                continue;
            }
            if let Some(position) = self.awaited
                && self.heard.compare(position) != Verdict::Behind
            {
                (self.awaited, self.due) = (None, None);
                match self.heard.compare(position) {
                    Verdict::Known => return Ok(Observation::Unchanged(self.read())),
                    _ => self.begin_read(),
                }
                continue;
            }
            let due = self.due;
            tokio::select! {
                biased;
                () = until(due) => {
                    // The watcher should have reported them by now.
                    self.has_missed |= self.awaited.is_some();
                    self.begin_read();
                }
                _ = self.ticks.tick() => self.begin_poll(),
                update = self.watcher.next() => match update? {
                    ElectionUpdate::Written(status) if self.includes(&status) => {
                        return Ok(Observation::Written(status));
                    }
                    ElectionUpdate::Hint { record, previous } if self.includes(&record) => {
                        let was_complete = self.heard.is_complete();
                        let renewed = self.heard.hint(Hint { status: record, previous });
                        self.has_missed |= was_complete && !self.heard.is_complete();
                        if let Some(status) = renewed {
                            return Ok(Observation::Written(status));
                        }
                        if self.heard.unconfirmed().len() > 0 {
                            self.confirm_at.get_or_insert_with(|| Instant::now() + COLLECT);
                        }
                    }
                    ElectionUpdate::Written(_) | ElectionUpdate::Hint { .. } => {}
                    ElectionUpdate::Recheck => self.begin_read_soon(),
                },
                // No more hints are there.
                () = ready(()), if self.confirm_at.is_some() => self.begin_confirm(),
            }
        }
    }

    /// How long the last poll took.
    pub fn last_poll(&self) -> Duration {
        self.polled.1
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::All(position, all) => {
                for status in &all {
                    let (vacancies, _) = self.heard.confirm(&status.election, Some(status));
                    self.ready.extend(vacancies.into_iter().map(Observation::Written));
                }
                // A watch of one election hears no others.
                let position = position.filter(|_| self.is_of_all());
                self.heard.listed(&all, position);
                self.confirm_at = None;
                let read = self.read();
                self.ready.push_back(Observation::All(all, read));
            }
            Answer::Position(position) => {
                let verdict = position.map(|position| (position, self.heard.compare(position)));
                match verdict {
                    Some((_, Verdict::Known)) => {
                        let read = self.read();
                        self.ready.push_back(Observation::Unchanged(read));
                    }
                    Some((position, Verdict::Behind)) => {
                        self.awaited = Some(position);
                        self.due = Some(Instant::now() + CATCH_UP);
                    }
                    Some((_, Verdict::Unknown)) | None => self.begin_read(),
                }
            }
        }
    }

    fn on_confirmed(&mut self, (election, status): Confirmed) {
        let (vacancies, is_new) = self.heard.confirm(&election, status.as_ref());
        self.ready.extend(vacancies.into_iter().map(Observation::Written));
        self.ready.push_back(Observation::One { election, status, is_new });
    }

    /// Reads the elections of the hints that have to be confirmed.
    fn begin_confirm(&mut self) {
        self.confirm_at = None;
        let elections = self.elections;
        let read = move |name: String| async move {
            let status = elections.read(&name).await?;
            Ok((name, status))
        };
        let reads: Vec<_> = self.heard.unconfirmed().cloned().map(read).collect();
        self.confirm = Some(Box::pin(stream::iter(reads).buffered(READS).try_collect()));
    }

    /// The read that has ended.
    fn read(&mut self) -> Read {
        let has_missed = std::mem::take(&mut self.has_missed);
        Read { began: self.polled.0, has_missed }
    }

    fn is_of_all(&self) -> bool {
        self.names.is_empty() && self.watcher.reports_every_change()
    }

    fn includes(&self, status: &ElectionRecord) -> bool {
        self.names.is_empty() || self.names.contains(&status.election)
    }

    /// Reads as much as is necessary to know of every write.
    fn begin_poll(&mut self) {
        if !self.heard.is_complete() {
            return self.begin_read();
        }
        self.polled.0 = Instant::now();
        let elections = self.elections;
        self.poll =
            Some(Box::pin(async move { Ok(Answer::Position(elections.position().await?)) }));
    }

    /// Reads the elections at once if they are named, and all of them once in a while: each of
    /// their writes may be reported.
    fn begin_read_soon(&mut self) {
        match self.read_at {
            Some(last) if self.names.is_empty() => {
                self.due.get_or_insert(last + WITHOUT_UPDATES);
            }
            _ => self.begin_read(),
        }
    }

    /// Reads the elections.
    fn begin_read(&mut self) {
        (self.awaited, self.due) = (None, None);
        self.polled.0 = Instant::now();
        self.read_at = Some(self.polled.0);
        let (elections, names) = (self.elections, self.names);
        let is_of_all = self.is_of_all();
        self.poll = Some(Box::pin(async move {
            if names.is_empty() {
                let position = if is_of_all { elections.position().await? } else { None };
                return Ok(Answer::All(position, elections.list().await?));
            }
            let reads: Vec<_> = names.iter().map(|name| elections.read(name)).collect();
            let reads = stream::iter(reads).buffered(READS);
            let found = reads.try_filter_map(async |status| Ok(status)).try_collect().await?;
            Ok(Answer::All(None, found))
        }));
    }
}

/// The changes of the elections of a lock.
pub struct Feed<'a> {
    source: Source<'a>,
    model: Model,
    waiting: VecDeque<Transition>,
    last_read: Option<LastRead>,
}

/// The last read of a feed.
#[derive(Debug, Clone, Copy)]
pub struct LastRead {
    /// When it ended.
    pub moment: Moment,
    pub took: Duration,
    /// How many reads so far showed that writes had been missed.
    pub gaps: u64,
}

impl<'a> Feed<'a> {
    /// Watches the named elections, or all if none is named.
    pub async fn open(elections: &'a Elections, names: &'a [String]) -> Result<Self, CliError> {
        let source = Source::open(elections, names).await?;
        let model = Model::new(source.origin());
        Ok(Self { source, model, waiting: VecDeque::new(), last_read: None })
    }

    /// As [`open`](Self::open), and the current statuses include all that have no leader.
    pub async fn open_complete(
        elections: &'a Elections,
        names: &'a [String],
    ) -> Result<Self, CliError> {
        let feed = Self::open(elections, names).await?;
        let model = Model::new(Origin { is_named: true, ..feed.source.origin() });
        Ok(Self { model, ..feed })
    }

    /// The last read. No change was missed since the one before, unless `gaps` has grown.
    pub fn last_read(&self) -> Option<LastRead> {
        self.last_read
    }

    /// The next change. The first ones are the current statuses.
    ///
    /// An error does not end the feed: the next call continues. Cancel safe.
    pub async fn next(&mut self) -> Result<Transition, CliError> {
        loop {
            if let Some(transition) = self.waiting.pop_front() {
                return Ok(transition);
            }
            let expiry = self.model.next_expiry();
            tokio::select! {
                observed = self.source.next() => {
                    let (observed, now) = (observed?, Moment::now());
                    if let Observation::All(_, read) | Observation::Unchanged(read) = observed {
                        let took = self.source.last_poll();
                        let gaps = self.last_read.map_or(0, |last| last.gaps);
                        let gaps = gaps + u64::from(read.has_missed);
                        self.last_read = Some(LastRead { moment: now, took, gaps });
                    }
                    self.waiting.extend(self.model.observe(observed, now));
                }
                () = until(expiry) => {
                    self.waiting.extend(self.model.expire(Moment::now()));
                }
            }
        }
    }
}
