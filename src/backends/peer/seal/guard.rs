//! Signs what a member sends, and believes only what another one has signed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::key::{Key, TAG};
use super::refusals::{Logged, Reason};
use super::window::Window;
use crate::time::clock::Instant;

/// No text begins so.
const MAGIC: &[u8; 4] = b"\0ip1";
/// What a message of the group's is.
const MESSAGE: u8 = b'M';
/// What asks for a number, or repeats one.
const CONTROL: u8 = b'C';
/// How many bytes a signature takes of a datagram.
pub(in crate::backends::peer) const OVERHEAD: usize = MAGIC.len() + TAG + 1 + 8 + 8;
/// For how long the number is asked for that a start is to repeat; it counts for as long again.
const PERIOD: Duration = Duration::from_secs(10);
/// For how long a start is remembered that is silent, at the least: nothing that it repeated counts any more then.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The most starts of members that are remembered.
const MAX_KNOWN: usize = 2048;

type Nonce = [u8; 16];
/// Asks, or repeats, nothing.
const NONE: Nonce = [0; 16];

/// What a datagram came to.
#[derive(Debug, PartialEq)]
pub(in crate::backends::peer) enum Opened<'a> {
    /// A message of a member's.
    Message(&'a [u8]),
    /// This is to be sent to where it came from. `unheard`: whoever sent it does not take this member's messages yet.
    Reply { bytes: Vec<u8>, unheard: bool },
    /// Nothing follows from it.
    Nothing,
    /// It is not believed.
    Refused(Reason),
}

/// One start of another member.
#[derive(Debug)]
struct Known {
    window: Window,
    heard: Instant,
}

#[derive(Debug)]
pub(in crate::backends::peer) struct Guard {
    /// The first signs.
    keys: Vec<Key>,
    /// Draws the numbers that others are to repeat.
    own: Key,
    /// This start.
    start: u64,
    /// Of this start's datagrams.
    number: u64,
    known: BTreeMap<u64, Known>,
    logged: Logged,
}

/// The parts of a signed datagram.
struct Parts<'a> {
    tag: &'a [u8],
    signed: &'a [u8],
    kind: u8,
    start: u64,
    number: u64,
    body: &'a [u8],
}

impl Guard {
    /// `start` and `secret` are drawn at random at each start of a member.
    pub fn new(keys: Vec<Key>, start: u64, secret: [u8; 32]) -> Result<Self, &'static str> {
        let own = Key::new(&secret)?;
        let (known, logged) = (BTreeMap::new(), Logged::default());
        Ok(Self { keys, own, start, number: 0, known, logged })
    }

    /// A message, signed. Sent to several, it is sealed once.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        self.sign(MESSAGE, &[message])
    }

    /// What a datagram says, if it is to be believed.
    pub fn open<'a>(&mut self, now: Instant, datagram: &'a [u8]) -> Opened<'a> {
        let Some(parts) = read(datagram) else {
            let reason = if is_signed(datagram) { Reason::Forged } else { Reason::Unsigned };
            return Opened::Refused(reason);
        };
        if !self.keys.iter().any(|key| key.verifies(&[MAGIC, parts.signed], parts.tag)) {
            return Opened::Refused(Reason::Forged);
        }
        if parts.start == self.start {
            return Opened::Nothing; // its own, as where it sends to all
        }
        let known = self.known.get_mut(&parts.start).map(|known| {
            let new = known.window.take(parts.number);
            known.heard = if new { now } else { known.heard };
            new
        });
        if known == Some(false) {
            return Opened::Refused(Reason::Replayed);
        }
        let known = known.is_some();
        match parts.kind {
            MESSAGE if known => Opened::Message(parts.body),
            MESSAGE => self.reply(now, parts.start, NONE),
            CONTROL => self.control(now, &parts, known),
            _ => Opened::Nothing,
        }
    }

    /// Whether to log what was refused from this address.
    pub fn logs(&mut self, now: Instant, address: IpAddr) -> bool {
        self.logged.is_due(now, address)
    }

    fn control<'a>(&mut self, now: Instant, parts: &Parts<'_>, known: bool) -> Opened<'a> {
        let Some((to, asked, repeated)) = read_control(parts.body) else { return Opened::Nothing };
        if to != self.start {
            return Opened::Nothing;
        }
        if !known && self.has_drawn(now, parts.start, &repeated) && self.make_room(now) {
            let window = Window::after(parts.number);
            self.known.insert(parts.start, Known { window, heard: now });
        }
        // To what asks nothing there is no reply: two never go on for ever.
        if asked == NONE { Opened::Nothing } else { self.reply(now, parts.start, asked) }
    }

    /// Repeats what a start has asked for, and asks it where it is not known. No longer than what it is the reply to.
    fn reply<'a>(&mut self, now: Instant, start: u64, repeats: Nonce) -> Opened<'a> {
        let known = self.known.contains_key(&start);
        let asks = if known { NONE } else { self.drawn(start, period(now)) };
        let bytes = self.sign(CONTROL, &[&start.to_be_bytes(), &asks, &repeats, b"\n"]);
        Opened::Reply { bytes, unheard: repeats != NONE }
    }

    fn sign(&mut self, kind: u8, body: &[&[u8]]) -> Vec<u8> {
        self.number = self.number.saturating_add(1);
        let length: usize = body.iter().map(|part| part.len()).sum();
        let mut signed = Vec::with_capacity(1 + 8 + 8 + length);
        signed.push(kind);
        signed.extend(self.start.to_be_bytes());
        signed.extend(self.number.to_be_bytes());
        body.iter().for_each(|part| signed.extend(*part));
        let tag = self.keys.first().map(|key| key.tag(&[MAGIC, &signed])).unwrap_or_default();
        let mut datagram = Vec::with_capacity(OVERHEAD + length);
        datagram.extend(MAGIC);
        datagram.extend(tag);
        datagram.extend(signed);
        datagram
    }

    /// The number that a start is to repeat.
    fn drawn(&self, start: u64, period: u64) -> Nonce {
        self.own.tag(&[&start.to_be_bytes(), &period.to_be_bytes()])
    }

    fn has_drawn(&self, now: Instant, start: u64, nonce: &Nonce) -> bool {
        let parts = |period: u64| (start.to_be_bytes(), period.to_be_bytes());
        let verifies = |period: u64| {
            let (start, period) = parts(period);
            self.own.verifies(&[&start, &period], nonce)
        };
        let now = period(now);
        verifies(now) || now.checked_sub(1).is_some_and(verifies)
    }

    /// Forgets a start that has been silent for long, if need be.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.known.len() < MAX_KNOWN {
            return true;
        }
        let silent = self.known.iter().min_by_key(|(_, known)| known.heard);
        let silent = silent.filter(|(_, known)| known.heard + REMEMBERED < now);
        silent.map(|(start, _)| *start).is_some_and(|start| self.known.remove(&start).is_some())
    }
}

/// Whether a datagram claims to be signed.
pub(in crate::backends::peer) fn is_signed(datagram: &[u8]) -> bool {
    datagram.starts_with(MAGIC)
}

fn period(now: Instant) -> u64 {
    now.since_origin().as_secs() / PERIOD.as_secs()
}

fn read(datagram: &[u8]) -> Option<Parts<'_>> {
    let (tag, signed) = datagram.strip_prefix(MAGIC)?.split_at_checked(TAG)?;
    let (kind, rest) = signed.split_first()?;
    let (start, rest) = rest.split_first_chunk()?;
    let (number, body) = rest.split_first_chunk()?;
    let (start, number) = (u64::from_be_bytes(*start), u64::from_be_bytes(*number));
    Some(Parts { tag, signed, kind: *kind, start, number, body })
}

/// For which start it is, what that is to repeat, and what is repeated.
fn read_control(body: &[u8]) -> Option<(u64, Nonce, Nonce)> {
    let (to, rest) = body.split_first_chunk()?;
    let (asked, rest) = rest.split_first_chunk()?;
    let (repeated, rest) = rest.split_first_chunk()?;
    (rest == b"\n").then_some((u64::from_be_bytes(*to), *asked, *repeated))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
