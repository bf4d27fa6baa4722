//! The subscription of a bucket, which receives hints for all its elections.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{AbortHandle, Abortable, SelectAll, abortable};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, warn};

use super::codec;
use super::error::BucketErrorKind;
use super::events::{ConnectionEvent, ConnectionEvents};
use super::state::{BucketState, HintNote};
use super::stream::StreamFacts;
use super::subscription_plan::{Subject, SubscriptionPlan, hint_prefix, subject};
use crate::backends::hint_hub::{HintHub, Interest, Listen};
use crate::lock::roll_call::parse_call;
use crate::lock::{Coverage, Hint, LockError, LockErrorKind, Record, StepDownNotice};

/// The timeout of sending a step-down notice.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// How often to check the connection; a client without a watch does not report changes.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The timeout of the confirmation of a subscription.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The minimum time between two rechecks of all elections, while messages keep being dropped.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long to wait for further elections before a queue group is joined for all of them.
const JOIN_DELAY: Duration = Duration::from_millis(20);

/// How long after a message that is not stored yet to read its outcome.
const STORE_DELAY: Duration = Duration::from_millis(25);

impl Listen for BucketState {
    type Note = HintNote;

    fn hub(&self) -> &HintHub<HintNote> {
        &self.hub
    }

    fn listen(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        listen(self)
    }
}

/// Receives the hints of a bucket until the future is dropped.
async fn listen(bucket: Arc<BucketState>) {
    let bucket = &bucket;
    let mut listener = Listener {
        events: bucket.api.connection.events(),
        bucket,
        subscriptions: Subscriptions::default(),
        denied: HashSet::new(),
        epoch: 0,
        received: false,
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
            Some(plan) => listener.run(plan).await,
            None => {
                bucket.announce(Coverage::None, Interest::All);
                listener.subscriptions = Subscriptions::default();
                listener.pause().await;
            }
        }
    }
}

struct Listener<'a> {
    bucket: &'a Arc<BucketState>,
    events: ConnectionEvents,
    subscriptions: Subscriptions,
    /// Subjects without permission to subscribe on this connection, or without messages on it.
    denied: HashSet<String>,
    /// The epoch of the connection.
    epoch: u64,
    /// Whether a hint has come on this connection. Until then it joins no queue group: as one of
    /// its members, it would not notice that no hints reach it at all.
    received: bool,
    /// Elections to recheck, and when.
    due: Vec<(Instant, Arc<str>)>,
    /// When to recheck all elections because messages were lost, and when that was done last.
    recheck: Option<Instant>,
    rechecked: Option<Instant>,
}

impl Listener<'_> {
    /// Subscribes, and waits until the server has processed the subscription. The server responds
    /// in order, so the response to a later request proves it; the leader of the stream, which
    /// sends this response, then knows the subscription as well.
    async fn establish(&mut self, wanted: Interest) -> Option<SubscriptionPlan> {
        let connection = &self.bucket.api.connection;
        if !connection.is_connected() {
            return None;
        }
        let epoch = connection.epoch();
        if epoch != self.epoch {
            self.denied.clear();
            (self.epoch, self.received) = (epoch, false);
        }
        let facts = match self.bucket.facts(CONFIRM_TIMEOUT).await {
            Ok(facts) => facts,
            Err(error) => {
                debug!(bucket = %self.bucket.api.bucket(), %error, "reading the bucket failed: no hints");
                return None;
            }
        };
        let received = self.received;
        let plan = self.plan(&facts, wanted.clone(), received);
        let mut subscriptions = Subscriptions::default();
        subscriptions.update(self.bucket, &plan).await?;
        let info = self.bucket.request_info(CONFIRM_TIMEOUT).await;
        let facts = match info {
            Ok(info) => self.bucket.learn(&info, false).ok()?,
            Err(error) if error.kind() == BucketErrorKind::Denied => facts, // also a response
            Err(_) => return None,
        };
        // The new subscription is active: forward the remaining messages of the old one before it
        // is dropped.
        while let Some(Some(message)) =
            futures_util::FutureExt::now_or_never(self.subscriptions.messages.next())
        {
            self.forward(&plan, &facts, message);
        }
        self.subscriptions = subscriptions;
        if self.plan(&facts, wanted, received) != plan {
            return None; // the bucket was just created again with other settings
        }
        self.bucket.announce(plan.coverage, plan.wanted.clone());
        Some(plan)
    }

    fn plan(&self, facts: &StreamFacts, wanted: Interest, received: bool) -> SubscriptionPlan {
        SubscriptionPlan::new(self.bucket, facts, wanted, &self.denied, received)
    }

    /// Receives hints until a new subscription is necessary.
    async fn run(&mut self, mut plan: SubscriptionPlan) {
        let bucket = self.bucket;
        let mut tick = tokio::time::interval(CHECK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = self.subscriptions.messages.next(), if !self.subscriptions.messages.is_empty() => match message {
                    Some(message) => {
                        let Some(facts) = bucket.known_facts() else { return };
                        self.forward(&plan, &facts, message);
                        if self.received && plan.may_join_group() {
                            plan = self.plan(&facts, plan.wanted, true);
                            if self.subscriptions.update(bucket, &plan).await.is_none() {
                                return self.lost();
                            }
                            bucket.announce(plan.coverage, plan.wanted.clone());
                        }
                    }
                    None => return self.lost(),
                },
                notice = self.events.next() => match notice {
                    ConnectionEvent::SubscribeDenied(subject) if plan.is_of_calls(&subject) => {
                        debug!(%subject, "permission to subscribe denied: no roll calls");
                        self.denied.insert(subject.to_string());
                    }
                    ConnectionEvent::SubscribeDenied(subject) if plan.includes(&subject) => {
                        warn!(bucket = %bucket.api.bucket(), %subject, "permission to subscribe denied");
                        self.denied.insert(subject.to_string());
                        return bucket.announce(Coverage::None, Interest::All);
                    }
                    ConnectionEvent::Link if self.connection_changed() => return self.lost(),
                    ConnectionEvent::Missed => self.missed(),
                    _ => {}
                },
                _ = tick.tick() => if self.connection_changed() { return self.lost() },
                () = election_due(&self.due) => {
                    let now = Instant::now();
                    let (due, later) = self.due.drain(..).partition(|(at, _)| *at <= now);
                    self.due = later;
                    for (_, name) in Vec::from_iter::<Vec<(Instant, Arc<str>)>>(due) {
                        bucket.send(&name, &Hint::Recheck);
                    }
                }
                () = recheck_due(self.recheck) => {
                    (self.recheck, self.rechecked) = (None, Some(Instant::now()));
                    bucket.announce(plan.coverage, plan.wanted.clone()); // none is missing any more
                    bucket.hub.send_all(&Hint::Recheck);
                }
                () = bucket.hints_lost() => {
                    warn!(bucket = %bucket.api.bucket(), "no hints received: check the permission to subscribe");
                    self.denied.extend(plan.hints.iter().map(|under| subject(under, &plan.wanted)));
                    return bucket.announce(Coverage::None, Interest::All);
                }
                () = bucket.hub.interest_changed() => match bucket.hub.interest() {
                    Some(wanted) if plan.covers(bucket, &wanted) => {
                        if self.subscriptions.update(bucket, &plan).await.is_none() {
                            return self.lost();
                        }
                    }
                    _ => {
                        if plan.coverage == Coverage::Sampled {
                            tokio::time::sleep(JOIN_DELAY).await; // thousands may join at once
                        }
                        return; // the old subscription stays until the new one is active
                    }
                }
            }
        }
    }

    fn connection_changed(&self) -> bool {
        let connection = &self.bucket.api.connection;
        !connection.is_connected() || connection.epoch() != self.epoch
    }

    /// Handles dropped messages, which arrived faster than they were processed: the affected
    /// elections are unknown.
    fn missed(&mut self) {
        self.bucket.on_dropped_hints();
        if self.recheck.is_none() {
            debug!(bucket = %self.bucket.api.bucket(), "hints were dropped: all elections recheck");
            let now = Instant::now();
            self.recheck =
                Some(self.rechecked.map_or(now, |last| now.max(last + RECHECK_INTERVAL)));
        }
    }

    fn lost(&mut self) {
        debug!(bucket = %self.bucket.api.bucket(), "connection lost: no hints until it is back");
        self.bucket.announce(Coverage::None, Interest::All);
    }

    /// Waits before the next attempt, or until something changes.
    async fn pause(&mut self) {
        let connected = self.bucket.api.connection.is_connected();
        tokio::select! {
            () = tokio::time::sleep(if connected { RETRY_DELAY } else { CHECK_INTERVAL }) => {}
            () = self.bucket.hub.interest_changed() => {
                // Many elections may join while there is no connection: they share one attempt.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // What the server denies comes with each attempt: it is no reason for the next.
            () = self.events.until(|event| *event == ConnectionEvent::Link) => {}
        }
    }

    fn forward(&mut self, plan: &SubscriptionPlan, facts: &StreamFacts, message: Message) {
        let bucket = self.bucket;
        let hinted = plan.hints.as_deref().and_then(|under| message.subject.strip_prefix(under));
        if let Some(name) = hinted {
            let stream = format!("KV_{}", self.bucket.api.bucket());
            let republished = codec::republished(&message.headers, &stream);
            self.received |= republished.is_some();
            if !bucket.hub.has(name) {
                return;
            }
            if let Some(republished) = republished {
                let content = codec::content(&message.headers, &message.payload, facts.expiry());
                let record = Record { revision: republished.revision, content };
                let age = republished.stored_at.and_then(|at| self.bucket.age(at));
                bucket.send(name, &Hint::Stored { record, previous: republished.previous, age });
            } else if let Some(notice) = codec::notice(&message.headers) {
                bucket.send(name, &Hint::SteppedDown(notice));
            }
            return;
        }
        let after = |prefix: &Option<String>| {
            prefix.as_deref().and_then(|prefix| message.subject.strip_prefix(prefix))
        };
        let called = after(&plan.calls);
        if let Some(name) = called.or_else(|| after(&plan.controls)) {
            let call = parse_call(&message.payload);
            if let Some(call) = call.filter(|call| called.is_none() || call.request.is_question()) {
                bucket.send(name, &Hint::RollCall(call));
            }
            return;
        }
        let written = after(&plan.writes);
        if let Some(name) = written
            && codec::is_forced(&message.headers)
            && bucket.hub.has(name)
            && !self.due.iter().any(|(_, due)| **due == *name)
        {
            self.due.push((Instant::now() + STORE_DELAY, Arc::from(name)));
        }
    }
}

/// Open subscriptions, and their messages.
#[derive(Default)]
struct Subscriptions {
    messages: SelectAll<Abortable<Subscriber>>,
    /// What ends each of them.
    handles: HashMap<Subject, AbortHandle>,
}

impl Subscriptions {
    /// Subscribes to what is wanted, then ends the subscriptions to what is not: a hint may come
    /// twice, but none is missed between the two. `None` if it cannot.
    async fn update(&mut self, bucket: &BucketState, plan: &SubscriptionPlan) -> Option<()> {
        let (client, wanted) = (bucket.api.connection.client(), plan.subjects(bucket));
        for subject in &wanted {
            if !self.handles.contains_key(subject) {
                let (stream, handle) = abortable(subscribe(client, subject).await?);
                self.messages.push(stream);
                self.handles.insert(subject.clone(), handle);
            }
        }
        self.handles.retain(|subject, handle| {
            let keep = wanted.contains(subject);
            if !keep {
                handle.abort();
            }
            keep
        });
        bucket.hub.set_whole(|name| plan.is_whole(&wanted, name));
        Some(())
    }
}

async fn subscribe(client: &Client, Subject { subject, group }: &Subject) -> Option<Subscriber> {
    let subject = subject.clone();
    let subscribed = async {
        match group {
            Some(group) => client.queue_subscribe(subject, group.to_string()).await,
            None => client.subscribe(subject).await,
        }
    };
    tokio::time::timeout(CONFIRM_TIMEOUT, subscribed).await.ok()?.ok()
}

/// Waits until the subscription is active that a candidate needs before it writes: others answer
/// to a create with what it must not miss. Waits for a quarter of `within` at most, and returns the
/// rest of it.
pub(super) async fn await_all_hints(
    bucket: &BucketState,
    name: &str,
    within: Duration,
) -> Duration {
    if !bucket.hub.lacks_hints(name) {
        return within;
    }
    let start = Instant::now();
    let whole = Box::pin(bucket.hub.whole(name)); // rare, and renewals have no room for it
    let _ = Box::pin(tokio::time::timeout(within / 4, whole)).await; // then the lease decides
    within.saturating_sub(start.elapsed())
}

/// Waits until all elections must recheck; forever if nothing was lost.
async fn recheck_due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until the first election must recheck; forever if there is none.
async fn election_due(due: &[(Instant, Arc<str>)]) {
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
    let sent = async {
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
    tokio::time::timeout(STEP_DOWN_TIMEOUT, sent).await.unwrap_or_else(|_| {
        let message =
            format!("the step-down notice in {name} was not sent within {STEP_DOWN_TIMEOUT:?}");
        Err(LockError::new(LockErrorKind::OutcomeUnknown, message))
    })
}
