//! Entries as messages: the identity is the value, all else is in headers.
//!
//! Decoding never fails: any message of a bucket has a meaning, and an entry that cannot be decoded
//! counts as another writer's.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::header;
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;

use super::stream::{Expiry, MAX_IDENTITY_LEN, StoredMessage};
use super::time::{FOREVER, NEVER, lifetime};
use crate::lock::Advertisement;
use crate::lock::codec::{
    bounded_duration, cause_label, ceil_millis, ceil_seconds, parse_nonce, stated_mark,
    stated_release,
};
use crate::lock::{
    Content, Entry, Mark, MoveInfo, Pause, Release, Revision, StepDownNotice, Token, Tombstone,
    Write, WriteId,
};

// As names, not as text, which the client would check and copy at each use.
pub(crate) const EXPECTED: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
pub(crate) const TTL: HeaderName = HeaderName::from_static("Nats-TTL");
const MARKER: HeaderName = HeaderName::from_static("Nats-Marker-Reason");
pub(crate) const OPERATION: HeaderName = HeaderName::from_static("KV-Operation");
const WRITE: HeaderName = HeaderName::from_static("Incumbent-Write");
const LEASE: HeaderName = HeaderName::from_static("Incumbent-Lease");
const TOKEN: HeaderName = HeaderName::from_static("Incumbent-Token");
const SINCE: HeaderName = HeaderName::from_static("Incumbent-Since");
const ADVERTISEMENT: HeaderName = HeaderName::from_static("Incumbent-Advertisement");
const PRIORITY: HeaderName = HeaderName::from_static("Incumbent-Priority");
const SITE: HeaderName = HeaderName::from_static("Incumbent-Site");
const PAUSED_UNTIL: HeaderName = HeaderName::from_static("Incumbent-Paused-Until");
const VERSION: HeaderName = HeaderName::from_static("Incumbent-Version");
const RELEASE: HeaderName = HeaderName::from_static("Incumbent-Release");
const BY: HeaderName = HeaderName::from_static("Incumbent-By");
const LEFT: HeaderName = HeaderName::from_static("Incumbent-Left");
/// Of a release: the candidate that the election is handed over to.
const TO: HeaderName = HeaderName::from_static("Incumbent-To");
const STEPPED_DOWN: HeaderName = HeaderName::from_static("Incumbent-Stepped-Down");

/// The version of these headers.
const CURRENT: &str = "1";

/// The headers of a delivered or a stored message.
pub(super) trait Headers {
    fn value(&self, name: HeaderName) -> Option<&str>;
}

impl Headers for HeaderMap {
    fn value(&self, name: HeaderName) -> Option<&str> {
        self.get(name).map(HeaderValue::as_str)
    }
}

impl<H: Headers> Headers for Option<H> {
    fn value(&self, name: HeaderName) -> Option<&str> {
        self.as_ref()?.value(name)
    }
}

/// A stored block of headers: a line `NATS/1.0`, then `name: value` lines.
#[derive(Debug)]
pub(super) struct Block(String);

impl Block {
    /// A value may continue in lines that begin with white space. They are joined as the client
    /// joins them in delivered messages, so that both mean the same.
    fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut joined = String::with_capacity(text.len());
        for (number, line) in text.lines().enumerate() {
            if number > 0 && !(number > 1 && line.starts_with(char::is_whitespace)) {
                joined.push('\n');
            }
            joined.push_str(line);
        }
        Self(joined)
    }
}

impl Headers for Block {
    fn value(&self, name: HeaderName) -> Option<&str> {
        self.0.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == AsRef::<str>::as_ref(&name)).then(|| value.trim())
        })
    }
}

/// Returns the headers of a checkpoint. It outlives the bucket's age.
pub(super) fn checkpoint_headers(expected: Option<Revision>) -> HeaderMap {
    let mut headers = expecting(expected);
    put(&mut headers, TTL, NEVER);
    headers
}

/// Decodes a stored message.
pub(super) fn stored_content(message: &StoredMessage, expiry: Expiry) -> Content {
    content(&Block::new(&decode(message.hdrs.as_ref())), &stored_value(message), expiry)
}

/// Returns the value of a stored message; nothing if its key was deleted.
pub(super) fn value_unless_deleted(message: &StoredMessage) -> Vec<u8> {
    let headers = Block::new(&decode(message.hdrs.as_ref()));
    match headers.value(MARKER).or(headers.value(OPERATION)) {
        Some(_) => Vec::new(),
        None => stored_value(message),
    }
}

/// Returns whether a stored message says that its key was deleted, or has expired.
pub(super) fn is_deletion(message: &StoredMessage) -> bool {
    let headers = Block::new(&decode(message.hdrs.as_ref()));
    headers.value(MARKER).is_some() || matches!(headers.value(OPERATION), Some("DEL" | "PURGE"))
}

/// Returns the value of a stored message.
pub(super) fn stored_value(message: &StoredMessage) -> Vec<u8> {
    decode(message.data.as_ref())
}

fn decode(text: Option<&String>) -> Vec<u8> {
    let text = text.map(String::as_str).unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

/// Decodes a message.
pub(super) fn content(headers: &impl Headers, value: &[u8], expiry: Expiry) -> Content {
    if let Some(reason) = headers.value(MARKER) {
        let expired = reason == "MaxAge";
        return Content::Vacant(if expired { Tombstone::Expired } else { Tombstone::Deleted });
    }
    if let Some("DEL" | "PURGE") = headers.value(OPERATION) {
        return Content::Vacant(released(headers).unwrap_or(Tombstone::Deleted));
    }
    let own = headers.value(TTL).filter(|_| expiry.own).and_then(lifetime);
    // A message TTL ends no later than the bucket's age, unless it is `never`, which outlives the
    // bucket's age.
    let bucket = expiry.max_age.unwrap_or(FOREVER);
    let life = own.map_or(bucket, |own| if own == FOREVER { own } else { own.min(bucket) });
    Content::Held(Entry {
        identity: identity(value),
        mark: mark(headers),
        advertisement: advertisement(headers),
        ttl: life.saturating_add(expiry.slack),
    })
}

/// Returns whether a key-value write is one of this library, including a release.
pub(super) fn is_ours(content: &Content) -> bool {
    match content {
        Content::Held(entry) => entry.mark.is_some(),
        Content::Vacant(_) => true,
    }
}

/// Returns whether a message that is not stored yet may change the holder of the key: a delete, or
/// a write without an expected revision.
pub(super) fn is_forced(headers: &impl Headers) -> bool {
    headers.value(OPERATION).is_some() || headers.value(EXPECTED).is_none()
}

/// Returns the headers of an entry. `room`: how many bytes are left for its site.
pub(super) fn entry_headers(write: &Write, ttl: bool, room: usize) -> HeaderMap {
    let mut headers = expecting(write.expected);
    if ttl {
        put(&mut headers, TTL, ceil_seconds(write.ttl).to_string());
    }
    let mark = &write.mark;
    let WriteId { nonce, number } = mark.write;
    put(&mut headers, VERSION, CURRENT);
    put(&mut headers, WRITE, format!("{nonce}-{number}"));
    put(&mut headers, LEASE, ceil_millis(mark.lease).to_string());
    if let Some(token) = mark.token {
        put(&mut headers, TOKEN, token.to_string());
    }
    put(&mut headers, SINCE, mark.since_unix_ms.to_string());
    if let Some(priority) = mark.moves.priority {
        put(&mut headers, PRIORITY, priority.to_string());
    }
    if let Some(site) = mark.moves.site.as_ref().filter(|site| line_len(SITE, site) <= room) {
        put(&mut headers, SITE, site);
    }
    put_pause(&mut headers, mark.moves.pause);
    if let Some(advertisement) = &write.advertisement {
        put(&mut headers, ADVERTISEMENT, advertisement.to_json());
    }
    headers
}

fn line_len(name: HeaderName, value: &str) -> usize {
    AsRef::<str>::as_ref(&name).len() + ": \r\n".len() + value.len()
}

fn put_pause(headers: &mut HeaderMap, pause: Option<Pause>) {
    if let Some(pause) = pause {
        put(headers, PAUSED_UNTIL, pause.until_unix_ms.to_string());
    }
}

/// Returns the length in bytes of an advertisement in the headers of an entry.
pub(super) fn advertisement_len(write: &Write) -> usize {
    write.advertisement.as_ref().map_or(0, |it| line_len(ADVERTISEMENT, &it.to_json()))
}

/// Returns the headers of a release by the holder, or in its place. `ttl`: how long the tombstone
/// must stay, if the bucket has no age.
pub(super) fn release_headers(release: &Release, ttl: Option<Duration>) -> HeaderMap {
    let mut headers = expecting(Some(release.expected));
    if let Some(ttl) = ttl {
        put(&mut headers, TTL, ceil_seconds(ttl).to_string());
    }
    // A `DEL` leaves a marker once its time is over, which three replicas may store over a create.
    put(&mut headers, OPERATION, "PURGE");
    put(&mut headers, VERSION, CURRENT);
    put(&mut headers, RELEASE, cause_label(release.cause));
    put(&mut headers, BY, release.by.to_string());
    put(&mut headers, LEFT, ceil_millis(release.left).to_string());
    if let Some(to) = release.to {
        put(&mut headers, TO, to.to_string());
    }
    put_pause(&mut headers, release.pause);
    headers
}

/// Returns the headers of a step-down notice, a message that is not stored.
pub(super) fn step_down_headers(notice: &StepDownNotice) -> HeaderMap {
    let StepDownNotice { by, token, revision, left } = notice;
    let mut headers = HeaderMap::new();
    put(&mut headers, STEPPED_DOWN, format!("{by}-{token}-{revision}-{}", ceil_millis(*left)));
    headers
}

/// Decodes a step-down notice.
pub(super) fn notice(headers: &impl Headers) -> Option<StepDownNotice> {
    let mut parts = headers.value(STEPPED_DOWN)?.split('-');
    let notice = StepDownNotice {
        by: parse_nonce(parts.next()?)?,
        token: Token(number(parts.next()?)?),
        revision: Revision(number(parts.next()?)?),
        left: span(parts.next()?)?,
    };
    parts.next().is_none().then_some(notice)
}

/// The headers that the server adds to a republished message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Republished {
    pub(super) revision: Revision,
    pub(super) previous: Option<Option<Revision>>,
    pub(super) stored_at: Option<Duration>,
}

/// Decodes the headers of a republished message; `None` if the server did not store the message in
/// `stream`.
pub(super) fn republished(headers: &impl Headers, stream: &str) -> Option<Republished> {
    if headers.value(header::NATS_STREAM)? != stream {
        return None;
    }
    let revision = Revision(number(headers.value(header::NATS_SEQUENCE)?)?);
    let previous = headers.value(header::NATS_LAST_SEQUENCE).and_then(number);
    Some(Republished {
        revision,
        previous: previous.map(|n| (n > 0).then_some(Revision(n))),
        stored_at: headers.value(header::NATS_TIME_STAMP).and_then(super::time::since_epoch),
    })
}

fn expecting(expected: Option<Revision>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    put(&mut headers, EXPECTED, expected.map_or(0, |revision| revision.0).to_string());
    headers
}

/// Adds a header. A value that is not valid in a header is omitted; this library writes no such
/// value.
fn put(headers: &mut HeaderMap, name: HeaderName, value: impl AsRef<str>) {
    if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
        headers.insert(name, value);
    }
}

fn mark(headers: &impl Headers) -> Option<Mark> {
    if headers.value(VERSION)? != CURRENT {
        return None;
    }
    let (by, count) = headers.value(WRITE)?.split_once('-')?;
    let write = WriteId { nonce: parse_nonce(by)?, number: number(count)? };
    let token = match headers.value(TOKEN) {
        Some(text) => Some(number(text)?),
        None => None,
    };
    let since = headers.value(SINCE).and_then(number).unwrap_or(0);
    let moves = MoveInfo {
        priority: headers.value(PRIORITY).and_then(|text| text.parse().ok()),
        site: headers.value(SITE).map(Arc::from),
        pause: pause(headers),
    };
    Some(stated_mark(write, number(headers.value(LEASE)?)?, token, since, moves))
}

fn advertisement(headers: &impl Headers) -> Option<Arc<Advertisement>> {
    Advertisement::from_json(headers.value(ADVERTISEMENT)?).map(Arc::new)
}

fn released(headers: &impl Headers) -> Option<Tombstone> {
    if headers.value(VERSION)? != CURRENT {
        return None;
    }
    let (by, left_ms) = (parse_nonce(headers.value(BY)?)?, number(headers.value(LEFT)?)?);
    let to = headers.value(TO).and_then(parse_nonce);
    Some(stated_release(by, left_ms, headers.value(RELEASE), to, pause(headers)))
}

fn pause(headers: &impl Headers) -> Option<Pause> {
    let until_unix_ms = headers.value(PAUSED_UNTIL).and_then(number)?;
    Some(Pause { until_unix_ms })
}

fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if plain { u64::from_str(text).ok() } else { None }
}

fn span(text: &str) -> Option<Duration> {
    number(text).map(bounded_duration)
}

/// Decodes an identity for display. Control characters, which no identity of this library has, are
/// replaced as invalid UTF-8 is.
fn identity(value: &[u8]) -> Arc<str> {
    let head = value.get(..MAX_IDENTITY_LEN).unwrap_or(value);
    let text = String::from_utf8_lossy(head).replace(char::is_control, "\u{fffd}");
    // A replaced character may be longer than its invalid bytes.
    Arc::from(crate::util::text::truncate(&text, MAX_IDENTITY_LEN))
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
