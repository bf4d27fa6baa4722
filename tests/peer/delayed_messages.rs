//! Messages that arrive after the voter that they were sent to was restarted.

use std::net::SocketAddr;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{Mark, Nonce, Write, WriteId};
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

/// What a voter has promised before it forgot it binds it no more, so it is good for nothing
/// either: not even where both the request and what followed from the promise arrive late enough to
/// be received again.
#[test]
fn a_promise_is_good_for_the_start_that_gave_it() {
    let start = Instant::from_origin(Duration::from_secs(100));
    let (mut asks, mut votes) = (begin("asks", 1, start), begin("votes", 2, start));
    let now = start + LEASE * 2;
    let write = Write {
        expected: None,
        identity: "asks".into(),
        mark: Mark::new(WriteId { nonce: Nonce(7), number: 1 }, LEASE, None),
        ttl: LEASE,
        advertisement: None,
        timeout: LEASE,
    };
    let (name, operation) = ("my_app".into(), Operation::Write(write));
    asks.handle(now, VoterEvent::Propose { ticket: 1, name, operation, timeout: LEASE });
    let prepare = sent(&mut asks, "Prepare").expect("it asks for a promise");
    receive(&mut votes, now, "asks", &prepare);
    let promise = sent(&mut votes, "Promise").expect("a promise");
    receive(&mut asks, now, "votes", &promise);
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
