//! Handshakes, forgeries and replays between two members that share a key.

use super::*;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER: &[u8] = b"another secret of 32 bytes......";

fn guard(secrets: &[&[u8]], start: u64) -> Guard {
    let keys = secrets.iter().map(|secret| Key::new(secret).unwrap()).collect();
    Guard::new(keys, start, [u8::try_from(start).unwrap(); 32]).unwrap()
}

fn at(secs: u64) -> Instant {
    Instant::from_origin(Duration::from_secs(secs))
}

/// Delivers replies until there is none. Returns all datagrams that were sent.
fn exchange(now: Instant, a: &mut Guard, b: &mut Guard, first: Vec<u8>) -> Vec<Vec<u8>> {
    let (mut sent, mut to_b) = (vec![first], true);
    loop {
        let guard = if to_b { &mut *b } else { &mut *a };
        let Opened::Reply { bytes, .. } = guard.open(now, &sent[sent.len() - 1].clone()) else {
            return sent;
        };
        sent.push(bytes);
        to_b = !to_b;
        assert!(sent.len() < 10, "the exchange does not end");
    }
}

fn handshaken() -> (Guard, Guard, Vec<Vec<u8>>) {
    let (mut a, mut b) = (guard(&[SECRET], 1), guard(&[SECRET], 2));
    let hello = a.seal(b"{}");
    let sent = exchange(at(100), &mut a, &mut b, hello);
    (a, b, sent)
}

#[test]
fn members_with_a_shared_key_accept_messages() {
    let (mut a, mut b, sent) = handshaken();
    assert_eq!(sent.len(), 4, "a message, and three to become known");
    assert!(sent.iter().all(|datagram| datagram.is_ascii() || datagram[datagram.len() - 1] < 128));
    let message = a.seal(b"{\"event\":\"hello\"}");
    assert_eq!(message.len(), OVERHEAD + 17);
    assert_eq!(b.open(at(101), &message), Opened::Message(b"{\"event\":\"hello\"}"));
    let message = b.seal(b"{}");
    assert_eq!(a.open(at(101), &message), Opened::Message(b"{}"));
    let own = a.seal(b"{}");
    assert_eq!(a.open(at(101), &own), Opened::Nothing, "its own");
}

#[test]
fn forged_datagrams_are_refused() {
    let (mut a, mut b, _) = handshaken();
    let message = a.seal(b"{}");
    for at_byte in 0..message.len() {
        let mut changed = message.clone();
        changed[at_byte] ^= 1;
        let reason = if at_byte < MAGIC.len() { Reason::Unsigned } else { Reason::Forged };
        assert_eq!(b.open(at(101), &changed), Opened::Refused(reason), "byte {at_byte}");
    }
    for cut in 0..message.len() {
        assert!(matches!(b.open(at(101), &message[..cut]), Opened::Refused(_)), "{cut} bytes");
    }
    let other = guard(&[OTHER], 3).seal(b"{}");
    assert_eq!(b.open(at(101), &other), Opened::Refused(Reason::Forged));
    assert_eq!(b.open(at(101), b"{}"), Opened::Refused(Reason::Unsigned));
    assert_eq!(b.open(at(101), &message), Opened::Message(b"{}"));
}

#[test]
fn keys_rotate_one_member_at_a_time() {
    let mut old = guard(&[SECRET], 1);
    let mut both = guard(&[SECRET, OTHER], 2);
    let mut swapped = guard(&[OTHER, SECRET], 3);
    let mut new = guard(&[OTHER], 4);
    let accepts = |a: &mut Guard, b: &mut Guard| {
        let hello = a.seal(b"{}");
        exchange(at(100), a, b, hello);
        let message = a.seal(b"{}");
        b.open(at(100), &message) == Opened::Message(b"{}")
    };
    assert!(accepts(&mut old, &mut both) && accepts(&mut both, &mut old));
    assert!(accepts(&mut both, &mut swapped) && accepts(&mut swapped, &mut both));
    assert!(accepts(&mut swapped, &mut new) && accepts(&mut new, &mut swapped));
    assert!(!accepts(&mut old, &mut new) && !accepts(&mut new, &mut old));
}

#[test]
fn recorded_datagrams_are_refused() {
    let (mut a, mut b, mut recorded) = handshaken();
    for _ in 0..3000 {
        let message = a.seal(b"{}");
        assert_eq!(b.open(at(101), &message), Opened::Message(b"{}"));
        recorded.push(message);
    }
    for datagram in &recorded {
        let opened = b.open(at(102), datagram);
        let own = datagram[OVERHEAD - 16..OVERHEAD - 8] == 2_u64.to_be_bytes();
        let expected = if own { Opened::Nothing } else { Opened::Refused(Reason::Replayed) };
        assert_eq!(opened, expected);
    }
    // A member that starts later has seen no start, and recorded datagrams cannot complete its
    // handshake.
    let mut later = guard(&[SECRET], 3);
    for _ in 0..2 {
        for datagram in &recorded {
            let opened = later.open(at(103), datagram);
            assert!(!matches!(opened, Opened::Message(_)), "{opened:?}");
        }
    }
    assert!(later.known.is_empty());
}

/// A repeated number expires after a short time, and counts only for an unknown start.
#[test]
fn forgotten_start_repeats_the_handshake() {
    let (mut a, mut b, sent) = handshaken();
    b.known.clear();
    let proof = &sent[2];
    assert!(!matches!(b.open(at(130), proof), Opened::Message(_)));
    assert!(b.known.is_empty(), "too late");
    let message = a.seal(b"{}");
    assert!(matches!(b.open(at(130), &message), Opened::Reply { .. }));
}

#[test]
fn known_starts_are_bounded_and_active_ones_are_kept() {
    let mut hub = guard(&[SECRET], 200);
    let mut first = guard(&[SECRET], 1);
    let hello = first.seal(b"{}");
    exchange(at(1), &mut first, &mut hub, hello);
    for start in 1000..1000 + MAX_KNOWN as u64 + 10 {
        let mut other = guard(&[SECRET], 3);
        other.start = start;
        let hello = other.seal(b"{}");
        exchange(at(30), &mut other, &mut hub, hello);
    }
    assert_eq!(hub.known.len(), MAX_KNOWN);
    assert!(hub.known.contains_key(&1), "no start was silent for a minute");
    let mut late = guard(&[SECRET], 5);
    let hello = late.seal(b"{}");
    exchange(at(62), &mut late, &mut hub, hello);
    assert!(hub.known.contains_key(&5) && !hub.known.contains_key(&1));
}

#[test]
fn random_datagrams_never_panic_and_are_never_accepted() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut a, mut b, mut seen) = handshaken();
    let (mut forger, mut knows) = (guard(&[OTHER], 7), false);
    for number in 0..40_000_u64 {
        let now = at(200 + number / 100);
        let mut bytes = match random.u8(0..6) {
            0 => forger.seal(b"{}"),
            1 => forger.sign(random.u8(..), &[&b.start.to_be_bytes(), &[1; 32], b"\n"]),
            2 => (0..random.usize(0..120)).map(|_| random.u8(..)).collect(),
            _ => seen[random.usize(..seen.len())].clone(),
        };
        match random.u8(0..4) {
            0 => bytes.truncate(random.usize(..=bytes.len())),
            1 if !bytes.is_empty() => {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            2 => bytes.extend((0..random.usize(0..40)).map(|_| random.u8(..))),
            _ => {}
        }
        if random.u8(0..10) == 0 {
            bytes = [MAGIC, &bytes[..]].concat();
        }
        let opened = b.open(now, &bytes);
        assert!(!matches!(opened, Opened::Message(_)), "{opened:?} of {bytes:?}");
        if let Opened::Reply { bytes: reply, .. } = opened {
            assert!(reply.len() <= bytes.len().max(OVERHEAD + 41), "a reply is no longer");
        }
        if number % 50 == 0 {
            // Valid messages are still accepted in between.
            let message = a.seal(b"{\"a\":1}");
            let opened = b.open(now, &message);
            assert_eq!(opened, Opened::Message(b"{\"a\":1}"));
            knows = true;
            seen.push(message);
            seen.truncate(500);
        }
    }
    assert!(knows && b.known.len() == 1);
}
