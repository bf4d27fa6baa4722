//! A quorum of three peers, whose members change their release one after the other, at their own
//! addresses.

use std::time::Duration;

use incumbent_test_support::Port;
use rustix::process::Signal;

use crate::fleet::{Fleet, MEMBERS};
use crate::place::Place;
use crate::release::Release;

/// In seconds: a member that starts is silent for more than one.
const LEASE: u64 = 3;

/// A member that starts does not vote for one and a half leases, and nothing shows when it does.
async fn all_vote() {
    tokio::time::sleep(Duration::from_secs(LEASE) * 16 / 10).await;
}

impl Fleet {
    /// Has the member in a slot start again, as another release.
    async fn change(&mut self, slot: usize, signal: Signal) {
        let place = self.members.iter().position(|member| member.slot == slot);
        let place = place.expect("a member in each slot");
        let release = self.members[place].release;
        self.end(place, signal);
        self.settle().await; // before another one uses its address
        self.join(release.other(), slot);
    }

    /// Changes the release of all members, the leader's last, so that one of the other takes over.
    async fn change_all(&mut self, signal: Signal) {
        let leader = self.leader("a leader", |_| true).await;
        let (release, last) = (self.members[leader].release, self.members[leader].slot);
        for slot in (0..MEMBERS).filter(|slot| *slot != last) {
            self.change(slot, signal).await;
            self.all_see_the_leader().await;
            all_vote().await;
        }
        self.both_read_the_same().await;
        self.change(last, signal).await;
        self.leader("one of the other release takes over", |member| member.release != release)
            .await;
        self.all_see_the_leader().await;
        all_vote().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_of_peers() {
    let ports: [Port; MEMBERS] = std::array::from_fn(|_| Port::pick());
    let numbers = ports.each_ref().map(Port::number);
    let peers = numbers.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = move |port| format!("peer:127.0.0.1:{port}?quorum=3&lease={LEASE}s&peers={peers}");
    let place = Place::of_members(url(0), move |slot| url(numbers[slot]));
    let place = place.with_lease(LEASE).keep(ports);
    let mut fleet = Fleet::new(place, 8);
    fleet.join_all(Release::Last);
    fleet.all_see_the_leader().await;
    fleet.both_read_the_same().await;

    fleet.change_all(Signal::KILL).await; // its term expires
    fleet.sentinel = true;
    fleet.change_all(Signal::TERM).await;
    fleet.change_all(Signal::KILL).await; // a member that joined with a sentinel
    fleet.suspend_the_leader().await;

    // All at once, without a leader meanwhile.
    let release = fleet.members[0].release;
    for _ in 0..MEMBERS {
        fleet.end(0, Signal::KILL);
    }
    fleet.settle().await;
    fleet.join_all(release.other());
    fleet.all_see_the_leader().await;
    fleet.both_read_the_same().await;
    while let Some(place) = fleet.members.len().checked_sub(1) {
        fleet.end(place, Signal::TERM);
    }
    fleet.settle().await;
    fleet.journal.check(2);
}
