//! Networks on which every message takes a large part of the lease.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{LockErrorKind, Mark, Nonce, Write, WriteId};
use incumbent::peer::quorum::{
    Operation, Outcome, QuorumError, Voter, VoterAction, VoterEvent, VoterSettings,
};

const LEASE: Duration = Duration::from_secs(1);

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], index as u16))
}

fn voter(index: usize) -> Voter {
    Voter::new(VoterSettings {
        id: format!("m{index}").into(),
        size: 3,
        voters: None,
        votes: true,
        lease: LEASE,
        incarnation: index as u64 + 1,
        origin_unix_us: 0,
    })
}

fn write(identity: &str) -> Write {
    let write = WriteId { nonce: Nonce(7), number: 1 };
    Write {
        identity: identity.into(),
        mark: Mark::new(write, LEASE, None),
        ttl: LEASE,
        expected: None,
        advertisement: None,
        timeout: LEASE * 4,
    }
}

/// Three voters of which this many write at once; what becomes of it where each message takes
/// `delay`.
fn decided(delay: Duration, writers: usize) -> Vec<Result<Outcome, QuorumError>> {
    let mut voters = [voter(0), voter(1), voter(2)];
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    now = now + LEASE * 2;
    for voter in &mut voters[..writers] {
        let operation = Operation::Write(write("c"));
        let timeout = LEASE * 8;
        voter.handle(
            now,
            VoterEvent::Propose { ticket: 1, name: "my_app".into(), operation, timeout },
        );
    }
    let (mut queue, mut order, mut answers) = (BTreeMap::new(), 0, Vec::new());
    while answers.len() < writers {
        for (from, voter) in voters.iter_mut().enumerate() {
            while let Some(action) = voter.poll_action() {
                match action {
                    VoterAction::Send { to, message } => {
                        let others = (0..3).filter(|other| *other != from);
                        for to in others.filter(|other| to.is_none_or(|to| to == address(*other))) {
                            order += 1;
                            queue.insert((now + delay, order), (from, to, message.clone()));
                        }
                    }
                    VoterAction::Answer { answer, .. } => answers.push(answer),
                    VoterAction::Hint { .. } => {}
                }
            }
        }
        let wake = voters.iter().filter_map(Voter::next_wake).min();
        let next = queue.first_key_value().map(|((at, _), _)| *at);
        now = [wake, next].into_iter().flatten().min().expect("something is due").max(now);
        while let Some(entry) = queue.first_entry().filter(|entry| entry.key().0 <= now) {
            let (from, to, message) = entry.remove();
            let id = format!("m{from}");
            let heard = VoterEvent::Received { id: &id, from: address(from), message: &message };
            voters[to].handle(now, heard);
        }
        voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Wake));
        assert!(order < 100_000, "they talk forever");
    }
    answers
}

/// An eighth is the most: a quarter of the lease must be longer than a round trip.
#[test]
fn a_write_is_decided_at_nearly_an_eighth_lease_per_message() {
    for parts in [1000, 100, 40, 20, 12, 10, 9] {
        let answers = decided(LEASE / parts, 1);
        assert!(matches!(answers[..], [Ok(Outcome::Written(_))]), "lease / {parts}: {answers:?}");
    }
}

#[test]
fn one_of_several_writers_on_a_slow_network_writes() {
    for parts in [1000, 20, 12, 9] {
        let answers = decided(LEASE / parts, 3);
        let written = answers.iter().filter(|answer| answer.is_ok()).count();
        let lost = |answer: &Result<Outcome, QuorumError>| {
            answer.as_ref().is_err_and(|refusal| refusal.kind == LockErrorKind::Conflict)
        };
        let lost = answers.iter().filter(|answer| lost(answer)).count();
        assert_eq!((written, lost), (1, 2), "lease / {parts}: {answers:?}");
    }
}
