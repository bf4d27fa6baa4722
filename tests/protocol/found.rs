//! Faults of the machine that this simulation found, each as its shortest story.

use std::time::Duration;

use incumbent::lock::{
    Capabilities, Concession, Content, Coverage, Hint, LockErrorKind, Request, Tombstone,
};
use incumbent::protocol::{Event, Timing, TimingOptions};

use incumbent_sim::{Keeping, Server};

use super::desk::{Desk, LEASE, OTHER, capabilities, of_choria, of_other, settings};

const SECOND: Duration = Duration::from_secs(1);

/// A holder whose work outlived its grace found its own entry, took it for released, and led beside that work.
#[test]
fn work_that_would_not_stop_keeps_its_own_campaigner_out_until_its_deadline() {
    let mut desk = Desk::leading();
    desk.works_on = true;
    let deadline = Desk::time(desk.machine.deadline().expect("it leads"));
    desk.event(Event::Resign);
    desk.run(SECOND * 2);
    desk.event(Event::Ended { work_stopped: false });
    assert!(desk.holds_entry(), "an entry whose work goes on is left to expire");
    desk.run(LEASE * 3);
    assert_eq!(desk.begins().len(), 2);
    assert!(desk.begins()[1] >= deadline, "{:?} before {deadline:?}", desk.begins()[1]);
}

/// A create that was applied in doubt earns its wait however often the entry is looked at before it is written again.
#[test]
fn an_entry_of_ones_own_seen_twice_still_earns_its_wait() {
    let mut desk = Desk::standing_by();
    desk.run(SECOND);
    desk.holds = true;
    // Evicted while nobody knows when the holder last renewed: a full lease.
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    let evicted = desk.now;
    desk.admin_deletes();
    desk.next_write();
    desk.lose_the_reply();
    desk.next_write();
    desk.serve();
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    desk.next_write();
    desk.fail(LockErrorKind::Unavailable);
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= evicted + LEASE, "{:?} after {evicted:?}", desk.begins()[0]);
}

/// A server may store a create and report it as somebody else's. Who then found the entry to be its own took it for one
/// without a wait.
#[test]
fn a_create_that_landed_and_was_refused_still_earns_its_wait() {
    let mut desk = Desk::standing_by();
    desk.run(SECOND);
    desk.holds = true;
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    let evicted = desk.now;
    desk.admin_deletes();
    desk.next_write();
    desk.apply_and_fail(LockErrorKind::Conflict);
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    desk.holds = false;
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= evicted + LEASE, "{:?} after {evicted:?}", desk.begins()[0]);
}

/// A create that something between us and the lock had sent twice was refused, and landed a lease later, after another holder
/// had come and been deleted without a trace. What it was to wait for counted from its refusal.
#[test]
fn a_create_that_lands_after_its_refusal_earns_its_wait_from_then_on() {
    let lock = Capabilities { expires: false, ..capabilities() };
    let mut desk = Desk::new(settings(), lock);
    desk.server = Server::new(LEASE, Keeping::Forever, LEASE * 2);
    desk.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    desk.event(Event::Start);
    desk.holds = true;
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    let create = Request::Write(desk.next_write());
    desk.fail(LockErrorKind::Conflict);
    desk.holds = false;
    desk.other_writes(LEASE);
    desk.run(LEASE - SECOND);
    desk.server.delete(desk.now);
    desk.server.apply(desk.now, &create);
    let landed = desk.now;
    desk.event(Event::Hint(Hint::Look));
    desk.run(LEASE * 2);
    assert!(desk.begins()[0] >= landed + LEASE, "{:?} after {landed:?}", desk.begins()[0]);
}

/// A deposed holder that looked who held the entry conceded, to itself, the *other* one's revision.
#[test]
fn a_deposed_holder_concedes_nothing_of_its_successor() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.admin_deletes();
    assert!(matches!(desk.next_request(), Request::Concede(_)));
    desk.serve();
    desk.server.store(desk.now, of_other(LEASE), LEASE);
    assert!(matches!(desk.next_request(), Request::Release(_)));
    desk.serve();
    assert!(matches!(desk.next_request(), Request::Read { .. }));
    desk.serve();
    desk.holds = false;
    desk.run(SECOND * 5);
    let evicted = desk.now;
    desk.admin_deletes();
    desk.run(LEASE * 2);
    let again = desk.begins()[1];
    assert!(again >= evicted + LEASE / 3, "{again:?} after {evicted:?}");
}

/// An eviction says nothing about those for whom the evicted holder had itself to wait: one of Choria's needs
/// longer than a lease to learn of its own loss.
#[test]
fn whoever_follows_an_evicted_holder_waits_for_the_choria_campaigner_before_it() {
    let options = TimingOptions { choria_peers: true, ..TimingOptions::default() };
    let mut ours = settings();
    ours.timing = Timing::new(options, LEASE).expect("a valid timing");
    ours.choria_peers = true;
    let mut desk = Desk::standing_by_with(ours, capabilities());
    // Choria's campaigner may lead for 0.75 x 12 s + 5 s after its last write, and the other waited for it.
    desk.other_writes(SECOND * 14);
    desk.run(Duration::from_millis(10));
    let evicted = desk.now;
    desk.admin_deletes();
    desk.run(LEASE * 3);
    let wait = desk.begins()[0] - evicted;
    assert!(wait >= SECOND * 13, "{wait:?}");
}

/// A cluster refuses a write while another one is in flight: looked at and tried again at once, for ever, it was a storm.
#[test]
fn a_conflict_that_a_look_does_not_confirm_is_not_repeated_without_a_delay() {
    let mut desk = Desk::leading();
    desk.holds = true;
    let mut requests = 0;
    let until = desk.now + SECOND * 5;
    while desk.now < until && desk.machine.deadline().is_some() {
        match desk.next_request() {
            Request::Write(_) => desk.fail(LockErrorKind::Conflict),
            _ => desk.serve(),
        }
        requests += 1;
        assert!(requests < 60, "{requests} requests within {:?}", desk.now);
    }
}

/// The same of a look that fails at once.
#[test]
fn looks_that_fail_are_not_repeated_without_a_delay_nor_keep_renewals_back() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.event(Event::Hint(Hint::Look));
    let (mut reads, mut writes) = (0, 0);
    let until = desk.now + LEASE * 3;
    while desk.now < until {
        match desk.next_request() {
            Request::Read { .. } => {
                reads += 1;
                desk.fail(LockErrorKind::Denied);
            }
            _ => {
                writes += 1;
                desk.serve();
            }
        }
        assert!(reads < 80, "{reads} reads within {:?}", desk.now);
    }
    assert!(writes >= 8, "{writes} renewals in three leases");
    assert_eq!(desk.ends(), []);
}

/// The same of a release that is refused though the entry is still there.
#[test]
fn a_release_that_is_refused_is_not_repeated_without_a_delay() {
    let mut desk = Desk::leading();
    desk.holds = true;
    desk.event(Event::Stop);
    let mut requests = 0;
    while !desk.is_finished() {
        match desk.next_request() {
            Request::Release(_) => desk.fail(LockErrorKind::Conflict),
            _ => desk.serve(),
        }
        requests += 1;
        assert!(requests < 60, "{requests} requests within {:?}", desk.now);
    }
}

/// The same of a create that is refused while an earlier one is in doubt.
#[test]
fn a_create_that_is_refused_is_not_repeated_without_a_delay() {
    let mut desk = Desk::started();
    desk.holds = true;
    desk.next_request();
    desk.serve();
    desk.next_write();
    desk.fail(LockErrorKind::Unknown);
    let until = desk.now + SECOND * 5;
    let mut requests = 0;
    while desk.now < until {
        match desk.next_request() {
            Request::Write(_) => desk.fail(LockErrorKind::Conflict),
            _ => desk.serve(),
        }
        requests += 1;
        assert!(requests < 100, "{requests} requests within {:?}", desk.now);
    }
}

/// Whatever a server or a peer says, nothing overflows.
#[test]
fn durations_without_end_do_not_panic() {
    let mut lock = capabilities();
    lock.longest_lease = Duration::MAX;
    let mut desk = Desk::standing_by_with(settings(), lock);
    desk.other_writes(Duration::MAX);
    let (token, revision) = (incumbent::lock::Token(1), incumbent::lock::Revision(1));
    let concession = Concession { by: OTHER, token, revision, left: Duration::MAX };
    desk.event(Event::Hint(Hint::Conceded(concession)));
    desk.stores(Content::Vacant(Tombstone::Released { by: OTHER, left: Duration::MAX }));
    desk.run(LEASE);
    desk.admin_deletes();
    desk.run(LEASE);
    desk.event(Event::Stop);
    desk.run(LEASE);
    assert!(desk.is_finished());
}

/// A lock that never answers hung whoever stood by or left office; and in office it kept the renewal from being repeated.
#[test]
fn a_lock_that_never_answers_does_not_hang_the_campaign() {
    let mut desk = Desk::started();
    desk.holds = true;
    let looks = |desk: &Desk| desk.requests().len();
    desk.run(SECOND * 60);
    assert!(looks(&desk) > 10, "{} requests a minute", looks(&desk));
    desk.held = None;
    desk.holds = false;
    desk.run(SECOND * 10);
    assert!(desk.leads(), "{:?}", desk.machine);

    desk.holds = true;
    desk.next_write();
    desk.held = None;
    desk.run(SECOND * 3);
    desk.holds = false;
    desk.serve();
    desk.run(SECOND * 60);
    assert_eq!(desk.ends(), [], "one renewal that hangs does not end a term");

    desk.holds = true;
    desk.admin_deletes();
    desk.event(Event::Stop);
    desk.run(SECOND * 20);
    assert!(desk.is_finished(), "{:?}", desk.machine);
}

/// Where the TTL is short, a Choria campaigner's renewals follow each other by as long as answers take: the last one that was
/// stored may be answered 5 s later, and the next one hang for 5 s more.
#[test]
fn a_choria_campaigner_on_a_short_ttl_is_waited_for_until_two_of_its_requests_have_hung() {
    let ttl = SECOND * 4;
    let options = TimingOptions { choria_peers: true, ..TimingOptions::default() };
    let mut ours = settings();
    ours.timing = Timing::new(options, ttl).expect("a valid timing");
    ours.choria_peers = true;
    let lock = Capabilities { longest_lease: ttl, ..capabilities() };
    let mut desk = Desk::new(ours, lock);
    desk.server = Server::new(ttl, Keeping::LeavesMarkers, ttl * 2);
    desk.event(Event::Hint(Hint::Coverage(Coverage::Full)));
    desk.event(Event::Start);
    desk.server.store(desk.now, of_choria(ttl), ttl);
    desk.tell_last();
    let renewed = desk.now;
    desk.run(SECOND * 20);
    let led = desk.begins()[0];
    assert!(led >= renewed + Duration::from_millis(10_750), "{led:?} after {renewed:?}");
}

/// What a release says is left to wait, Choria's campaigners do not read: a campaigner whose work would not stop was stopped, released
/// its entry, and one of Choria's led beside that work.
#[test]
fn beside_choria_an_entry_that_must_be_waited_for_is_not_released() {
    for choria_peers in [true, false] {
        let mut ours = settings();
        ours.choria_peers = choria_peers;
        let mut desk = Desk::started_with(ours, capabilities());
        desk.run(LEASE * 2);
        desk.works_on = true;
        let deadline = Desk::time(desk.machine.deadline().expect("it leads"));
        desk.event(Event::Resign);
        desk.run(SECOND * 2);
        desk.event(Event::Ended { work_stopped: false });
        desk.event(Event::Stop);
        desk.run(SECOND);
        assert!(desk.is_finished() && desk.now < deadline);
        assert_eq!(desk.holds_entry(), choria_peers);
    }
}
