//! Messages that come late, again, or not at all.

use std::net::SocketAddr;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{
    LockErrorKind, Mark, Nonce, Revision, StepDownNotice, Token, Write, WriteId,
};
use incumbent::peer::quorum::{Operation, Voter, VoterAction, VoterEvent, VoterSettings};
use serde_json::Value;

const LEASE: Duration = Duration::from_secs(1);

fn begin(id: &str, incarnation: u64, now: Instant) -> Voter {
    let mut voter = Voter::new(VoterSettings {
        id: id.into(),
        size: 2,
        voters: None,
        votes: true,
        lease: LEASE,
        incarnation,
        origin_unix_us: 0,
    });
    voter.handle(now, VoterEvent::Start);
    voter
}

fn receive(voter: &mut Voter, now: Instant, id: &str, message: &Value) {
    let from = SocketAddr::from(([10, 0, 0, 1], 1));
    voter.handle(now, VoterEvent::Received { id, from, message });
}

/// Its messages of this kind since the last call.
fn sent(voter: &mut Voter, kind: &str) -> Option<Value> {
    let message = std::iter::from_fn(|| voter.poll_action()).filter_map(|action| match action {
        VoterAction::Send { message, .. } => Some(message),
        _ => None,
    });
    message.filter(|message| message["body"].get(kind).is_some()).last()
}

/// The request of a write.
fn write() -> VoterEvent<'static> {
    let write = Write {
        expected: None,
        identity: "asks".into(),
        mark: Mark::new(WriteId { nonce: Nonce(7), number: 1 }, LEASE, None),
        ttl: LEASE,
        advertisement: None,
        timeout: LEASE,
    };
    let (name, operation) = ("my_app".into(), Operation::Write(write));
    VoterEvent::Propose { ticket: 1, name, operation, timeout: LEASE }
}

/// Hands over what asks for a promise, which is returned, and the promise.
fn promised(asks: &mut Voter, votes: &mut Voter, id: &str, now: Instant) -> Value {
    let prepare = sent(asks, "Prepare").expect("it asks for a promise");
    receive(votes, now, "asks", &prepare);
    let promise = sent(votes, "Promise").expect("a promise");
    receive(asks, now, id, &promise);
    prepare
}

/// What was sent to be accepted may be, whatever the next round finds.
#[test]
fn a_crowded_quorum_leaves_the_outcome_of_a_write_unknown() {
    let start = Instant::from_origin(Duration::from_secs(100));
    let (mut asks, mut votes) = (begin("asks", 1, start), begin("votes", 2, start));
    let mut third = begin("third", 3, start);
    let now = start + LEASE * 2;
    asks.handle(now, write());
    promised(&mut asks, &mut votes, "votes", now);
    assert!(sent(&mut asks, "Accept").is_some());
    let now = now + LEASE / 4;
    asks.handle(now, VoterEvent::Wake);
    promised(&mut asks, &mut third, "third", now);
    let answer = std::iter::from_fn(|| asks.poll_action()).find_map(|action| match action {
        VoterAction::Answer { answer, .. } => Some(answer),
        _ => None,
    });
    let error = answer.expect("an answer").expect_err("three of two have voted");
    assert!(error.message.starts_with("more than 2 members vote"), "{}", error.message);
    assert_eq!(error.kind, LockErrorKind::OutcomeUnknown);
}

/// Without it a standby that lost one datagram would wait for up to a lease.
#[test]
fn news_is_repeated_also_by_a_member_that_leaves() {
    let now = Instant::from_origin(Duration::from_secs(100));
    let mut voter = begin("tells", 1, now);
    let (by, token, revision) = (Nonce(7), Token(1), Revision(1));
    let notice = StepDownNotice { by, token, revision, left: Duration::ZERO };
    voter.handle(now, VoterEvent::NotifyStepDown("my_app".into(), notice));
    assert!(sent(&mut voter, "Conceded").is_some());
    let now = voter.next_wake().expect("it is to be repeated");
    voter.handle(now, VoterEvent::Wake);
    assert!(sent(&mut voter, "Conceded").is_some());
    voter.handle(now, VoterEvent::Stop);
    assert!(sent(&mut voter, "Conceded").is_some(), "at once, as there is no later");
}

/// What a voter has promised before it forgot it binds it no more, so it is good for nothing
/// either: not even where both the request and what followed from the promise arrive late enough to
/// be received again.
#[test]
fn a_promise_is_good_for_the_start_that_gave_it() {
    let start = Instant::from_origin(Duration::from_secs(100));
    let (mut asks, mut votes) = (begin("asks", 1, start), begin("votes", 2, start));
    let now = start + LEASE * 2;
    asks.handle(now, write());
    let prepare = promised(&mut asks, &mut votes, "votes", now);
    let accept = sent(&mut asks, "Accept").expect("two of two have promised");
    receive(&mut votes, now, "asks", &accept);
    assert!(sent(&mut votes, "Accepted").is_some(), "who has promised accepts");

    let mut again = begin("votes", 3, now);
    let now = now + LEASE * 2;
    receive(&mut again, now, "asks", &prepare);
    assert!(sent(&mut again, "Promise").is_some(), "it votes again");
    receive(&mut again, now, "asks", &accept);
    assert!(sent(&mut again, "Accepted").is_none(), "it was the last start that promised");
}
