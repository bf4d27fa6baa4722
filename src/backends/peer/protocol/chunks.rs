//! Chunks of messages that do not fit into one datagram.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::time::clock::Instant;

/// The bytes of a chunk's wrapping, as democracy counts them.
const WRAPPING: usize = 52;
/// The maximum number of chunks of a message.
const MAX_CHUNKS: usize = 256;
/// The maximum number of incomplete messages.
const MAX_INCOMPLETE: usize = 64;
/// The maximum size in bytes of an incomplete message.
const MAX_MESSAGE_LEN: usize = 64 * 1024;

/// Splits an ASCII message into datagrams of at most `most` bytes: the message itself, or its
/// chunks.
pub(super) fn cut(message: String, most: usize, packet: u64) -> Vec<String> {
    if message.len() <= most {
        return vec![message];
    }
    let room = most.saturating_sub(WRAPPING).max(16);
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for char in message.chars() {
        let cost = 1 + usize::from(matches!(char, '"' | '\\')); // the escaped length
        if used + cost > room {
            pieces.push(String::new());
            used = 0;
        }
        used += cost;
        if let Some(piece) = pieces.last_mut() {
            piece.push(char);
        }
    }
    let (count, id) = (pieces.len(), format!("{packet:016x}"));
    let wrap =
        |(index, piece)| json!({ "chunk": piece, "id": id, "c": count, "i": index }).to_string();
    pieces.into_iter().enumerate().map(wrap).collect()
}

/// Incomplete messages, oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<Packet>);

#[derive(Debug)]
struct Packet {
    from: SocketAddr,
    id: String,
    since: Instant,
    pieces: Vec<Option<String>>,
    length: usize,
}

/// A datagram, parsed as JSON.
pub(super) enum Part {
    /// A complete message.
    Whole(Value),
    /// A chunk of an incomplete message.
    Incomplete,
}

impl Waiting {
    /// Adds a datagram. `timeout`: how long to wait for the rest of a message.
    pub fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        document: Value,
        timeout: Duration,
    ) -> Part {
        let Some((piece, id, count, index)) = chunk(&document) else {
            return Part::Whole(document);
        };
        self.0.retain(|packet| packet.since + timeout >= now);
        let at = match self.0.iter().position(|p| p.from == from && p.id == id) {
            Some(at) => at,
            None => {
                if self.0.len() >= MAX_INCOMPLETE {
                    self.0.pop_front();
                }
                let (id, pieces) = (id.to_owned(), vec![None; count]);
                self.0.push_back(Packet { from, id, since: now, pieces, length: 0 });
                self.0.len() - 1
            }
        };
        let complete = self.0.get_mut(at).is_some_and(|packet| packet.add(piece, index));
        match complete.then(|| self.0.remove(at)).flatten() {
            Some(packet) => {
                let text: String = packet.pieces.into_iter().flatten().collect();
                serde_json::from_str(&text).map_or(Part::Incomplete, Part::Whole)
            }
            None => Part::Incomplete,
        }
    }
}

impl Packet {
    /// Adds a chunk, and returns whether the message is complete.
    fn add(&mut self, piece: &str, index: usize) -> bool {
        if self.length + piece.len() > MAX_MESSAGE_LEN {
            return false;
        }
        if let Some(place @ None) = self.pieces.get_mut(index) {
            *place = Some(piece.to_owned());
            self.length += piece.len();
        }
        self.pieces.iter().all(Option::is_some)
    }
}

fn chunk(document: &Value) -> Option<(&str, &str, usize, usize)> {
    let piece = document.get("chunk")?.as_str()?;
    let id = document.get("id")?.as_str().filter(|id| id.len() <= 64)?;
    let number = |key| usize::try_from(document.get(key)?.as_u64()?).ok();
    let (count, index) = (number("c")?, number("i")?);
    (count <= MAX_CHUNKS && index < count).then_some((piece, id, count, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn reassemble(datagrams: &[String]) -> Option<Value> {
        let (mut waiting, from) = (Waiting::default(), "127.0.0.1:1".parse().unwrap());
        let mut whole = None;
        for datagram in datagrams {
            let document = serde_json::from_str(datagram).unwrap();
            if let Part::Whole(message) = waiting.take(Instant::ORIGIN, from, document, TIMEOUT) {
                whole = Some(message);
            }
        }
        whole
    }

    #[test]
    fn reordered_and_duplicate_chunks_are_reassembled() {
        let message = json!({ "event": "ciao", "extra": "\"\\".repeat(900) });
        let mut datagrams = cut(message.to_string(), 508, 7);
        assert!(datagrams.len() > 3 && datagrams.iter().all(|datagram| datagram.len() <= 508));
        datagrams.reverse();
        datagrams.insert(1, datagrams[0].clone());
        assert_eq!(reassemble(&datagrams), Some(message));
        assert_eq!(reassemble(&datagrams[2..]), None);
    }

    #[test]
    fn incomplete_messages_are_bounded() {
        let (mut waiting, from) = (Waiting::default(), "127.0.0.1:1".parse().unwrap());
        for id in 0..10_000 {
            let chunk =
                json!({ "chunk": "x".repeat(60_000), "id": id.to_string(), "c": 256, "i": 0 });
            waiting.take(Instant::ORIGIN, from, chunk.clone(), TIMEOUT);
            waiting.take(Instant::ORIGIN, from, chunk, TIMEOUT);
        }
        assert!(waiting.0.len() <= MAX_INCOMPLETE);
        let later = Instant::ORIGIN + TIMEOUT * 2;
        waiting.take(later, from, json!({ "chunk": "x", "id": "a", "c": 2, "i": 0 }), TIMEOUT);
        assert_eq!(waiting.0.len(), 1, "old ones are dropped");
    }
}
