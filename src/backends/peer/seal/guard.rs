//! Signing of datagrams, and verification of received datagrams.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::key::{Key, TAG};
use super::refusals::{Logged, Reason};
use super::window::Window;
use crate::time::clock::Instant;

/// The first bytes of a signed datagram. No text begins with them.
const MAGIC: &[u8; 4] = b"\0ip1";
/// The kind of a group message.
const MESSAGE: u8 = b'M';
/// The kind of a handshake datagram: it requests a number, repeats one, or both.
const CONTROL: u8 = b'C';
/// The bytes that a signature adds to a datagram.
pub(in crate::backends::peer) const OVERHEAD: usize = MAGIC.len() + TAG + 1 + 8 + 8;
/// How long a drawn number is requested of a new start. The number stays valid for as long again.
const PERIOD: Duration = Duration::from_secs(10);
/// The minimum time that a silent start is remembered. Any number that it repeated has expired by
/// then.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The maximum number of remembered starts.
const MAX_KNOWN: usize = 2048;

type Nonce = [u8; 16];
/// Requests or repeats nothing.
const NONE: Nonce = [0; 16];

/// The result of opening a datagram.
#[derive(Debug, PartialEq)]
pub(in crate::backends::peer) enum Opened<'a> {
    /// A message of a member.
    Message(&'a [u8]),
    /// A reply for the sender of the datagram. `unheard`: the sender does not accept this member's
    /// messages yet.
    Reply { bytes: Vec<u8>, unheard: bool },
    /// Nothing to do.
    Nothing,
    /// The datagram is refused.
    Refused(Reason),
}

/// One start of another member.
#[derive(Debug)]
struct KnownStart {
    window: Window,
    last_received: Instant,
}

#[derive(Debug)]
pub(in crate::backends::peer) struct Guard {
    /// The first key signs.
    keys: Vec<Key>,
    /// Derives the numbers that other starts must repeat.
    own: Key,
    /// The random number of this start.
    start: u64,
    /// The number of this start's last datagram.
    number: u64,
    known: BTreeMap<u64, KnownStart>,
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
    /// Creates a guard. `start` and `secret` are drawn at random at each start of a member.
    pub fn new(keys: Vec<Key>, start: u64, secret: [u8; 32]) -> Result<Self, &'static str> {
        let own = Key::new(&secret)?;
        let (known, logged) = (BTreeMap::new(), Logged::default());
        Ok(Self { keys, own, start, number: 0, known, logged })
    }

    /// Returns the signed message. A message to several peers is sealed once.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        self.sign(MESSAGE, &[message])
    }

    /// Verifies a datagram, and returns its message if it is accepted.
    pub fn open<'a>(&mut self, now: Instant, datagram: &'a [u8]) -> Opened<'a> {
        let Some(parts) = read(datagram) else {
            let reason = if is_signed(datagram) { Reason::Forged } else { Reason::Unsigned };
            return Opened::Refused(reason);
        };
        if !self.keys.iter().any(|key| key.verifies(&[MAGIC, parts.signed], parts.tag)) {
            return Opened::Refused(Reason::Forged);
        }
        if parts.start == self.start {
            return Opened::Nothing; // a datagram of this member, as received by multicast
        }
        let known = self.known.get_mut(&parts.start).map(|known| {
            let new = known.window.take(parts.number);
            known.last_received = if new { now } else { known.last_received };
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

    /// Returns whether to log a refusal of a datagram from this address.
    pub fn logs(&mut self, now: Instant, address: IpAddr) -> bool {
        self.logged.is_due(now, address)
    }

    fn control<'a>(&mut self, now: Instant, parts: &Parts<'_>, known: bool) -> Opened<'a> {
        let Some((to, requested, repeated)) = read_control(parts.body) else {
            return Opened::Nothing;
        };
        if to != self.start {
            return Opened::Nothing;
        }
        if !known && self.is_own_number(now, parts.start, &repeated) && self.evict_silent_start(now)
        {
            let window = Window::after(parts.number);
            self.known.insert(parts.start, KnownStart { window, last_received: now });
        }
        // A datagram that requests nothing gets no reply, so an exchange always ends.
        if requested == NONE { Opened::Nothing } else { self.reply(now, parts.start, requested) }
    }

    /// Replies with the number that a start requested, and requests a number if the start is not
    /// known. The reply is never longer than the datagram that it answers.
    fn reply<'a>(&mut self, now: Instant, start: u64, repeats: Nonce) -> Opened<'a> {
        let known = self.known.contains_key(&start);
        let request = if known { NONE } else { self.number_for(start, period(now)) };
        let bytes = self.sign(CONTROL, &[&start.to_be_bytes(), &request, &repeats, b"\n"]);
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

    /// Returns the number that a start must repeat.
    fn number_for(&self, start: u64, period: u64) -> Nonce {
        self.own.tag(&[&start.to_be_bytes(), &period.to_be_bytes()])
    }

    fn is_own_number(&self, now: Instant, start: u64, nonce: &Nonce) -> bool {
        let parts = |period: u64| (start.to_be_bytes(), period.to_be_bytes());
        let verifies = |period: u64| {
            let (start, period) = parts(period);
            self.own.verifies(&[&start, &period], nonce)
        };
        let now = period(now);
        verifies(now) || now.checked_sub(1).is_some_and(verifies)
    }

    /// Forgets the start that was silent longest, if `MAX_KNOWN` starts are known and it was silent
    /// for `REMEMBERED`.
    fn evict_silent_start(&mut self, now: Instant) -> bool {
        if self.known.len() < MAX_KNOWN {
            return true;
        }
        let silent = self.known.iter().min_by_key(|(_, known)| known.last_received);
        let silent = silent.filter(|(_, known)| known.last_received + REMEMBERED < now);
        silent.map(|(start, _)| *start).is_some_and(|start| self.known.remove(&start).is_some())
    }
}

/// Returns whether a datagram claims to be signed.
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

/// Reads the body of a handshake datagram: its recipient's start, the requested number, and the
/// repeated number.
fn read_control(body: &[u8]) -> Option<(u64, Nonce, Nonce)> {
    let (to, rest) = body.split_first_chunk()?;
    let (requested, rest) = rest.split_first_chunk()?;
    let (repeated, rest) = rest.split_first_chunk()?;
    (rest == b"\n").then_some((u64::from_be_bytes(*to), *requested, *repeated))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
