//! Messages that do not fit into one datagram: cut up, and put together again.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::time::clock::Instant;

/// What the wrapping of a chunk takes, as democracy reckons.
const WRAPPING: usize = 52;
/// The most chunks of a message.
const MOST_CHUNKS: usize = 256;
/// The most messages that wait for chunks of theirs.
const MOST_WAITING: usize = 64;
/// The most bytes of a message that waits for chunks.
const LONGEST_MESSAGE: usize = 64 * 1024;

/// The datagrams of a message in ASCII: itself, or its chunks, none longer than `most` bytes.
pub(super) fn cut(message: String, most: usize, packet: u64) -> Vec<String> {
    if message.len() <= most {
        return vec![message];
    }
    let room = most.saturating_sub(WRAPPING).max(16);
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for char in message.chars() {
        let cost = 1 + usize::from(matches!(char, '"' | '\\')); // as it is escaped
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

/// Messages of which some chunks have come, oldest first.
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

/// What a datagram is, once it was read as JSON.
pub(super) enum Part {
    /// A message.
    Whole(Value),
    /// A chunk of one that is not complete.
    Incomplete,
}

impl Waiting {
    /// Takes in what a datagram says. `patience`: how long to wait for the rest of a message.
    pub fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        document: Value,
        patience: Duration,
    ) -> Part {
        let Some((piece, id, count, index)) = chunk(&document) else {
            return Part::Whole(document);
        };
        self.0.retain(|packet| packet.since + patience >= now);
        let at = match self.0.iter().position(|p| p.from == from && p.id == id) {
            Some(at) => at,
            None => {
                if self.0.len() >= MOST_WAITING {
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
    /// Whether it is complete now.
    fn add(&mut self, piece: &str, index: usize) -> bool {
        if self.length + piece.len() > LONGEST_MESSAGE {
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
    (count <= MOST_CHUNKS && index < count).then_some((piece, id, count, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn put_together(datagrams: &[String]) -> Option<Value> {
        let (mut waiting, from) = (Waiting::default(), "127.0.0.1:1".parse().unwrap());
        let mut whole = None;
        for datagram in datagrams {
            let document = serde_json::from_str(datagram).unwrap();
            if let Part::Whole(message) = waiting.take(Instant::ORIGIN, from, document, PATIENCE) {
                whole = Some(message);
            }
        }
        whole
    }

    #[test]
    fn chunks_in_any_order_and_twice_are_the_message() {
        let message = json!({ "event": "ciao", "extra": "\"\\".repeat(900) });
        let mut datagrams = cut(message.to_string(), 508, 7);
        assert!(datagrams.len() > 3 && datagrams.iter().all(|datagram| datagram.len() <= 508));
        datagrams.reverse();
        datagrams.insert(1, datagrams[0].clone());
        assert_eq!(put_together(&datagrams), Some(message));
        assert_eq!(put_together(&datagrams[2..]), None);
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut waiting, from) = (Waiting::default(), "127.0.0.1:1".parse().unwrap());
        for id in 0..10_000 {
            let chunk =
                json!({ "chunk": "x".repeat(60_000), "id": id.to_string(), "c": 256, "i": 0 });
            waiting.take(Instant::ORIGIN, from, chunk.clone(), PATIENCE);
            waiting.take(Instant::ORIGIN, from, chunk, PATIENCE);
        }
        assert!(waiting.0.len() <= MOST_WAITING);
        let later = Instant::ORIGIN + PATIENCE * 2;
        waiting.take(later, from, json!({ "chunk": "x", "id": "a", "c": 2, "i": 0 }), PATIENCE);
        assert_eq!(waiting.0.len(), 1, "old ones are dropped");
    }
}
