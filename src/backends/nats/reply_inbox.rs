//! Requests and their responses, on one subscription per connection.
//!
//! The client's own requests work alike, but keep the state of a request until its response arrives
//! (async-nats 0.51): each lost reply leaks a few hundred bytes, which adds up in a process that
//! campaigns in many elections and outlives many restarts of servers.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::events::{ConnectionEvent, ConnectionEvents};
use crate::util::locked;
use async_nats::{Client, HeaderMap, Message, PublishError, Subject, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// After how many requests in a row without a response a plain client opens its inbox again: a
/// server drops a subscription that it does not permit any more, and only the event callback learns
/// of that.
const MAX_UNANSWERED: u32 = 4;
/// How long an inbox brings no response until then: longer than requests of elections wait.
const SILENCE: Duration = Duration::from_secs(5);

/// The requests of one connection, and the responses to them.
#[derive(Debug, Default)]
pub(super) struct Replies {
    inboxes: tokio::sync::Mutex<Inboxes>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Inboxes {
    current: Option<Inbox>,
    /// The one before, whose requests may still be answered.
    retired: Option<Inbox>,
}

/// A subscription, and the task that sends requests and dispatches their responses.
#[derive(Debug)]
struct Inbox {
    requests: Arc<Requests>,
    task: JoinHandle<()>,
    opened: Instant,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The requests that wait for responses to one subscription.
#[derive(Debug)]
struct Requests {
    /// The subject of responses, without the last token.
    subject: String,
    /// What is subscribed to.
    inbox: String,
    /// What the last token is computed with: others may read this inbox, and have the server send
    /// an acknowledgement of their own write there. They cannot know where one is awaited.
    key: RandomState,
    in_flight: Mutex<InFlight>,
    /// Notified when there are requests to send.
    queued: Notify,
}

/// By number.
#[derive(Debug, Default)]
struct InFlight {
    waiting: HashMap<u64, oneshot::Sender<Result<Message, NoReply>>>,
    unsent: BTreeMap<u64, Box<Request>>,
    /// How many requests were given up since the last response.
    unanswered: u32,
    /// When the last response came.
    answered: Option<Instant>,
    /// How the subscription ended, which may be before the request for which it was opened.
    ended: Option<InboxEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InboxEnd {
    /// The server denies the permission to subscribe.
    Denied,
    Closed,
}

/// What to send.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) subject: Subject,
    pub(super) headers: Option<HeaderMap>,
    pub(super) payload: Bytes,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum NoReply {
    Unsubscribed(SubscribeError),
    Unpublished(PublishError),
    /// The server denies the permission to publish to this subject.
    Denied(Subject),
    /// The server denies the permission to subscribe to this subject.
    InboxDenied(String),
    /// The connection is closed.
    Closed,
}

impl Replies {
    /// Sends a request, and waits for its response without a timeout. `events`: from now on.
    ///
    /// If the future is dropped, the request may have been sent.
    pub(super) async fn request(
        &self,
        client: &Client,
        mut events: ConnectionEvents,
        request: Box<Request>,
    ) -> Result<Message, NoReply> {
        let subject = request.subject.clone();
        let (requests, number, answer) = {
            let requests = self.requests(client, &events).await.map_err(NoReply::Unsubscribed)?;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let answer = requests.add(number, request);
            (requests, number, answer)
        };
        let _forgets = Forget { requests: &requests, number };
        tokio::select! {
            answer = answer => answer.unwrap_or(Err(NoReply::Closed)),
            () = events.until(|event| {
                matches!(event, ConnectionEvent::PublishDenied(denied) if **denied == *subject)
            }) => Err(NoReply::Denied(subject)),
        }
    }

    /// Returns the inbox for responses. Subscribes at the first use, and again after the
    /// subscription has ended, was denied, or brings no responses.
    async fn requests(
        &self,
        client: &Client,
        events: &ConnectionEvents,
    ) -> Result<Arc<Requests>, SubscribeError> {
        let mut inboxes = self.inboxes.lock().await;
        let serves = |inbox: &&Inbox| {
            let is_silent = events.0.is_none() && inbox.is_silent(Instant::now());
            !inbox.task.is_finished() && !is_silent
        };
        if let Some(inbox) = inboxes.current.as_ref().filter(serves) {
            return Ok(Arc::clone(&inbox.requests));
        }
        let next = Box::pin(Inbox::open(client, events.resubscribed())).await?; // rare, and large
        let requests = Arc::clone(&next.requests);
        inboxes.retired = inboxes.current.replace(next);
        Ok(requests)
    }
}

impl Inbox {
    fn is_silent(&self, now: Instant) -> bool {
        let in_flight = locked(&self.requests.in_flight);
        let since = in_flight.answered.unwrap_or(self.opened);
        in_flight.unanswered >= MAX_UNANSWERED && now.duration_since(since) >= SILENCE
    }

    async fn open(client: &Client, events: ConnectionEvents) -> Result<Self, SubscribeError> {
        let subject = client.new_inbox();
        let inbox = format!("{subject}.*");
        let answers = client.subscribe(inbox.clone()).await?;
        let requests = Arc::new(Requests::new(subject, inbox));
        let task = tokio::spawn(Arc::clone(&requests).exchange(client.clone(), answers, events));
        Ok(Self { requests, task, opened: Instant::now() })
    }
}

impl Requests {
    fn new(subject: String, inbox: String) -> Self {
        let (key, in_flight, queued) = (RandomState::new(), Mutex::default(), Notify::new());
        Self { subject, inbox, key, in_flight, queued }
    }

    /// Queues a request, and returns where its response arrives.
    fn add(
        &self,
        number: u64,
        request: Box<Request>,
    ) -> oneshot::Receiver<Result<Message, NoReply>> {
        let (sender, answer) = oneshot::channel();
        let mut in_flight = locked(&self.in_flight);
        if let Some(end) = in_flight.ended {
            drop(in_flight);
            self.refuse(sender, end);
            return answer;
        }
        in_flight.waiting.insert(number, sender);
        in_flight.unsent.insert(number, request);
        drop(in_flight);
        self.queued.notify_one();
        answer
    }

    /// Answers the requests that wait, and those that come later.
    fn end(&self, end: InboxEnd) {
        let waiting = {
            let mut in_flight = locked(&self.in_flight);
            in_flight.ended = Some(end);
            std::mem::take(&mut in_flight.waiting)
        };
        for request in waiting.into_values() {
            self.refuse(request, end);
        }
    }

    fn refuse(&self, request: oneshot::Sender<Result<Message, NoReply>>, end: InboxEnd) {
        let why = match end {
            InboxEnd::Denied => NoReply::InboxDenied(self.inbox.clone()),
            InboxEnd::Closed => NoReply::Closed,
        };
        let _ = request.send(Err(why)); // an error: it was dropped
    }

    /// Sends what is queued, and dispatches responses until the subscription ends or is denied.
    async fn exchange(
        self: Arc<Self>,
        client: Client,
        mut answers: Subscriber,
        mut events: ConnectionEvents,
    ) {
        let end = loop {
            tokio::select! {
                // Also while no request waits, as when a server reads its configuration again: it
                // drops the subscription, and says so once.
                () = events.until(|event| {
                    matches!(event, ConnectionEvent::SubscribeDenied(denied) if **denied == *self.inbox)
                }) => break InboxEnd::Denied,
                answer = answers.next() => match answer {
                    Some(answer) => self.dispatch(answer),
                    None => break InboxEnd::Closed,
                },
                () = self.queued.notified() => {
                    // Elections that were woken with this one queue their requests first. Then the
                    // client sends all in one write to its socket, and the server responds alike.
                    tokio::task::yield_now().await;
                    self.send_queued(&client).await;
                }
            }
        };
        self.end(end);
    }

    /// The last token of the reply subject of a request.
    fn token(&self, number: u64) -> String {
        format!("{number}-{:016x}", self.key.hash_one(number))
    }

    fn dispatch(&self, answer: Message) {
        let token = answer.subject.rsplit('.').next().unwrap_or_default();
        let number = token.split_once('-').and_then(|(number, _)| number.parse().ok());
        let Some(number) = number.filter(|number| self.token(*number) == token) else { return };
        let request = {
            let mut in_flight = locked(&self.in_flight);
            (in_flight.unanswered, in_flight.answered) = (0, Some(Instant::now()));
            in_flight.waiting.remove(&number)
        };
        if let Some(request) = request {
            let _ = request.send(Ok(answer)); // an error means that the request was dropped
        }
    }

    async fn send_queued(&self, client: &Client) {
        let count = locked(&self.in_flight).unsent.len(); // those that come meanwhile notify again
        for _ in 0..count {
            let Some((number, request)) = locked(&self.in_flight).unsent.pop_first() else {
                return;
            };
            let Request { subject, headers, payload } = *request;
            let reply = format!("{}.{}", self.subject, self.token(number));
            let sent = match headers {
                Some(headers) => {
                    client.publish_with_reply_and_headers(subject, reply, headers, payload).await
                }
                None => client.publish_with_reply(subject, reply, payload).await,
            };
            if let Err(error) = sent
                && let Some(request) = locked(&self.in_flight).waiting.remove(&number)
            {
                let _ = request.send(Err(NoReply::Unpublished(error))); // as above
            }
        }
    }
}

/// Removes a request that has ended.
struct Forget<'a> {
    requests: &'a Requests,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut in_flight = locked(&self.requests.in_flight);
        if in_flight.waiting.remove(&self.number).is_some() {
            in_flight.unanswered = in_flight.unanswered.saturating_add(1);
        }
        let unsent = in_flight.unsent.remove(&self.number);
        drop(in_flight);
        drop(unsent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server may deny the inbox before the request for which it was opened is queued.
    #[tokio::test]
    async fn requests_that_come_after_the_end_of_the_inbox_are_answered() {
        let requests = Requests::new("_INBOX.a".into(), "_INBOX.a.*".into());
        let request =
            || Box::new(Request { subject: "a".into(), headers: None, payload: Bytes::new() });
        let waiting = requests.add(0, request());
        requests.end(InboxEnd::Denied);
        for answer in [waiting, requests.add(1, request())] {
            let denied = answer.await.expect("an answer").unwrap_err();
            assert!(matches!(denied, NoReply::InboxDenied(inbox) if inbox == "_INBOX.a.*"));
        }
    }
}
