//! Datagrams of strangers.

use incumbent::clock::Instant;
use incumbent::lock::{Hint, LockErrorKind, Nonce, Release, Revision};
use incumbent::peer::protocol::{Action, Event, Group, Settings};
use incumbent::peer::quorum::{Operation, Outcome, Voter, VoterAction, VoterEvent, VoterSettings};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::UdpSocket;

use crate::env::{Net, follows, sees};

fn junk(random: &mut fastrand::Rng, own: &str) -> Vec<u8> {
    let names = ["hello", "leader", "vote", "subscribe", "ciao", "", own, "x"];
    let name = |random: &mut fastrand::Rng| match random.u8(0..4) {
        0 => json!(random.u64(..)),
        1 => json!("\u{202e}é".repeat(random.usize(0..300))),
        _ => json!(names[random.usize(..names.len())]),
    };
    let mut message = json!({
        "event": name(random),
        "id": format!("stranger-{}", random.u32(0..5_000)),
        "weight": match random.u8(0..5) { 0 => json!(-1), 1 => json!(null), 2 => json!("9"), 3 => json!(1e308), _ => json!(random.f64()) },
        "state": (["citizen", "leader", "removed", "voter"][random.usize(..4)]),
        "channels": match random.u8(0..3) { 0 => json!(vec!["c"; random.usize(0..500)]), 1 => json!({}), _ => json!([[], {}, 1, "a"]) },
        "candidate": name(random),
        "extra": match random.u8(0..3) { 0 => json!({ "channel": name(random) }), 1 => json!(7), _ => json!(null) },
        "source": "0.0.0.0:0",
    });
    if random.u8(0..4) == 0 {
        message = json!({ "chunk": message.to_string(), "id": random.u8(..).to_string(), "c": random.u64(0..300), "i": random.u64(0..300) });
    }
    let mut bytes = message.to_string().into_bytes();
    match random.u8(0..4) {
        0 => bytes.truncate(random.usize(..=bytes.len())),
        1 => (0..8).for_each(|_| {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }),
        2 if random.u8(0..10) == 0 => bytes = b"[".repeat(60_000),
        _ => {}
    }
    bytes
}

#[test]
fn no_datagram_makes_a_member_panic_or_grow_without_bound() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let source: SocketAddr = "127.0.0.1:12345".parse().unwrap();
    let mut group =
        Group::new(Settings { source: Some(source), capacity: 64, ..Settings::new("me", 1.0) });
    let mut now = Instant::from_origin(Duration::from_secs(100));
    group.handle(now, Event::Start);
    for _ in 0..40_000 {
        now = now + Duration::from_micros(random.u64(0..20_000));
        let from = SocketAddr::from(([127, 0, 0, random.u8(..)], random.u16(1..)));
        let bytes = junk(&mut random, "me");
        group.handle(now, Event::Datagram { from, multicast: random.bool(), bytes: &bytes });
        let mut actions = 0;
        while let Some(action) = group.poll_action() {
            actions += 1;
            if let Action::Send { bytes, .. } = action {
                assert!(bytes.len() <= 508 && bytes.is_ascii());
            }
        }
        assert!(actions < 1_000, "{actions} actions on one datagram");
        assert!(group.members().len() <= 65);
        assert!(group.next_wake().is_some_and(|wake| wake <= now + Duration::from_secs(1)));
    }
}

#[tokio::test]
async fn a_group_continues_under_junk() {
    let net = Net::new();
    let first = net.ours(1, 2.0).start().unwrap();
    follows(&first, first.id()).await;
    let second = net.ours(2, 1.0).start().unwrap();
    follows(&second, first.id()).await;
    let stranger = UdpSocket::bind(net.address(9)).await.unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..2_000 {
        // Nothing valid: that any valid datagram can supersede is documented.
        let mut bytes = junk(&mut random, first.id());
        bytes.insert(0, b'!');
        bytes.truncate(60_000);
        for host in [1, 2] {
            stranger.send_to(&bytes, net.address(host)).await.unwrap();
        }
    }
    let third = net.ours(3, 9.0).start().unwrap();
    follows(&third, first.id()).await;
    sees(&second, 3).await;
}

/// Turns one number, word or branch of a voter's message into something else.
fn twist(random: &mut fastrand::Rng, message: &mut Value) {
    match message {
        Value::Object(fields) if !fields.is_empty() && random.u8(0..20) > 0 => {
            let at = random.usize(..fields.len());
            if let Some((_, field)) = fields.iter_mut().nth(at) {
                twist(random, field);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = random.usize(..items.len());
            twist(random, &mut items[at]);
        }
        other => {
            *other = match random.u8(0..6) {
                0 => json!(u64::MAX),
                1 => json!(random.u64(..)),
                2 => json!(random.u64(0..4)),
                3 => json!(-1.5),
                4 => json!("x".repeat(random.usize(0..400))),
                _ => json!(null),
            }
        }
    }
}

fn settings(index: u64, lease: Duration) -> VoterSettings {
    VoterSettings {
        id: format!("v{index}").into(),
        size: 3,
        voters: None,
        votes: true,
        lease,
        incarnation: index,
        origin_unix_us: 0,
    }
}

fn voter(index: u64, lease: Duration) -> Voter {
    Voter::new(settings(index, lease))
}

/// A message of a stranger `v9` about `my_app`.
fn message(lease_ms: u64, body: &Value) -> Value {
    json!({ "size": 3, "lease_ms": lease_ms, "incarnation": 9, "name": "my_app", "body": body })
}

/// Announces a release of an election, with this revision and number of the write.
fn stored(name: &str, revision: u64, number: u64) -> Value {
    let holds = json!({ "Released": { "by": 7, "left_ms": 5 } });
    let value = json!({ "revision": revision, "holds": holds, "by": [9, number] });
    let mut message = message(1000, &json!({ "Stored": { "value": value, "previous": null } }));
    message["name"] = name.into();
    message
}

/// What a voter sends about such a message, by kind.
fn answers(voter: &mut Voter, now: Instant, message: &Value) -> Vec<String> {
    let from = SocketAddr::from(([10, 0, 0, 1], 1));
    while voter.poll_action().is_some() {}
    voter.handle(now, VoterEvent::Received { id: "v9", from, message });
    let kind = |action| match action {
        VoterAction::Send { message, .. } => {
            message["body"].as_object().and_then(|body| body.keys().next().cloned())
        }
        other => Some(format!("{other:?}")),
    };
    std::iter::from_fn(|| voter.poll_action()).filter_map(kind).collect()
}

/// A lost quorum would seem to be misconfigured.
#[test]
fn only_a_voter_reports_other_settings() {
    let lease = Duration::from_secs(1);
    let now = Instant::from_origin(Duration::from_secs(100));
    let prepare = json!({ "Prepare": { "ballot": { "round": 1, "by": 9 } } });
    for (votes, reports) in [(true, &["Mismatch"][..]), (false, &[][..])] {
        let mut member = Voter::new(VoterSettings { votes, ..settings(0, lease) });
        member.handle(now, VoterEvent::Start);
        assert_eq!(answers(&mut member, now, &message(2000, &prepare)), reports);
    }
}

/// It is no member whose step-down this quorum waits for.
#[test]
fn a_step_down_in_another_quorum_is_no_hint() {
    let lease = Duration::from_secs(1);
    let now = Instant::from_origin(Duration::from_secs(100));
    let mut member = voter(0, lease);
    member.handle(now, VoterEvent::Start);
    let body = json!({ "Conceded": { "by": 7, "token": 1, "revision": 1, "left_ms": 0 } });
    assert_eq!(answers(&mut member, now, &message(1000, &body)).len(), 1);
    assert!(answers(&mut member, now, &message(2000, &body)).is_empty());
}

/// A voter that is not among those that are named would else be said to have started recently.
#[test]
fn a_member_that_is_not_named_says_so() {
    let lease = Duration::from_secs(1);
    let now = Instant::from_origin(Duration::from_secs(100));
    let voters = Some(["a", "b", "c"].map(String::from).into());
    let mut member = Voter::new(VoterSettings { voters, ..settings(0, lease) });
    member.handle(now, VoterEvent::Start);
    let (name, operation) = ("my_app".into(), Operation::Read);
    member.handle(now, VoterEvent::Propose { ticket: 1, name, operation, timeout: lease });
    member.handle(now + lease, VoterEvent::Wake);
    let answer = std::iter::from_fn(|| member.poll_action()).find_map(|action| match action {
        VoterAction::Answer { answer, .. } => Some(answer),
        _ => None,
    });
    let message = answer.expect("an answer").expect_err("no quorum").message;
    assert!(message.ends_with("this member's id is not among the voters: set id"), "{message}");
}

#[test]
fn a_voter_accepts_no_value_longer_than_members_write() {
    let lease = Duration::from_secs(1);
    let now = Instant::from_origin(Duration::from_secs(100));
    let mut member = voter(0, lease);
    member.handle(now, VoterEvent::Start);
    let now = now + lease * 2;
    let mut accepts = |round: u64, bytes: usize| {
        let ballot = json!({ "round": round, "by": 9 });
        let prepare = json!({ "Prepare": { "ballot": ballot } });
        assert_eq!(answers(&mut member, now, &message(1000, &prepare)), ["Promise"]);
        let holds = json!({ "Released": { "by": 7, "left_ms": 5, "cause": "x".repeat(bytes) } });
        let value = json!({ "revision": round, "holds": holds, "by": [9, 1] });
        let accept = json!({ "Accept": { "ballot": ballot, "to": 0, "value": value } });
        answers(&mut member, now, &message(1000, &accept))
    };
    assert_eq!(accepts(1, 256), ["Accepted"]);
    assert!(accepts(2, 257).is_empty());
}

/// Else nothing would say why the next one has no leader.
#[test]
fn an_election_that_voters_cannot_remember_is_refused() {
    let lease = Duration::from_secs(1);
    let mut voters = [0, 1, 2].map(|index| voter(index, lease));
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    now = now + lease * 2;
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    for n in 0..16_384 {
        let ballot = json!({ "round": 1, "by": 9 });
        let body = json!({ "Prepare": { "ballot": ballot } });
        let name = format!("e{n}");
        let message =
            json!({ "size": 3, "lease_ms": 1000, "incarnation": 9, "name": name, "body": body });
        for voter in &mut voters[1..] {
            let hears = VoterEvent::Received { id: "v9", from: address, message: &message };
            voter.handle(now, hears);
            while let Some(VoterAction::Send { message, .. }) = voter.poll_action() {
                assert!(message["body"]["Promise"].is_object(), "{n}: {message}");
            }
        }
    }
    let ask = VoterEvent::Propose {
        ticket: 1,
        name: "next".into(),
        operation: Operation::Read,
        timeout: lease / 2,
    };
    voters[0].handle(now, ask);
    let refused = loop {
        let mut sent = Vec::new();
        let mut answered = None;
        for (from, voter) in voters.iter_mut().enumerate() {
            while let Some(action) = voter.poll_action() {
                match action {
                    VoterAction::Send { message, .. } => sent.push((from, message)),
                    VoterAction::Answer { answer, .. } => answered = Some(answer),
                    VoterAction::Hint { .. } => {}
                }
            }
        }
        if let Some(answer) = answered {
            break answer.unwrap_err();
        }
        for (from, message) in sent {
            for (_, voter) in voters.iter_mut().enumerate().filter(|(to, _)| *to != from) {
                let id = format!("v{from}");
                let hears = VoterEvent::Received { id: &id, from: address, message: &message };
                voter.handle(now, hears);
            }
        }
        now = now + Duration::from_millis(20);
        voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Wake));
    };
    assert_eq!(refused.kind, LockErrorKind::Misconfigured, "{}", refused.message);
    assert!(refused.message.contains("remembers 16384 elections"), "{}", refused.message);
}

/// One with the greatest revision would silence all that follow.
#[test]
fn a_forged_announcement_silences_no_real_one() {
    let lease = Duration::from_secs(1);
    let mut voter = voter(0, lease);
    let start = Instant::from_origin(Duration::from_secs(100));
    voter.handle(start, VoterEvent::Start);
    while voter.poll_action().is_some() {}
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let mut hint = |now: Instant, revision: u64, number: u64| {
        let message = stored("e", revision, number);
        voter.handle(now, VoterEvent::Received { id: "v9", from: address, message: &message });
        let hints: Vec<_> = std::iter::from_fn(|| voter.poll_action()).collect();
        match &hints[..] {
            [] => "none",
            [VoterAction::Hint { hint: Hint::Stored { .. }, .. }] => "stored",
            [VoterAction::Hint { hint: Hint::Recheck, .. }] => "recheck",
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hint(start, 10, 1), "stored");
    assert_eq!(hint(start, 10, 1), "none", "it is repeated");
    assert_eq!(hint(start, (1 << 60) - 1, 1), "stored");
    assert_eq!(hint(start, 10, 1), "none");
    assert_eq!(hint(start, 11, 2), "recheck");
    assert_eq!(hint(start, 11, 2), "none");
    assert_eq!(hint(start + lease, 12, 3), "stored");
    let many = (13..1_000).filter(|number| hint(start + lease, *number, *number) != "stored");
    assert_eq!(many.count(), 0);
}

/// Else the election whose name comes first would be missing from lists of full voters.
#[test]
fn a_full_voter_forgets_what_was_announced_a_lease_ago() {
    let lease = Duration::from_secs(1);
    let mut voter = voter(0, lease);
    let start = Instant::from_origin(Duration::from_secs(100));
    voter.handle(start, VoterEvent::Start);
    let from = SocketAddr::from(([10, 0, 0, 1], 1));
    let mut announce = |now: Instant, name: &str| {
        let message = stored(name, 1, 1);
        voter.handle(now, VoterEvent::Received { id: "v9", from, message: &message });
    };
    (0..16_383).for_each(|number| announce(start, &format!("e{number}")));
    announce(start + lease / 2, "a");
    announce(start + lease / 2, "too many");
    announce(start + lease, "b");
    let (name, operation) = ("".into(), Operation::Names);
    let now = start + lease * 5 / 4;
    voter.handle(now, VoterEvent::Propose { ticket: 1, name, operation, timeout: lease });
    let names = std::iter::from_fn(|| voter.poll_action()).find_map(|action| match action {
        VoterAction::Answer { answer: Ok(Outcome::Names(names)), .. } => Some(names),
        _ => None,
    });
    let names = names.expect("an answer");
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn no_message_makes_a_voter_panic() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let lease = Duration::from_secs(1);
    let mut voters = [0, 1, 2].map(|index| voter(index, lease));
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    now = now + lease * 2;
    let (mut answers, mut heard) = (0, 0);
    for ticket in 0..4_000 {
        now = now + Duration::from_micros(random.u64(0..200_000));
        let expected = Revision(random.u64(0..3));
        let release = Release {
            expected,
            by: Nonce::NOBODY,
            left: lease,
            cause: "evicted",
            to: None,
            pause: None,
            timeout: lease,
        };
        let operation = if random.bool() { Operation::Read } else { Operation::Release(release) };
        let name = format!("e{}", random.u8(0..3)).into();
        let asks = random.usize(..3);
        let ask = VoterEvent::Propose { ticket, name, operation, timeout: lease / 2 };
        voters[asks].handle(now, ask);
        for _ in 0..3 {
            for from in 0..3 {
                voters[from].handle(now, VoterEvent::Wake);
                while let Some(action) = voters[from].poll_action() {
                    let VoterAction::Send { mut message, .. } = action else {
                        answers += u32::from(matches!(action, VoterAction::Answer { .. }));
                        continue;
                    };
                    if random.u8(0..4) == 0 {
                        twist(&mut random, &mut message);
                    }
                    let address = SocketAddr::from(([10, 0, 0, 1], 1));
                    let id = format!("v{from}");
                    let hears = VoterEvent::Received { id: &id, from: address, message: &message };
                    voters[(from + 1 + random.usize(..2)) % 3].handle(now, hears);
                    heard += 1;
                    assert!(heard < 1_000_000, "they talk forever");
                }
            }
        }
    }
    assert!(answers > 1_000, "most are answered: {answers}");
}
