//! Requests and their responses, on one subscription per connection.
//!
//! The client's own requests work alike, but keep the state of a request until its response arrives
//! (async-nats 0.51): each lost reply leaks a few hundred bytes, which adds up in a process that
//! campaigns in many elections and outlives many restarts of servers.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::events::ConnectionEvents;
use crate::util::locked;
use async_nats::{Client, HeaderMap, Message, PublishError, Subject, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// The requests of one connection, and the responses to them.
#[derive(Debug, Default)]
pub(super) struct Replies {
    inbox: tokio::sync::Mutex<Option<Inbox>>,
    next: AtomicU64,
}

/// A subscription, and the task that sends requests and dispatches their responses.
#[derive(Debug)]
struct Inbox {
    requests: Arc<Requests>,
    task: JoinHandle<()>,
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
    /// Whether the server has denied it.
    denied: AtomicBool,
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
    waiting: HashMap<u64, oneshot::Sender<Result<Message, PublishError>>>,
    unsent: BTreeMap<u64, Box<Request>>,
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
            let requests = self.requests(client).await.map_err(NoReply::Unsubscribed)?;
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let answer = requests.add(number, request);
            (requests, number, answer)
        };
        let _forgets = Forget { requests: &requests, number };
        tokio::select! {
            answer = answer => match answer {
                Ok(answer) => answer.map_err(NoReply::Unpublished),
                Err(_) => Err(NoReply::Closed),
            },
            denies_publishing = events.denied(&subject, &requests.inbox) => match denies_publishing {
                true => Err(NoReply::Denied(subject)),
                false => {
                    requests.denied.store(true, Ordering::Relaxed);
                    Err(NoReply::InboxDenied(requests.inbox.clone()))
                }
            },
        }
    }

    /// Returns the inbox for responses. Subscribes at the first use, and again after the
    /// subscription has ended or was denied.
    async fn requests(&self, client: &Client) -> Result<Arc<Requests>, SubscribeError> {
        let mut inbox = self.inbox.lock().await;
        let open = match inbox.take().filter(Inbox::is_open) {
            Some(open) => open,
            None => Box::pin(Inbox::open(client)).await?, // rare, and large
        };
        Ok(Arc::clone(&inbox.insert(open).requests))
    }
}

impl Inbox {
    fn is_open(&self) -> bool {
        !self.task.is_finished() && !self.requests.denied.load(Ordering::Relaxed)
    }

    async fn open(client: &Client) -> Result<Self, SubscribeError> {
        let subject = client.new_inbox();
        let inbox = format!("{subject}.*");
        let answers = client.subscribe(inbox.clone()).await?;
        let requests = Arc::new(Requests {
            subject,
            inbox,
            denied: AtomicBool::new(false),
            key: RandomState::new(),
            in_flight: Mutex::default(),
            queued: Notify::new(),
        });
        let task = tokio::spawn(Arc::clone(&requests).exchange(client.clone(), answers));
        Ok(Self { requests, task })
    }
}

impl Requests {
    /// Queues a request, and returns where its response arrives.
    fn add(
        &self,
        number: u64,
        request: Box<Request>,
    ) -> oneshot::Receiver<Result<Message, PublishError>> {
        let (sender, answer) = oneshot::channel();
        let mut in_flight = locked(&self.in_flight);
        in_flight.waiting.insert(number, sender);
        in_flight.unsent.insert(number, request);
        drop(in_flight);
        self.queued.notify_one();
        answer
    }

    /// Sends what is queued, and dispatches responses until the subscription ends.
    async fn exchange(self: Arc<Self>, client: Client, mut answers: Subscriber) {
        loop {
            tokio::select! {
                answer = answers.next() => match answer {
                    Some(answer) => self.dispatch(answer),
                    None => break,
                },
                () = self.queued.notified() => {
                    // Elections that were woken with this one queue their requests first. Then the
                    // client sends all in one write to its socket, and the server responds alike.
                    tokio::task::yield_now().await;
                    self.send_queued(&client).await;
                }
            }
        }
        locked(&self.in_flight).waiting.clear();
    }

    /// The last token of the reply subject of a request.
    fn token(&self, number: u64) -> String {
        format!("{number}-{:016x}", self.key.hash_one(number))
    }

    fn dispatch(&self, answer: Message) {
        let token = answer.subject.rsplit('.').next().unwrap_or_default();
        let number = token.split_once('-').and_then(|(number, _)| number.parse().ok());
        let Some(number) = number.filter(|number| self.token(*number) == token) else { return };
        let request = locked(&self.in_flight).waiting.remove(&number);
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
                let _ = request.send(Err(error)); // as above
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
        in_flight.waiting.remove(&self.number);
        let unsent = in_flight.unsent.remove(&self.number);
        drop(in_flight);
        drop(unsent);
    }
}
