//! One value of a key, as the stream stores it.

use async_nats::jetstream::{kv, message::StreamMessage};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::text::is_printable;
use crate::time_format;

/// One value of a key, or the marker of its deletion.
pub struct Entry {
    pub bucket: String,
    pub key: String,
    pub value: Vec<u8>,
    pub revision: u64,
    pub created: OffsetDateTime,
    pub operation: &'static str,
}

impl Entry {
    /// Parses a message of a bucket's stream; `None` for another subject.
    pub fn read(bucket: &str, message: &StreamMessage) -> Option<Self> {
        let key = message.subject.as_str().strip_prefix(&format!("$KV.{bucket}."))?;
        let header = |name: &str| message.headers.get(name).map(|value| value.as_str());
        let operation = match (header("KV-Operation"), header("Nats-Marker-Reason")) {
            (Some("DEL"), _) | (None, Some("Remove")) => "DEL",
            (Some("PURGE"), _) | (None, Some("Purge")) => "PURGE",
            (None, Some("MaxAge")) => "EXPIRED",
            _ => "PUT",
        };
        Some(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            value: message.payload.to_vec(),
            revision: message.sequence,
            created: message.time,
            operation,
        })
    }

    pub fn is_there(&self) -> bool {
        self.operation == "PUT"
    }

    pub fn json(&self) -> Value {
        let mut entry = json!({
            "bucket": self.bucket,
            "key": self.key,
            "revision": self.revision,
            "created": time_format::rfc3339(self.created),
            "operation": self.operation,
        });
        let (name, value) = match std::str::from_utf8(&self.value) {
            Ok(text) => ("value", text.to_owned()),
            Err(_) => ("value_base64", base64(&self.value)),
        };
        if let Some(fields) = entry.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
        entry
    }

    /// The value as text that is safe on a terminal: Base64 if it is not printable.
    pub fn text(&self) -> String {
        match std::str::from_utf8(&self.value) {
            Ok(text) if text.split(['\n', '\t']).all(is_printable) => text.to_owned(),
            _ => base64(&self.value),
        }
    }
}

impl From<kv::Entry> for Entry {
    fn from(entry: kv::Entry) -> Self {
        Self {
            bucket: entry.bucket,
            key: entry.key,
            value: entry.value.to_vec(),
            revision: entry.revision,
            created: entry.created,
            operation: match entry.operation {
                kv::Operation::Put => "PUT",
                kv::Operation::Delete => "DEL",
                kv::Operation::Purge => "PURGE",
            },
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
