//! Datagrams that somebody has recorded, and sends again.

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

fn said(voter: &mut Voter) -> Vec<Value> {
    let actions = std::iter::from_fn(|| voter.poll_action());
    let said = |action| match action {
        VoterAction::Say { said, .. } => Some(said),
        _ => None,
    };
    actions.filter_map(said).collect()
}

/// A word that was given to one start of a name must not give its seat to the next: the others refuse the earlier one only once they
/// have heard of the later one.
#[test]
fn a_word_that_was_given_to_an_earlier_start_gives_no_seat() {
    let address = SocketAddr::from(([10, 0, 0, 1], 1));
    let mut voters = NAMES.map(|name| voter(name, 7));
    let mut now = Instant::from_origin(Duration::from_secs(100));
    voters.iter_mut().for_each(|voter| voter.handle(now, VoterEvent::Start));
    let mut recorded = Vec::new();
    while !voters.iter().all(|voter| voter.votes(now)) {
        now = now + Duration::from_millis(10);
        for from in 0..3 {
            voters[from].handle(now, VoterEvent::Wake);
            for said in said(&mut voters[from]) {
                for to in (0..3).filter(|to| *to != from) {
                    let heard = VoterEvent::Heard { id: NAMES[from], from: address, said: &said };
                    voters[to].handle(now, heard);
                }
                recorded.push((from, said));
            }
        }
        assert!(now < Instant::from_origin(Duration::from_secs(110)), "they vote");
    }

    // The next start of the second one hears only what the others said to the first.
    let mut again = voter(NAMES[1], 8);
    again.handle(now, VoterEvent::Start);
    for _ in 0..400 {
        now = now + Duration::from_millis(10);
        again.handle(now, VoterEvent::Wake);
        for (from, said) in recorded.iter().filter(|(from, _)| *from != 1) {
            again.handle(now, VoterEvent::Heard { id: NAMES[*from], from: address, said });
        }
    }
    assert!(!again.votes(now), "nobody has heard of it");
}
