//! A connection to a server, and requests to its JetStream.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, response::Response};
use async_nats::{Event, ServerError};
use incumbent::nats::{self, BucketConfig, BucketErrorKind, ConnectionSettings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};

use super::args::DEFAULT_TIMEOUT;
use crate::error::one_line;
use crate::error::{CliError, Code};

/// How many permission errors may wait to be read.
const REFUSALS: usize = 64;

/// The prefix of a permission error.
const VIOLATION: &str = "permissions violation for ";

/// A connection with its JetStream context. Cheap to clone.
#[derive(Clone)]
pub struct Session {
    connection: nats::Connection,
    jetstream: jetstream::Context,
    refusals: Refusals,
    api_prefix: Option<String>,
    timeout: Duration,
}

/// Permission errors, which the server sends apart from the response.
#[derive(Clone)]
pub struct Refusals {
    messages: broadcast::Sender<Arc<str>>,
    inbox: Arc<str>,
}

impl Refusals {
    pub fn new(settings: &ConnectionSettings) -> Self {
        let inbox = settings.inbox_prefix.as_deref().unwrap_or("_INBOX").into();
        Self { messages: broadcast::Sender::new(REFUSALS), inbox }
    }

    pub fn observe(&self, event: &Event) {
        let Event::ServerError(ServerError::Other(message)) = event else { return };
        if message.to_ascii_lowercase().starts_with(VIOLATION) {
            let _ = self.messages.send(message.as_str().into()); // an error: there is no receiver
        }
    }

    /// Whether the denied permission blocks a request: it cannot be sent, or its response cannot be
    /// received. Other subscriptions are optional.
    fn blocks_requests(&self, refusal: &str) -> bool {
        let text = refusal.to_ascii_lowercase();
        let inbox = format!("\"{}.", self.inbox.to_ascii_lowercase());
        let right = text.strip_prefix(VIOLATION).unwrap_or_default();
        right.starts_with("publish") || right.contains(&inbox)
    }

    async fn next(&self) -> Arc<str> {
        next_refusal(&mut self.messages.subscribe(), |it| self.blocks_requests(it)).await
    }
}

/// The next permission error that fits. Cancel safe.
pub async fn next_refusal(
    refusals: &mut broadcast::Receiver<Arc<str>>,
    fits: impl Fn(&str) -> bool,
) -> Arc<str> {
    loop {
        match refusals.recv().await {
            Ok(refusal) if fits(&refusal) => return refusal,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

/// Whether a request is limited in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounded {
    /// It times out after `--timeout`.
    Yes,
    /// It lasts as long as data arrives.
    No,
}

impl Session {
    /// Connects, never in the background. The error is one line without a secret.
    pub async fn connect(settings: &ConnectionSettings) -> Result<Self, CliError> {
        let mut settings = settings.clone();
        settings.in_background = false;
        let refusals = Refusals::new(&settings);
        let noted = refusals.clone();
        let connection = settings.connect(move |event| noted.observe(event)).await;
        let connection = connection.map_err(|error| match error.kind() {
            BucketErrorKind::Unusable => CliError::new(Code::Usage, one_line(&error)),
            _ => error.into(),
        })?;
        let client = connection.client().clone();
        let mut jetstream = match &settings.api_prefix {
            Some(prefix) => jetstream::with_prefix(client, prefix),
            None => jetstream::new(client),
        };
        let timeout = settings.timeout.unwrap_or(DEFAULT_TIMEOUT);
        jetstream.set_timeout(timeout);
        let api_prefix = settings.api_prefix.clone();
        Ok(Self { connection, jetstream, refusals, api_prefix, timeout })
    }

    pub fn connection(&self) -> nats::Connection {
        self.connection.clone()
    }

    pub fn client(&self) -> &async_nats::Client {
        self.connection.client()
    }

    /// The configuration of an election bucket, with the settings of the connection.
    pub fn config(&self, bucket: &str) -> BucketConfig {
        let config = BucketConfig::new(bucket);
        match &self.api_prefix {
            Some(prefix) => config.api_prefix(prefix),
            None => config,
        }
    }

    pub fn api_prefix(&self) -> Option<&str> {
        self.api_prefix.as_deref()
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Permission errors from now on, in the server's words.
    pub fn refusals(&self) -> broadcast::Receiver<Arc<str>> {
        self.refusals.messages.subscribe()
    }

    /// The client's handle of a bucket.
    pub async fn store(&self, bucket: &str) -> Result<jetstream::kv::Store, CliError> {
        check_bucket(bucket)?;
        self.request(&format!("bucket {bucket}"), self.jetstream.get_key_value(bucket)).await
    }

    /// Awaits the response to a request. Fails after `--timeout`, and at once if permission is
    /// denied.
    pub async fn request<T, E: Error + 'static>(
        &self,
        operation: &str,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CliError> {
        self.wait(operation, Bounded::Yes, async {
            request.await.map_err(|error| CliError::from_request(operation, &error))
        })
        .await
    }

    /// Awaits any work that a denied permission would block.
    pub async fn wait<T>(
        &self,
        operation: &str,
        bounded: Bounded,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        // Some calls are two requests: the client's own timeouts must end first.
        let limit = self.timeout.saturating_mul(2);
        tokio::select! {
            biased;
            refusal = self.refusals.next() => Err(denied(operation, &refusal)),
            answer = work => answer,
            () = tokio::time::sleep(limit), if bounded == Bounded::Yes => Err(CliError::timed_out(operation)),
        }
    }

    /// A request to the JetStream API, below its prefix.
    pub async fn api<V: DeserializeOwned>(
        &self,
        operation: &str,
        subject: &str,
        payload: &impl Serialize,
    ) -> Result<V, CliError> {
        let request = self.jetstream.request(subject.to_owned(), payload);
        match self.request(operation, request).await? {
            Response::Ok(answer) => Ok(answer),
            Response::Err { error } => Err(CliError::from_response(operation, &error)),
        }
    }

    /// The server's description of a bucket, with fields unknown to the client.
    pub async fn info(&self, bucket: &str) -> Result<Value, CliError> {
        check_bucket(bucket)?;
        let subject = format!("STREAM.INFO.KV_{bucket}");
        self.api(&format!("bucket {bucket}"), &subject, &serde_json::json!({})).await
    }
}

fn denied(operation: &str, refusal: &str) -> CliError {
    let right = refusal.split_once(" for ").map_or(refusal, |(_, right)| right);
    let message = format!("{operation}: permission denied: {}", lower_first(right));
    CliError::new(Code::Denied, message)
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |c| c.to_lowercase().chain(letters).collect())
}

/// Refuses an invalid bucket name.
pub fn check_bucket(name: &str) -> Result<(), CliError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !name.is_empty() && name.bytes().all(fits) {
        return Ok(());
    }
    let rule = "use the letters a-z, A-Z, 0-9, '-' and '_'";
    Err(CliError::new(Code::Usage, format!("{name:?} is not a valid bucket name: {rule}")))
}
