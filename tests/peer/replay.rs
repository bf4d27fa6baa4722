//! Recorded datagrams that are sent again; and what a start that follows another one must wait for.

use std::net::SocketAddr;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::peer::quorum::{Voter, VoterAction, VoterEvent, VoterSettings};
use serde_json::Value;

const LEASE: Duration = Duration::from_secs(1);
const NAMES: [&str; 3] = ["app-0", "app-1", "app-2"];

fn voter(name: &str, incarnation: u64) -> Voter {
    Voter::new(VoterSettings {
        id: name.into(),
        size: 3,
        voters: Some(NAMES.map(str::to_owned).into()),
        votes: true,
        lease: LEASE,
        incarnation,
        origin_unix_us: 0,
    })
}

const ADDRESS: ([u8; 4], u16) = ([10, 0, 0, 1], 1);

/// Each receives the messages of the others a moment later; returns them with their senders.
fn talk(voters: &mut [Voter; 3], now: &mut Instant) -> Vec<(usize, Value)> {
    *now = *now + Duration::from_millis(10);
    let mut all = Vec::new();
    for from in 0..3 {
        voters[from].handle(*now, VoterEvent::Wake);
        for message in sent(&mut voters[from]) {
            for to in (0..3).filter(|to| *to != from) {
                let from_address = SocketAddr::from(ADDRESS);
                let heard =
                    VoterEvent::Received { id: NAMES[from], from: from_address, message: &message };
                voters[to].handle(*now, heard);
            }
            all.push((from, message));
        }
    }
    all
}

fn sent(voter: &mut Voter) -> Vec<Value> {
    let actions = std::iter::from_fn(|| voter.poll_action());
    let message = |action| match action {
        VoterAction::Send { message, .. } => Some(message),
        _ => None,
    };
    actions.filter_map(message).collect()
}

/// A word that was given to one start of a name must not give its seat to the next: the others
/// refuse the earlier one only once they know of the later one.
#[test]
fn a_grant_to_an_earlier_start_gives_no_seat() {
    let address = SocketAddr::from(ADDRESS);
    let mut voters = NAMES.map(|name| voter(name, 7));
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    let mut recorded = Vec::new();
    while !voters.iter().all(|voter| voter.votes(now)) {
        recorded.extend(talk(&mut voters, &mut now));
        assert!(now < Instant::from_origin(Duration::from_secs(110)), "they vote");
    }

    // The next start of the second one receives only what the others sent to the first.
    let mut again = voter(NAMES[1], 8);
    again.handle(now, VoterEvent::Start);
    for _ in 0..400 {
        now = now + Duration::from_millis(10);
        again.handle(now, VoterEvent::Wake);
        for (from, message) in recorded.iter().filter(|(from, _)| *from != 1) {
            again.handle(now, VoterEvent::Received { id: NAMES[*from], from: address, message });
        }
    }
    assert!(!again.votes(now), "no voter knows of it");
}

/// What a replacement would vote for, the one before it may have voted against within the lease.
#[test]
fn a_replacement_in_a_seat_is_silent_for_more_than_a_lease() {
    let mut voters = NAMES.map(|name| voter(name, 7));
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    while !voters.iter().all(|voter| voter.votes(now)) {
        talk(&mut voters, &mut now);
    }
    voters[1] = voter(NAMES[1], 8);
    voters[1].handle(now, VoterEvent::Start);
    let began = now;
    while !voters[1].votes(now) {
        talk(&mut voters, &mut now);
    }
    let waited = now.saturating_since(began);
    assert!(waited > LEASE, "{waited:?}");
}
