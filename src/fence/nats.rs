//! Fences in streams and key-value buckets of NATS.

use std::cmp::Ordering;
use std::time::Duration;

use async_nats::header::HeaderName;
use async_nats::{HeaderMap, HeaderValue, Subject};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::term::FencedTerm;
use super::{FenceError, FenceErrorKind, misconfigured, pause, retry};
use crate::backends::nats::{
    Connection, EXPECTED, JetStream, OPERATION, Published, StreamConfig, StreamFailure, TTL,
    check_key,
};
use crate::election::Leadership;
use crate::lock::Token;
use crate::util::text::escape_line;

/// Of which subject, if not of the one that is published to: nats-server 2.11 and later.
const EXPECTED_OF: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");
const EXPECTED_LAST: HeaderName = HeaderName::from_static("Nats-Expected-Last-Sequence");
const EXPECTED_STREAM: HeaderName = HeaderName::from_static("Nats-Expected-Stream");
const ROLLUP: HeaderName = HeaderName::from_static("Nats-Rollup");

/// What the keys of fences begin with.
const FENCE_KEYS: &str = "_fence.";

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a write, or opening, may take with all its attempts.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The longest pause between attempts while another conditional write is in flight.
const MAX_PAUSE_MS: u64 = 50;

/// A JetStream stream that stores nothing of a former leader.
///
/// As the term begins, [`open`](Self::open) publishes the term's token to the *fence subject* of
/// the stream, once, and refuses if a greater token is there. The stream then stores each message
/// only if that fence is still the last message of its subject, which the server checks as it
/// stores the message. So from the fence of a later term on, no message of an earlier one is
/// stored, however late it arrives.
///
/// The fence subject is one of the stream's subjects that nothing else is published to. Consumers
/// without a filter receive the fence: a message such as `9 my_app`. Only what all leaders
/// publish through this type is fenced.
///
/// Requires nats-server 2.11 or later, and a stream that does not remove the fence by itself:
/// [`open`](Self::open) refuses others. Who purges the fence subject ends the writes of the term.
///
/// The condition names the fence by its sequence. So a stream that was deleted is created again
/// under its name only with a first sequence beyond its last one: otherwise the fence of a later
/// term may have the sequence of an earlier one's.
///
/// ```no_run
/// # async fn work(leadership: incumbent::Leadership, client: async_nats::Client)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent::fence::FencedStream;
///
/// let stream = FencedStream::open(&leadership, client, "ORDERS", "orders.fence").await?;
/// stream.publish("orders.new", "42").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FencedStream {
    fence: Fence,
}

impl FencedStream {
    /// Fences a stream: excludes all earlier terms from it.
    ///
    /// Call it once as the term begins, before what an earlier leader published is read.
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`] and [`TermOver`](FenceErrorKind::TermOver): the term is over.
    /// [`Misconfigured`](FenceErrorKind::Misconfigured): the stream cannot be fenced as it is.
    ///
    /// # Cancel safety
    /// The fence may have been published.
    pub async fn open(
        leadership: &Leadership,
        connection: impl Into<Connection>,
        stream: &str,
        fence_subject: &str,
    ) -> Result<Self, FenceError> {
        let term = FencedTerm::of(leadership);
        let fence = Fence::open(term, connection.into(), stream, fence_subject).await?;
        Ok(Self { fence })
    }

    /// Fences a stream with a token, as [`open`](Self::open) does: for a process that receives the
    /// token from the leader.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    ///
    /// # Cancel safety
    /// The fence may have been published.
    pub async fn with_token(
        election: &str,
        token: Token,
        connection: impl Into<Connection>,
        stream: &str,
        fence_subject: &str,
    ) -> Result<Self, FenceError> {
        let term = FencedTerm::with_token(election, token);
        let fence = Fence::open(term, connection.into(), stream, fence_subject).await?;
        Ok(Self { fence })
    }

    /// Publishes a message, and returns its sequence.
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`] and [`TermOver`](FenceErrorKind::TermOver): the term is over, and
    /// the message was not stored. [`OutcomeUnknown`](FenceErrorKind::OutcomeUnknown): it may have
    /// been. After any other error it was not.
    ///
    /// # Cancel safety
    /// The message may have been stored.
    pub async fn publish(
        &self,
        subject: &str,
        payload: impl Into<Bytes>,
    ) -> Result<u64, FenceError> {
        self.publish_with_headers(subject, HeaderMap::new(), payload).await
    }

    /// Publishes a message with headers, and returns its sequence.
    ///
    /// With a `Nats-Msg-Id` that the stream knows, the sequence is that of the earlier message, and
    /// this one is not stored.
    ///
    /// # Errors
    /// Those of [`publish`](Self::publish). [`Misconfigured`](FenceErrorKind::Misconfigured) for
    /// headers that would replace or remove the fence: `Nats-Expected-…` and `Nats-Rollup`.
    ///
    /// # Cancel safety
    /// The message may have been stored.
    pub async fn publish_with_headers(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: impl Into<Bytes>,
    ) -> Result<u64, FenceError> {
        check_headers(&headers)?;
        self.fence.publish(subject, &headers, payload.into(), None).await
    }
}

/// A key-value bucket that stores nothing of a former leader.
///
/// It is a [`FencedStream`] of the bucket's stream. The fence is the value of the key
/// `_fence.ELECTION`, such as `9 my_app`, which those who list or watch all keys see too. A bucket
/// with a TTL must have limit markers, with which the fence outlives the TTL.
///
/// [`put`](Self::put) replaces a value whatever it is: all leaders write through the fence, so that
/// nobody but this term writes. Tasks of one term that write the same key use
/// [`create`](Self::create) and [`update`](Self::update).
///
/// ```no_run
/// # async fn work(leadership: incumbent::Leadership, client: async_nats::Client)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent::fence::FencedBucket;
///
/// let bucket = FencedBucket::open(&leadership, client, "STATE").await?;
/// bucket.put("position", "42").await?;
/// bucket.delete("draft").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FencedBucket {
    fence: Fence,
    bucket: String,
}

impl FencedBucket {
    /// Fences a bucket: excludes all earlier terms from it.
    ///
    /// Call it once as the term begins, before what an earlier leader wrote is read.
    ///
    /// # Errors
    /// Those of [`FencedStream::open`].
    ///
    /// # Cancel safety
    /// The fence may have been written.
    pub async fn open(
        leadership: &Leadership,
        connection: impl Into<Connection>,
        bucket: &str,
    ) -> Result<Self, FenceError> {
        Self::of(FencedTerm::of(leadership), connection.into(), bucket).await
    }

    /// Fences a bucket with a token, as [`open`](Self::open) does: for a process that receives the
    /// token from the leader.
    ///
    /// # Errors
    /// Those of [`FencedStream::open`].
    ///
    /// # Cancel safety
    /// The fence may have been written.
    pub async fn with_token(
        election: &str,
        token: Token,
        connection: impl Into<Connection>,
        bucket: &str,
    ) -> Result<Self, FenceError> {
        let term = FencedTerm::with_token(election, token);
        Self::of(term, connection.into(), bucket).await
    }

    async fn of(
        term: FencedTerm,
        connection: Connection,
        bucket: &str,
    ) -> Result<Self, FenceError> {
        check_key(&term.election).map_err(misconfigured)?;
        let stream = format!("KV_{bucket}");
        let fence_subject = format!("$KV.{bucket}.{FENCE_KEYS}{}", term.election);
        let fence = Fence::open(term, connection, &stream, &fence_subject).await?;
        Ok(Self { fence, bucket: bucket.to_owned() })
    }

    /// Writes the value of a key, and returns its revision.
    ///
    /// # Errors
    /// Those of [`FencedStream::publish`].
    ///
    /// # Cancel safety
    /// The value may have been written.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<u64, FenceError> {
        self.write(key, HeaderMap::new(), value.into()).await
    }

    /// Writes the value of a key that does not exist, and returns its revision.
    ///
    /// # Errors
    /// [`FenceErrorKind::Conflict`]: it exists. Else those of [`update`](Self::update).
    ///
    /// # Cancel safety
    /// The value may have been written.
    pub async fn create(&self, key: &str, value: impl Into<Bytes>) -> Result<u64, FenceError> {
        self.update(key, value, 0).await
    }

    /// Writes the value of a key that has this revision, and returns the next one.
    ///
    /// A message has one condition on a subject, which is the fence. So the key's revision is read,
    /// and the value is written if the whole bucket has not changed since: three requests, and
    /// again while other keys are written.
    ///
    /// # Errors
    /// [`FenceErrorKind::Conflict`]: it has another revision. Else those of
    /// [`FencedStream::publish`].
    ///
    /// # Cancel safety
    /// The value may have been written.
    pub async fn update(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        revision: u64,
    ) -> Result<u64, FenceError> {
        let subject = self.subject(key)?;
        self.fence.publish(&subject, &HeaderMap::new(), value.into(), Some(revision)).await
    }

    /// Deletes a key, and returns the revision of the marker that says so.
    ///
    /// # Errors
    /// Those of [`FencedStream::publish`].
    ///
    /// # Cancel safety
    /// The key may have been deleted.
    pub async fn delete(&self, key: &str) -> Result<u64, FenceError> {
        let headers = HeaderMap::from_iter([(OPERATION, "DEL".into())]);
        self.write(key, headers, Bytes::new()).await
    }

    /// Deletes a key with its history, and returns the revision of the marker that says so.
    ///
    /// # Errors
    /// Those of [`FencedStream::publish`].
    ///
    /// # Cancel safety
    /// The key may have been deleted.
    pub async fn purge(&self, key: &str) -> Result<u64, FenceError> {
        let headers = HeaderMap::from_iter([(OPERATION, "PURGE".into()), (ROLLUP, "sub".into())]);
        self.write(key, headers, Bytes::new()).await
    }

    async fn write(&self, key: &str, headers: HeaderMap, value: Bytes) -> Result<u64, FenceError> {
        self.fence.publish(&self.subject(key)?, &headers, value, None).await
    }

    /// The subject of a key, unless it is that of a fence, of this election or another.
    fn subject(&self, key: &str) -> Result<String, FenceError> {
        match key.starts_with(FENCE_KEYS) {
            false => Ok(format!("$KV.{}.{key}", self.bucket)),
            true => {
                Err(misconfigured(format!("{key} is the key of a fence: name yours otherwise")))
            }
        }
    }
}

/// The fence of a term in a stream.
struct Fence {
    term: FencedTerm,
    jetstream: JetStream,
    stream: String,
    subject: Subject,
    /// The stream as the value of a header.
    stream_header: HeaderValue,
    /// The subject as the value of a header.
    subject_header: HeaderValue,
    /// The sequence of this term's fence.
    sequence: u64,
    is_replicated: bool,
    /// A replicated stream checks one condition on a subject at a time, and refuses others
    /// meanwhile: they wait here for their turn.
    turns: Semaphore,
}

/// The last message of the fence subject.
struct LastFence {
    sequence: u64,
    /// `None`: there is no fence, or the mark of a deletion.
    token: Option<Token>,
}

impl Fence {
    async fn open(
        term: FencedTerm,
        connection: Connection,
        stream: &str,
        subject: &str,
    ) -> Result<Self, FenceError> {
        term.check()?;
        check_subject(subject)?;
        let (stream_header, subject_header) = (header(stream)?, header(subject)?);
        let jetstream = JetStream::new(connection);
        let config = jetstream.config(stream, REQUEST_TIMEOUT).await;
        let config = config.map_err(|failure| failed(stream, failure, false))?;
        check_retention(stream, &config)?;
        let is_replicated = config.num_replicas > 1;
        let turns = if is_replicated { 1 } else { Semaphore::MAX_PERMITS };
        let mut fence = Self {
            term,
            jetstream,
            stream: stream.to_owned(),
            subject: subject.into(),
            stream_header,
            subject_header,
            sequence: 0,
            is_replicated,
            turns: Semaphore::new(turns),
        };
        fence.sequence = fence.claim(config.allow_msg_ttl).await?;
        fence.check_conditions().await?;
        fence.term.check()?;
        Ok(fence)
    }

    /// Publishes the fence after the one that was read, and returns its sequence.
    async fn claim(&self, with_ttl: bool) -> Result<u64, FenceError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let found = self.read_until(deadline).await?;
            if let Some(token) = found.token {
                self.term.check_found(token)?;
                // An earlier attempt was stored, or another handle of this term.
                if token == self.term.token {
                    return Ok(found.sequence);
                }
            }
            let mut headers = HeaderMap::new();
            headers.insert(EXPECTED, HeaderValue::from(found.sequence));
            headers.insert(EXPECTED_STREAM, self.stream_header.clone());
            if with_ttl {
                headers.insert(TTL, "never");
            }
            match self.send(self.subject.clone(), headers, self.text()).await {
                Ok(published) => self.find(published.sequence, deadline).await?,
                Err(refused @ StreamFailure::Refused(_)) => {
                    return Err(failed(&self.stream, refused, false));
                }
                Err(other) => {
                    pause(deadline, MAX_PAUSE_MS, self.not_stored("the fence", &other)).await?
                }
            }
        }
    }

    /// Waits until the fence that was published, or a later one, can be read.
    async fn find(&self, sequence: u64, deadline: Instant) -> Result<(), FenceError> {
        loop {
            if self.read_until(deadline).await?.sequence >= sequence {
                return Ok(());
            }
            let error = misconfigured(format!(
                "stream {}: it stores what is published to {} under another subject, or removes it",
                self.stream, self.subject
            ));
            // A former leader of the stream does not know of it, and may respond for a while.
            if !self.is_replicated {
                return Err(error);
            }
            pause(deadline, MAX_PAUSE_MS, error).await?;
        }
    }

    /// Checks that the stream stores the fence under its subject, and that the server knows
    /// conditions on another subject. One that does not takes this message for one that continues
    /// the fence, and stores it.
    async fn check_conditions(&self) -> Result<(), FenceError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let unused = header(&format!("{}.unused", self.subject))?;
            let headers = self.conditions(&unused, &HeaderMap::new())?;
            match self.send(self.subject.clone(), headers, self.text()).await {
                Err(StreamFailure::Mismatch) => return Ok(()),
                Ok(_) => {
                    return Err(misconfigured(format!(
                        "stream {}: its server does not check conditions on another subject: use nats-server 2.11 or later",
                        self.stream
                    )));
                }
                Err(refused @ StreamFailure::Refused(_)) => {
                    return Err(failed(&self.stream, refused, false));
                }
                Err(other) => {
                    pause(deadline, MAX_PAUSE_MS, self.not_stored("a check of conditions", &other))
                        .await?;
                }
            }
        }
    }

    /// Publishes a message under the condition that the fence is the last one; and where a revision
    /// is given, that it is that of the key, 0 for none.
    async fn publish(
        &self,
        subject: &str,
        headers: &HeaderMap,
        payload: Bytes,
        revision: Option<u64>,
    ) -> Result<u64, FenceError> {
        if subject == self.subject.as_str() {
            return Err(misconfigured(format!("{subject} is the subject of the fence")));
        }
        check_subject(subject)?;
        let plain = self.conditions(&self.subject_header, headers)?;
        let deadline = Instant::now() + TIMEOUT;
        let _turn = timeout_at(deadline, self.turns.acquire()).await.map_err(|_| {
            let message = format!(
                "stream {}: {subject} is not stored: others are first, for {TIMEOUT:?}",
                self.stream
            );
            FenceError::new(FenceErrorKind::Unavailable, message)
        })?; // never closed
        loop {
            self.term.check()?;
            let headers = match revision {
                Some(revision) => {
                    let last = self.unchanged(subject, revision).await?;
                    self.conditions(&self.subject_header, &last)?
                }
                None => plain.clone(),
            };
            let sent = self.send(subject.into(), headers, payload.clone()).await;
            let error = match sent {
                Ok(published) if !published.duplicate => return Ok(published.sequence),
                // The server has not checked the condition.
                Ok(published) => match self.is_last().await? {
                    true => return Ok(published.sequence),
                    false => self.lost(),
                },
                Err(failure @ (StreamFailure::Mismatch | StreamFailure::InFlight)) => {
                    match self.is_last().await? {
                        true => self.not_stored(subject, &failure),
                        false => self.lost(),
                    }
                }
                Err(failure) => return Err(failed(&self.stream, failure, true)),
            };
            pause(deadline, MAX_PAUSE_MS, error).await?;
        }
    }

    /// Checks that a key has this revision, and returns the condition that the stream has not
    /// changed since.
    async fn unchanged(&self, subject: &str, revision: u64) -> Result<HeaderMap, FenceError> {
        // In this order: a write between the two makes the condition fail.
        let last = self.jetstream.last_sequence(&self.stream, REQUEST_TIMEOUT).await;
        let last = last.map_err(|failure| failed(&self.stream, failure, false))?;
        let found = self.jetstream.last_message(&self.stream, subject, REQUEST_TIMEOUT).await;
        let found = match found {
            Ok(found) if found.is_deletion && revision == 0 => 0,
            Ok(found) => found.sequence,
            Err(StreamFailure::NoMessage) => 0,
            Err(failure) => return Err(failed(&self.stream, failure, false)),
        };
        if found != revision {
            let message = format!("{subject} has the revision {found}, and not {revision}");
            return Err(FenceError::new(FenceErrorKind::Conflict, message));
        }
        Ok(HeaderMap::from_iter([(EXPECTED_LAST, HeaderValue::from(last))]))
    }

    /// Returns whether the fence of this term is the last one, and `false` where it cannot be told
    /// yet: a former leader of a replicated stream does not know of it, and may respond for a
    /// while.
    async fn is_last(&self) -> Result<bool, FenceError> {
        let found = self.read().await?;
        if let Some(token) = found.token {
            self.term.check_found(token)?;
        }
        match found.sequence.cmp(&self.sequence) {
            Ordering::Equal => Ok(true),
            Ordering::Less if self.is_replicated => Ok(false),
            _ => Err(self.lost()),
        }
    }

    fn lost(&self) -> FenceError {
        misconfigured(format!(
            "stream {}: the fence on {} was removed or replaced: nothing is stored in this term; leave that subject alone",
            self.stream, self.subject
        ))
    }

    /// Reads, and again while a stream without a leader does not answer.
    async fn read_until(&self, deadline: Instant) -> Result<LastFence, FenceError> {
        retry(deadline, MAX_PAUSE_MS, || self.read()).await
    }

    async fn read(&self) -> Result<LastFence, FenceError> {
        let last = self.jetstream.last_message(&self.stream, &self.subject, REQUEST_TIMEOUT).await;
        let last = match last {
            Ok(last) => last,
            Err(StreamFailure::NoMessage) => return Ok(LastFence { sequence: 0, token: None }),
            Err(failure) => return Err(failed(&self.stream, failure, false)),
        };
        if last.payload.is_empty() {
            return Ok(LastFence { sequence: last.sequence, token: None });
        }
        let text = String::from_utf8_lossy(&last.payload);
        let parsed = text.split_once(' ').and_then(|(token, election)| {
            (election == &*self.term.election).then_some(Token(token.parse().ok()?))
        });
        match parsed {
            Some(token) => Ok(LastFence { sequence: last.sequence, token: Some(token) }),
            None => Err(misconfigured(format!(
                "stream {}: the last message on {} is not a fence of {}, but {:?}; use a subject for this fence alone",
                self.stream,
                self.subject,
                self.term.election,
                escape_line(&text, 40),
            ))),
        }
    }

    async fn send(
        &self,
        subject: Subject,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Published, StreamFailure> {
        let published = self.jetstream.publish(subject, headers, payload, REQUEST_TIMEOUT).await?;
        // Any subscriber of the subject may respond, too.
        match published.stream == self.stream {
            true => Ok(published),
            false => Err(StreamFailure::Unknown(format!("{} responded", published.stream))),
        }
    }

    /// The error of a message that no attempt has stored.
    fn not_stored(&self, what: &str, failure: &StreamFailure) -> FenceError {
        let why = match failure {
            StreamFailure::Mismatch | StreamFailure::NoMessage => {
                "another write was first, again and again"
            }
            StreamFailure::InFlight => "other conditional writes are in flight",
            StreamFailure::NotApplied(why)
            | StreamFailure::Refused(why)
            | StreamFailure::Unknown(why) => why,
        };
        let message = format!("stream {}: {what} is not stored: {why}", self.stream);
        FenceError::new(FenceErrorKind::Unavailable, message)
    }

    /// Returns the headers of a message that is stored only if the sequence of this term's fence is
    /// the last one of the subject `of`.
    ///
    /// nats-server before 2.11.7 looks for a name in all headers at once, and overlooks a header
    /// that follows its name elsewhere, as in that of a longer header: it would store the message
    /// without any condition. The client sends headers in the order of its map, which is a random
    /// one. So the condition is put first, by drawing another map until it is.
    fn conditions(&self, of: &HeaderValue, others: &HeaderMap) -> Result<HeaderMap, FenceError> {
        for _ in 0..10_000 {
            let mut headers = HeaderMap::new();
            headers.insert(EXPECTED, HeaderValue::from(self.sequence));
            headers.insert(EXPECTED_OF, of.clone());
            headers.insert(EXPECTED_STREAM, self.stream_header.clone());
            for (name, values) in others.iter() {
                values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
            }
            if headers.iter().next().is_some_and(|(name, _)| *name == EXPECTED) {
                return Ok(headers);
            }
        }
        Err(misconfigured("a message with this many headers cannot be fenced".to_owned()))
    }

    /// The content of the fence.
    fn text(&self) -> Bytes {
        format!("{} {}", self.term.token.0, self.term.election).into()
    }
}

partial_debug!(Fence, self, stream: self.stream, subject: self.subject, term: self.term);

fn header(text: &str) -> Result<HeaderValue, FenceError> {
    text.parse()
        .map_err(|_| misconfigured(format!("{text:?} cannot be a header: name it otherwise")))
}

/// Refuses what is not one subject.
fn check_subject(subject: &str) -> Result<(), FenceError> {
    let is_token = |token: &str| {
        !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || matches!(c, '*' | '>'))
    };
    match subject.split('.').all(is_token) {
        true => Ok(()),
        false => Err(misconfigured(format!("{subject:?} is not a subject without wildcards"))),
    }
}

/// Refuses headers that would replace the condition, remove the fence, or defer the message.
fn check_headers(headers: &HeaderMap) -> Result<(), FenceError> {
    const RESERVED: [&str; 4] = ["Nats-Expected-", "Nats-Rollup", "Nats-Batch-", "Nats-Schedule"];
    let reserved = headers.iter().map(|(name, _)| AsRef::<str>::as_ref(name)).find(|name| {
        RESERVED.iter().any(|prefix| {
            name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
    });
    match reserved {
        Some(name) => Err(misconfigured(format!("a fenced message cannot have the header {name}"))),
        None => Ok(()),
    }
}

/// Refuses a stream that removes the fence by itself, or has no place for the next one. A former
/// leader whose fence was delayed until that of its successor is gone would find none; and where
/// the sequences begin anew, a successor's fence may have the sequence of its own.
fn check_retention(stream: &str, settings: &StreamConfig) -> Result<(), FenceError> {
    let problem = if settings.mirror.is_some() {
        "it is a mirror: fence the stream that it mirrors"
    } else if let Some(problem) = settings.removes_messages() {
        problem
    } else if settings.max_age > 0 && !settings.allow_msg_ttl {
        "its maximum age removes the fence too: allow message TTLs, with which the fence stays (for a bucket: limit markers)"
    } else if settings.storage == "memory" {
        "it is in memory, and empty after a restart, without the fence: store it in files"
    } else {
        return Ok(());
    };
    Err(misconfigured(format!("stream {stream}: {problem}")))
}

/// The error of a request that failed. `writes`: whether it would have stored a message.
fn failed(stream: &str, failure: StreamFailure, writes: bool) -> FenceError {
    use FenceErrorKind::{Misconfigured, OutcomeUnknown, Unavailable};
    let (kind, why) = match failure {
        StreamFailure::Mismatch | StreamFailure::InFlight => {
            (Unavailable, "another conditional write was first".to_owned())
        }
        StreamFailure::NoMessage => (Unavailable, "there is no such message".to_owned()),
        StreamFailure::NotApplied(why) => (Unavailable, why),
        StreamFailure::Refused(why) => (Misconfigured, why),
        StreamFailure::Unknown(why) if writes => {
            (OutcomeUnknown, format!("{why}: the message may have been stored"))
        }
        StreamFailure::Unknown(why) => (Unavailable, why),
    };
    FenceError::new(kind, format!("stream {stream}: {why}"))
}
