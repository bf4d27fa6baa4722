//! Requests and their responses, on one subscription per connection.
//!
//! The client's own requests work alike, but keep the state of a request until its response arrives
//! (async-nats 0.51): each lost reply leaks a few hundred bytes, which adds up in a process that
//! campaigns in many elections and outlives many restarts of servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Client, HeaderMap, Message, PublishError, SubscribeError};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Requests in flight, by the last token of their reply subject.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Message>>>>;

/// The responses to one connection's requests.
#[derive(Debug, Default)]
pub(super) struct Replies {
    inbox: tokio::sync::Mutex<Option<Inbox>>,
    next: AtomicU64,
}

/// A subscription, and the task that dispatches its messages.
#[derive(Debug)]
struct Inbox {
    subject: Arc<str>,
    waiting: Waiting,
    task: JoinHandle<()>,
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum NoReply {
    Unsubscribed(SubscribeError),
    Unpublished(PublishError),
    /// The connection is closed.
    Closed,
}

impl Replies {
    /// Sends a request, and waits for its response without a timeout.
    ///
    /// If the future is dropped, the request may have been sent.
    pub(super) async fn request(
        &self,
        client: &Client,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, NoReply> {
        let (inbox, waiting) = self.inbox(client).await.map_err(NoReply::Unsubscribed)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&waiting).insert(number, sender);
        let _forgets = Forget { waiting: &waiting, number };
        let reply = format!("{inbox}.{number}");
        let sent = match headers {
            Some(headers) => {
                client.publish_with_reply_and_headers(subject, reply, headers, payload).await
            }
            None => client.publish_with_reply(subject, reply, payload).await,
        };
        sent.map_err(NoReply::Unpublished)?;
        answer.await.map_err(|_| NoReply::Closed)
    }

    /// Returns the inbox for responses. Subscribes at the first use, and again after the
    /// subscription has ended.
    async fn inbox(&self, client: &Client) -> Result<(Arc<str>, Waiting), SubscribeError> {
        let mut inbox = self.inbox.lock().await;
        let open = match inbox.take().filter(|inbox| !inbox.task.is_finished()) {
            Some(open) => open,
            None => Inbox::open(client).await?,
        };
        let open = inbox.insert(open);
        Ok((Arc::clone(&open.subject), Arc::clone(&open.waiting)))
    }
}

impl Inbox {
    async fn open(client: &Client) -> Result<Self, SubscribeError> {
        let subject: Arc<str> = client.new_inbox().into();
        let mut answers = client.subscribe(format!("{subject}.*")).await?;
        let waiting = Waiting::default();
        let dispatched = Arc::clone(&waiting);
        let task = tokio::spawn(async move {
            while let Some(answer) = answers.next().await {
                let number = answer.subject.rsplit('.').next().and_then(|token| token.parse().ok());
                let request = number.and_then(|number: u64| lock(&dispatched).remove(&number));
                if let Some(request) = request {
                    let _ = request.send(answer); // an error means that the request was dropped
                }
            }
            lock(&dispatched).clear();
        });
        Ok(Self { subject, waiting, task })
    }
}

/// Removes a request that has ended.
struct Forget<'a> {
    waiting: &'a Waiting,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.waiting).remove(&self.number);
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Message>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
