//! The one subscription that serves all elections of a bucket.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::SelectAll;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, warn};

use super::codec;
use super::connection::{ConnectionEvent, ConnectionEvents};
use super::error::BucketErrorKind;
use super::state::BucketState;
use super::stream::StreamFacts;
use crate::backends::hint_hub::Interest;
use crate::lock::{Coverage, Hint, LockError, LockErrorKind, Record, StepDownNotice};

/// How long a notice may take to leave.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the connection is looked at; a client without a watch does not tell when it changes.
const TICK: Duration = Duration::from_millis(500);

/// How long the server may take to confirm a subscription.
const CONFIRM: Duration = Duration::from_secs(5);

/// How long to wait before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// How long after everybody looked they do so again, at the least, where messages go on being dropped.
const RECHECK: Duration = Duration::from_secs(5);

/// How long after a message that is not stored yet one looks what became of it.
const STORING: Duration = Duration::from_millis(25);

/// What to subscribe to, and what that is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SubscriptionPlan {
    wanted: Interest,
    /// Below it the server repeats what it has stored, and former leaders send step-down notices.
    told: Option<String>,
    /// Below it writers write.
    written: Option<String>,
    coverage: Coverage,
}

/// The subject, ending with a dot, below which an election is told about.
pub(super) fn hint_prefix(bucket: &BucketState, facts: &StreamFacts) -> String {
    let name = bucket.api.bucket();
    facts.config.republished_under(name).unwrap_or_else(|| format!("incumbent.{name}."))
}

impl SubscriptionPlan {
    fn new(
        bucket: &BucketState,
        facts: &StreamFacts,
        wanted: Interest,
        denied: &HashSet<String>,
    ) -> Self {
        let name = bucket.api.bucket();
        let repeats = facts.config.republished_under(name).is_some();
        let allowed = |under: &String| !denied.contains(&subject(under, &wanted));
        let told = Some(hint_prefix(bucket, facts)).filter(allowed);
        let full = repeats && told.is_some();
        let written = Some(format!("$KV.{name}.")).filter(|under| !full && allowed(under));
        let coverage = if full {
            Coverage::Full
        } else if written.is_some() {
            Coverage::Partial
        } else {
            Coverage::None
        };
        Self { wanted, told, written, coverage }
    }

    fn subjects(&self) -> impl Iterator<Item = String> {
        [&self.told, &self.written].into_iter().flatten().map(|under| subject(under, &self.wanted))
    }

    /// Whether an election that joins is heard already.
    fn covers(&self, wanted: &Interest) -> bool {
        self.wanted == Interest::All || self.wanted == *wanted
    }
}

fn subject(under: &str, wanted: &Interest) -> String {
    match wanted {
        Interest::One(name) => format!("{under}{name}"),
        Interest::All => format!("{under}>"),
    }
}

/// Hears for a bucket until it is dropped.
pub(super) async fn listen(bucket: Arc<BucketState>) {
    let bucket = &bucket;
    let mut listener = Listener {
        events: bucket.api.connection.events(),
        bucket,
        messages: SelectAll::new(),
        denied: HashSet::new(),
        epoch: 0,
        due: Vec::new(),
        recheck: None,
        rechecked: None,
    };
    loop {
        let Some(wanted) = bucket.hub.interest() else {
            bucket.hub.interest_changed().await;
            continue;
        };
        match listener.establish(wanted).await {
            Some(plan) => listener.hear(&plan).await,
            None => {
                bucket.announce(Coverage::None, Interest::All);
                listener.messages = SelectAll::new();
                listener.pause().await;
            }
        }
    }
}

struct Listener<'a> {
    bucket: &'a Arc<BucketState>,
    events: ConnectionEvents,
    messages: SelectAll<Subscriber>,
    /// Subjects that we may not subscribe to on this connection, or that stay silent on it.
    denied: HashSet<String>,
    /// The connection.
    epoch: u64,
    /// Elections to look at, and when.
    due: Vec<(Instant, Arc<str>)>,
    /// When everybody is to look, as messages were lost, and when they did so last.
    recheck: Option<Instant>,
    rechecked: Option<Instant>,
}

impl Listener<'_> {
    /// Subscribes, and waits until the server has taken it: it answers in order, so an answer to anything asked later
    /// shows it, and the leader of the stream, whose answer this is, has been told as well.
    async fn establish(&mut self, wanted: Interest) -> Option<SubscriptionPlan> {
        let connection = &self.bucket.api.connection;
        if !connection.is_connected() {
            return None;
        }
        let epoch = connection.epoch();
        if epoch != self.epoch {
            self.denied.clear();
            self.epoch = epoch;
        }
        let facts = match self.bucket.facts(CONFIRM).await {
            Ok(facts) => facts,
            Err(error) => {
                debug!(bucket = %self.bucket.api.bucket(), %error, "no hints");
                return None;
            }
        };
        let plan = SubscriptionPlan::new(self.bucket, &facts, wanted.clone(), &self.denied);
        let mut messages = SelectAll::new();
        for subject in plan.subjects() {
            let subscribed = tokio::time::timeout(CONFIRM, connection.client().subscribe(subject));
            messages.push(subscribed.await.ok()?.ok()?);
        }
        let info = self.bucket.ask(CONFIRM).await;
        let facts = match info {
            Ok(info) => self.bucket.learn(&info, false).ok()?,
            Err(error) if error.kind() == BucketErrorKind::Denied => facts, // an answer, too
            Err(_) => return None,
        };
        // The new subscription is in force: what the old one still holds is passed on before it goes.
        while let Some(Some(message)) = futures_util::FutureExt::now_or_never(self.messages.next())
        {
            self.pass_on(&plan, &facts, message);
        }
        self.messages = messages;
        if SubscriptionPlan::new(self.bucket, &facts, wanted, &self.denied) != plan {
            return None; // the bucket was made again with other settings, just now
        }
        self.bucket.announce(plan.coverage, plan.wanted.clone());
        Some(plan)
    }

    /// Hears until something must be subscribed anew.
    async fn hear(&mut self, plan: &SubscriptionPlan) {
        let bucket = self.bucket;
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = self.messages.next(), if !self.messages.is_empty() => match message {
                    Some(message) => match bucket.known_facts() {
                        Some(facts) => self.pass_on(plan, &facts, message),
                        None => return,
                    },
                    None => return,
                },
                notice = self.events.next() => match notice {
                    ConnectionEvent::SubscribeDenied(subject) if plan.subjects().any(|s| s == *subject) => {
                        warn!(bucket = %bucket.api.bucket(), %subject, "no right to subscribe");
                        self.denied.insert(subject.to_string());
                        return bucket.announce(Coverage::None, Interest::All);
                    }
                    ConnectionEvent::Link if self.connection_changed() => return self.lost(),
                    ConnectionEvent::Missed => self.missed(),
                    _ => {}
                },
                _ = tick.tick() => if self.connection_changed() { return self.lost() },
                () = look_due(&self.due) => {
                    let now = Instant::now();
                    let (due, later) = self.due.drain(..).partition(|(at, _)| *at <= now);
                    self.due = later;
                    for (_, name) in Vec::from_iter::<Vec<(Instant, Arc<str>)>>(due) {
                        bucket.send(&name, &Hint::Recheck);
                    }
                }
                () = recheck_due(self.recheck) => {
                    (self.recheck, self.rechecked) = (None, Some(Instant::now()));
                    bucket.hub.send_all(&Hint::Recheck);
                }
                () = bucket.hints_lost() => {
                    warn!(bucket = %bucket.api.bucket(), "no hints received: check the permission to subscribe");
                    self.denied.extend(plan.told.iter().map(|under| subject(under, &plan.wanted)));
                    return bucket.announce(Coverage::None, Interest::All);
                }
                () = bucket.hub.interest_changed() => match bucket.hub.interest() {
                    Some(wanted) if plan.covers(&wanted) => {}
                    _ => return, // the old subscription stays until the new one is in force
                }
            }
        }
    }

    fn connection_changed(&self) -> bool {
        let connection = &self.bucket.api.connection;
        !connection.is_connected() || connection.epoch() != self.epoch
    }

    /// Messages came faster than they were taken, and so some were dropped: of which election nobody knows.
    fn missed(&mut self) {
        if self.recheck.is_none() {
            debug!(bucket = %self.bucket.api.bucket(), "hints were dropped: everybody looks");
            let now = Instant::now();
            self.recheck = Some(self.rechecked.map_or(now, |last| now.max(last + RECHECK)));
        }
    }

    fn lost(&mut self) {
        debug!(bucket = %self.bucket.api.bucket(), "connection lost: no hints until it is back");
        self.bucket.announce(Coverage::None, Interest::All);
    }

    /// Waits before another attempt; less long where something changes.
    async fn pause(&mut self) {
        let connected = self.bucket.api.connection.is_connected();
        tokio::select! {
            () = tokio::time::sleep(if connected { PAUSE } else { TICK }) => {}
            () = self.bucket.hub.interest_changed() => {
                // Many may join while there is no connection: they share one attempt.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            _ = self.events.next() => {}
        }
    }

    fn pass_on(&mut self, plan: &SubscriptionPlan, facts: &StreamFacts, message: Message) {
        let bucket = self.bucket;
        let told = plan.told.as_deref().and_then(|under| message.subject.strip_prefix(under));
        if let Some(name) = told {
            if bucket.hub.note(name, |_| ()).is_none() {
                return;
            }
            let stream = format!("KV_{}", self.bucket.api.bucket());
            if let Some(repeated) = codec::repeated(&message.headers, &stream) {
                let content = codec::content(&message.headers, &message.payload, facts.expiry());
                let record = Record { revision: repeated.revision, content };
                let age = repeated.stored_at.and_then(|at| self.bucket.age(at));
                bucket.send(name, &Hint::Stored { record, previous: repeated.previous, age });
            } else if let Some(notice) = codec::notice(&message.headers) {
                bucket.send(name, &Hint::SteppedDown(notice));
            }
            return;
        }
        let written = plan.written.as_deref().and_then(|under| message.subject.strip_prefix(under));
        if let Some(name) = written
            && codec::is_forced(&message.headers)
            && bucket.hub.note(name, |_| ()).is_some()
            && !self.due.iter().any(|(_, due)| **due == *name)
        {
            self.due.push((Instant::now() + STORING, Arc::from(name)));
        }
    }
}

/// Waits until everybody is to look; for ever where nothing was lost.
async fn recheck_due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until the first election is to be looked at; for ever where none is.
async fn look_due(due: &[(Instant, Arc<str>)]) {
    match due.iter().map(|(at, _)| *at).min() {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Sends a step-down notice: the work of a former leader has stopped.
pub(super) async fn notify_step_down(
    bucket: &Arc<BucketState>,
    name: &str,
    notice: StepDownNotice,
) -> Result<(), LockError> {
    let facts = bucket.facts(STEP_DOWN_TIMEOUT).await.map_err(|e| e.into_lock_error())?;
    if !bucket.api.connection.is_connected() {
        return Err(LockError::new(LockErrorKind::Unavailable, "not connected to NATS"));
    }
    let subject = format!("{}{name}", hint_prefix(bucket, &facts));
    let headers = codec::step_down_headers(&notice);
    let client = bucket.api.connection.client();
    let said = async {
        let published = client.publish_with_headers(subject, headers, Bytes::new()).await;
        published.map_err(|e| {
            LockError::with_source(
                LockErrorKind::Unavailable,
                "cannot send the step-down notice",
                e,
            )
        })?;
        let flushed = client.flush().await;
        flushed.map_err(|e| {
            LockError::with_source(
                LockErrorKind::OutcomeUnknown,
                "cannot send the step-down notice",
                e,
            )
        })
    };
    tokio::time::timeout(STEP_DOWN_TIMEOUT, said).await.unwrap_or_else(|_| {
        let message = format!("notice in {name} did not leave in {STEP_DOWN_TIMEOUT:?}");
        Err(LockError::new(LockErrorKind::OutcomeUnknown, message))
    })
}
