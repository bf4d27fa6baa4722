//! Entries, tombstones, notices, and republished messages.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, HeaderValue};
use base64::Engine as _;
use bolero::TypeGenerator;

use super::hostile::{FEW, Mutations, Text};
use crate::backends::nats::codec;
use crate::backends::nats::stream::{Expiry, MAX_IDENTITY_LEN, StoredMessage};
use crate::backends::nats::time::FOREVER;
use crate::lock::codec::MAX_DURATION;
use crate::lock::{
    Content, Mark, MoveInfo, Nonce, Release, Revision, StepDownNotice, Token, Tombstone, Write,
    WriteId,
};

const EXPIRY: Expiry =
    Expiry { max_age: Some(Duration::from_secs(60)), slack: Duration::from_millis(250), own: true };

const NAMES: [&str; 20] = [
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-TTL",
    "Nats-Marker-Reason",
    "KV-Operation",
    "Incumbent-Write",
    "Incumbent-Lease",
    "Incumbent-Token",
    "Incumbent-Since",
    "Incumbent-Version",
    "Incumbent-Release",
    "Incumbent-By",
    "Incumbent-Left",
    "Incumbent-Stepped-Down",
    "Nats-Stream",
    "Nats-Sequence",
    "Nats-Last-Sequence",
    "Nats-Time-Stamp",
    "incumbent-write",
    "X",
    "Nats-Rollup",
];

#[derive(Debug, Clone, TypeGenerator)]
struct Field {
    name: u8,
    value: Text,
}

/// The headers of a message: a few random ones, over those of a complete entry.
#[derive(Debug, Clone, TypeGenerator)]
struct Fields {
    whole: bool,
    #[generator(bolero::produce::<Vec<Field>>().with().len(0_usize..5))]
    fields: Vec<Field>,
}

impl Fields {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let own = self.fields.iter().map(|field| {
            (NAMES[usize::from(field.name) % NAMES.len()], field.value.line().trim().to_owned())
        });
        let whole = [
            ("Incumbent-Version", "1"),
            ("Incumbent-Write", "00000000000000aa-7"),
            ("Incumbent-Lease", "2000"),
            ("Incumbent-By", "00000000000000aa"),
            ("Incumbent-Left", "0"),
        ];
        let whole = whole.into_iter().filter(|_| self.whole).map(|(n, v)| (n, v.to_owned()));
        own.chain(whole).collect()
    }
}

fn live(pairs: &[(&'static str, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, value.parse::<HeaderValue>().expect("a value of one line"));
    }
    headers
}

fn block(pairs: &[(&'static str, String)]) -> Vec<u8> {
    let mut text = String::from("NATS/1.0\r\n");
    for (name, value) in pairs {
        text += &format!("{name}: {value}\r\n");
    }
    (text + "\r\n").into_bytes()
}

fn lines_of(headers: &HeaderMap) -> Vec<u8> {
    let mut text = String::from("NATS/1.0\r\n");
    for (name, values) in headers.iter() {
        for value in values {
            text += &format!("{name}: {value}\r\n");
        }
    }
    (text + "\r\n").into_bytes()
}

fn stored(block: &[u8], value: &[u8]) -> StoredMessage {
    let encode = |bytes: &[u8]| Some(base64::engine::general_purpose::STANDARD.encode(bytes));
    StoredMessage { seq: 1, time: String::new(), hdrs: encode(block), data: encode(value) }
}

/// Checks that decoded content is within the limits that elections rely on.
fn check(content: &Content) {
    match content {
        Content::Held(entry) => {
            assert!(entry.identity.len() <= MAX_IDENTITY_LEN, "{} bytes", entry.identity.len());
            assert!(!entry.identity.chars().any(char::is_control), "{:?}", entry.identity);
            assert!(entry.ttl <= FOREVER + EXPIRY.slack, "{:?}", entry.ttl);
            if let Some(mark) = &entry.mark {
                assert!(mark.lease <= MAX_DURATION, "{:?}", mark.lease);
            }
        }
        Content::Vacant(Tombstone::Released { left, cause, .. }) => {
            assert!(*left <= MAX_DURATION, "{left:?}");
            let is_word = |cause: &str| {
                (1..=32).contains(&cause.len()) && cause.chars().all(|c| c.is_ascii_graphic())
            };
            assert!(cause.as_deref().is_none_or(is_word), "{cause:?}");
        }
        Content::Vacant(_) => {}
    }
}

#[test]
fn delivered_and_stored_headers_decode_alike() {
    type Input = (Fields, Vec<u8>);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(|(fields, value)| {
        let pairs = fields.pairs();
        let headers = live(&pairs);
        let delivered = codec::content(&headers, value, EXPIRY);
        check(&delivered);
        assert_eq!(codec::stored_content(&stored(&block(&pairs), value), EXPIRY), delivered);
        if let Some(notice) = codec::notice(&headers) {
            assert!(notice.left <= MAX_DURATION);
        }
        if let Some(republished) = codec::republished(&headers, "KV_B") {
            assert!(republished.previous != Some(Some(Revision(0))));
            assert!(headers.get("Nats-Stream").is_some_and(|name| name.as_str() == "KV_B"));
        }
        let _ = (codec::is_ours(&delivered), codec::is_forced(&headers));
    });
}

#[test]
fn any_stored_message_means_something() {
    type Input = (Text, Vec<u8>, Text, Mutations);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(
        |(text, bytes, raw, mutations)| {
            let mut hdrs = text.get().into_bytes();
            check(&codec::stored_content(&stored(&hdrs, bytes), EXPIRY));
            mutations.apply(&mut hdrs);
            check(&codec::stored_content(&stored(&hdrs, bytes), EXPIRY));
            let raw = StoredMessage {
                seq: 1,
                time: String::new(),
                hdrs: Some(raw.get()),
                data: Some(text.get()),
            };
            check(&codec::stored_content(&raw, EXPIRY));
        },
    );
}

/// A write of a candidate.
#[derive(Debug, Clone, TypeGenerator)]
struct Written {
    expected: Option<u64>,
    identity: String,
    nonce: u64,
    number: u64,
    lease: u64,
    token: Option<u64>,
    since: u64,
    life: u64,
    ttl: bool,
}

impl Written {
    fn write(&self) -> Write {
        Write {
            expected: self.expected.map(Revision),
            identity: Arc::from(self.identity.replace(|c: char| c.is_control(), "")),
            mark: Mark {
                write: WriteId { nonce: Nonce(self.nonce), number: self.number },
                lease: Duration::from_millis(self.lease),
                token: self.token.map(Token),
                since_unix_ms: self.since,
                moves: Box::new(MoveInfo::default()),
            },
            ttl: Duration::from_millis(self.life),
            advertisement: None,
            timeout: Duration::from_secs(1),
        }
    }
}

#[test]
fn writes_round_trip() {
    bolero::check!().with_iterations(FEW).with_type::<Written>().for_each(|written| {
        let write = written.write();
        let headers = codec::entry_headers(&write, written.ttl, usize::MAX);
        let value = write.identity.as_bytes();
        let delivered = codec::content(&headers, value, EXPIRY);
        assert_eq!(codec::stored_content(&stored(&lines_of(&headers), value), EXPIRY), delivered);
        let Content::Held(entry) = delivered else { panic!("not held") };
        assert_eq!(entry.identity, write.identity);
        let lease = write.mark.lease.min(MAX_DURATION);
        assert_eq!(entry.mark, Some(Mark { lease, ..write.mark }));
        assert!(!written.ttl || entry.ttl >= write.ttl.min(Duration::from_secs(60)));

        let left = Duration::from_millis(written.life);
        let by = Nonce(written.nonce);
        let (cause, to) = ("stopped", Some(Nonce(written.number)));
        let (expected, timeout) = (Revision(written.number), Duration::ZERO);
        let release = Release { expected, by, left, cause, to, pause: None, timeout };
        let headers = codec::release_headers(&release, written.expected.map(Duration::from_secs));
        let left = left.min(MAX_DURATION);
        let released = Content::Vacant(Tombstone::Released {
            by,
            left,
            cause: Some("stopped".into()),
            to,
            pause: None,
        });
        assert_eq!(codec::content(&headers, b"", EXPIRY), released);
        assert_eq!(codec::stored_content(&stored(&lines_of(&headers), b""), EXPIRY), released);

        let (token, revision) = (Token(written.since), Revision(written.number));
        let notice = StepDownNotice { by, token, revision, left };
        assert_eq!(codec::notice(&codec::step_down_headers(&notice)), Some(notice));
    });
}

/// A candidate recognizes its own entry by the nonce alone, so no damaged entry may decode to
/// another nonce.
#[test]
fn damaged_entry_decodes_only_to_its_bytes() {
    type Input = (Written, Mutations);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(|(written, mutations)| {
        let mut write = written.write();
        write.mark.write.nonce = Nonce(written.nonce | 0xabc0_0000_0000_0000);
        let mut bytes = lines_of(&codec::entry_headers(&write, written.ttl, usize::MAX));
        mutations.apply(&mut bytes);
        let content = codec::stored_content(&stored(&bytes, b"host"), EXPIRY);
        check(&content);
        let Content::Held(entry) = content else { return };
        let Some(mark) = entry.mark else { return };
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let text = text.replace(char::is_whitespace, "");
        let contains = |what: String| assert!(text.contains(&what), "{mark:?} of {text:?}");
        contains("incumbent-version:1".to_owned());
        contains(format!("{}-", mark.write.nonce));
        contains(mark.write.number.to_string());
        if mark.lease < MAX_DURATION {
            contains(mark.lease.as_millis().to_string());
        }
        if let Some(token) = mark.token {
            contains(token.to_string());
        }
    });
}
