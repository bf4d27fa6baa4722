//! The message that vimeo/leaderelection keeps in its object, with an additional field of this
//! library.
//!
//! It is `leaderelection.storagepb.RaceEntry`, in protobuf's wire format. Go's reader and this one
//! skip fields that they do not know, so the additional field does not disturb Go's candidates.
//! They write a message without it, so it never outlives the write that it belongs to.

use thiserror::Error;

const ELECTION_NUMBER: u32 = 1;
const LEADER_ID: u32 = 2;
const HOST_PORT: u32 = 3;
const TERM_EXPIRY: u32 = 4;
/// The number of the additional field, far from those that the message may use later.
const MARK: u32 = 15_210;

const SECONDS: u32 = 1;
const NANOS: u32 = 2;

/// The message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RaceEntry {
    /// Increases with every write, including renewals.
    pub(super) election_number: u64,
    pub(super) leader_id: String,
    pub(super) host_port: Vec<String>,
    pub(super) term_expiry: Option<Timestamp>,
    pub(super) mark: Option<String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp {
    pub(super) seconds: i64,
    pub(super) nanos: i32,
}

/// Bytes that are not such a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Malformed {
    #[error("it ends within a field")]
    Truncated,
    #[error("it has a field of an unknown type")]
    Kind,
    #[error("it has a text that is not UTF-8")]
    Text,
}

impl RaceEntry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        number(&mut bytes, ELECTION_NUMBER, self.election_number);
        if !self.leader_id.is_empty() {
            span(&mut bytes, LEADER_ID, self.leader_id.as_bytes());
        }
        for address in &self.host_port {
            span(&mut bytes, HOST_PORT, address.as_bytes());
        }
        if let Some(Timestamp { seconds, nanos }) = self.term_expiry {
            let mut inner = Vec::new();
            number(&mut inner, SECONDS, seconds.cast_unsigned());
            number(&mut inner, NANOS, i64::from(nanos).cast_unsigned());
            span(&mut bytes, TERM_EXPIRY, &inner);
        }
        if let Some(mark) = &self.mark {
            span(&mut bytes, MARK, mark.as_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut entry = Self::default();
        let mut rest = bytes;
        while let Some((field, value)) = next(&mut rest)? {
            match (field, value) {
                (ELECTION_NUMBER, Value::Number(number)) => entry.election_number = number,
                (LEADER_ID, Value::Span(text)) => entry.leader_id = string(text)?,
                (HOST_PORT, Value::Span(text)) => entry.host_port.push(string(text)?),
                (TERM_EXPIRY, Value::Span(inner)) => {
                    entry.term_expiry = Some(Timestamp::decode(inner)?);
                }
                (MARK, Value::Span(text)) => entry.mark = Some(string(text)?),
                _ => {}
            }
        }
        Ok(entry)
    }
}

impl Timestamp {
    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut timestamp = Self::default();
        let mut rest = bytes;
        while let Some((field, value)) = next(&mut rest)? {
            match (field, value) {
                (SECONDS, Value::Number(number)) => timestamp.seconds = number.cast_signed(),
                // As in protobuf: excess bits are cut off.
                #[allow(clippy::cast_possible_truncation)]
                (NANOS, Value::Number(number)) => timestamp.nanos = number as i32,
                _ => {}
            }
        }
        Ok(timestamp)
    }
}

enum Value<'a> {
    Number(u64),
    Span(&'a [u8]),
    /// A value of fixed width, which no known field has.
    Other,
}

/// Removes the next field from `rest`, and returns it.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, Value<'a>)>, Malformed> {
    if rest.is_empty() {
        return Ok(None);
    }
    let key = varint(rest)?;
    let field = u32::try_from(key >> 3).ok().filter(|field| (1..1 << 29).contains(field));
    let field = field.ok_or(Malformed::Kind)?;
    let value = match key & 7 {
        0 => Value::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Value::Other)?,
        2 => {
            let length = varint(rest)?;
            Value::Span(take(rest, usize::try_from(length).map_err(|_| Malformed::Truncated)?)?)
        }
        5 => take(rest, 4).map(|_| Value::Other)?,
        _ => return Err(Malformed::Kind),
    };
    Ok(Some((field, value)))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first().ok_or(Malformed::Truncated)?;
        *rest = left;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed::Kind)
}

fn string(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::Text)
}

/// proto3 omits zero.
fn number(bytes: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put(bytes, u64::from(field) << 3);
        put(bytes, number);
    }
}

fn span(bytes: &mut Vec<u8>, field: u32, span: &[u8]) {
    put(bytes, u64::from(field) << 3 | 2);
    put(bytes, span.len() as u64);
    bytes.extend_from_slice(span);
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output of Go's `proto.Marshal` for vimeo's `storagepb.RaceEntry` 0.2.2.
    const OF_GO: &[u8] =
        b"\x08\x07\x12\x02g1\x1a\x0a10.0.0.1:1\x22\x09\x08\x80\x80\xbe\xd0\x06\x10\xe8\x07";
    /// Its `connection_parameters`, which end it.
    const PARAMETERS: &[u8] = b"*\x02{}";

    #[test]
    fn messages_of_go_are_read_and_written_alike() {
        let entry = RaceEntry::decode(&[OF_GO, PARAMETERS].concat()).unwrap();
        assert_eq!((entry.election_number, &*entry.leader_id), (7, "g1"));
        assert_eq!(entry.host_port, ["10.0.0.1:1"]);
        assert_eq!(entry.term_expiry, Some(Timestamp { seconds: 1_779_400_704, nanos: 1000 }));
        assert_eq!(entry.encode(), OF_GO);
    }

    #[test]
    fn malformed_messages_are_refused() {
        assert_eq!(RaceEntry::decode(b""), Ok(RaceEntry::default()));
        assert_eq!(RaceEntry::decode(b"\x08"), Err(Malformed::Truncated));
        assert_eq!(RaceEntry::decode(b"\x12\x7fx"), Err(Malformed::Truncated));
        assert_eq!(RaceEntry::decode(b"\x12\x01\xff"), Err(Malformed::Text));
        assert_eq!(RaceEntry::decode(b"\x00\x00"), Err(Malformed::Kind));
        assert_eq!(RaceEntry::decode(b"{\"holder\": 1}"), Err(Malformed::Kind));
        assert_eq!(RaceEntry::decode(&[0xff; 11]), Err(Malformed::Kind));
    }

    proptest! {
        #[test]
        fn a_written_message_is_read_unchanged(
            election_number: u64,
            leader_id in "\\PC{0,20}",
            host_port in prop::collection::vec("\\PC{0,20}", 0..3),
            seconds: i64,
            nanos in 0..1_000_000_000_i32,
            mark in prop::option::of("\\PC{0,200}"),
        ) {
            let term_expiry = Some(Timestamp { seconds, nanos });
            let entry = RaceEntry { election_number, leader_id, host_port, term_expiry, mark };
            prop_assert_eq!(RaceEntry::decode(&entry.encode()), Ok(entry));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = RaceEntry::decode(&bytes);
        }
    }
}
