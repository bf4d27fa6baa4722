//! What entries and releases state for moves: priority, site, and the pause of the election.

use std::time::Duration;

use incumbent::lock::{
    Capabilities, Content, Coverage, Hint, Mark, MoveInfo, Pause, Request, Revision, Tombstone,
    Write,
};
use incumbent::protocol::{CoolDown, Event, Settings};

use super::harness::{Harness, LEASE, OTHER, SECOND, WALL_MS, capabilities, of_other, settings};

fn until(secs: u64) -> Option<Pause> {
    Some(Pause { until_unix_ms: WALL_MS + secs * 1000 })
}

fn own() -> Settings {
    Settings { priority: 7, site: Some("eu".into()), ..settings() }
}

fn writes(harness: &Harness) -> Vec<Write> {
    let writes = harness.requests().into_iter().filter_map(|request| match request {
        Request::Write(write) => Some(write.clone()),
        _ => None,
    });
    writes.collect()
}

fn last_stated(harness: &Harness) -> MoveInfo {
    (*writes(harness).last().expect("a write").mark.moves).clone()
}

/// An entry of another candidate, which states this pause.
fn paused(pause: Option<Pause>) -> Content {
    let Content::Held(mut entry) = of_other(LEASE) else { panic!("an entry") };
    let mark = entry.mark.take().expect("a mark");
    entry.mark = Some(Mark { moves: Box::new(MoveInfo { pause, ..MoveInfo::default() }), ..mark });
    Content::Held(entry)
}

fn released(pause: Option<Pause>) -> Content {
    let left = Duration::ZERO;
    Content::Vacant(Tombstone::Released { by: OTHER, left, cause: None, to: None, pause })
}

/// One that asked it would be refused.
#[test]
fn a_holder_states_its_priority_from_leading_to_draining() {
    let cool_down = CoolDown::For(SECOND * 5);
    let mut harness = Harness::started_with(Settings { cool_down, ..own() }, capabilities());
    harness.run(LEASE * 2);
    harness.event(Event::Drains);
    harness.run(LEASE);
    let stated: Vec<_> = writes(&harness).into_iter().map(|write| *write.mark.moves).collect();
    assert!(stated.iter().all(|moves| moves.site.as_deref() == Some("eu")), "{stated:?}");
    let began = harness.begins()[0];
    let times = harness.log.iter().filter_map(|(at, action)| match action {
        incumbent::protocol::Action::Request { request: Request::Write(_), .. } => Some(*at),
        _ => None,
    });
    for (at, moves) in times.zip(stated) {
        let leads = at > began && at <= LEASE * 2;
        assert_eq!(moves.priority, leads.then_some(7), "at {at:?}");
    }
}

/// Requests come as hints do.
#[test]
fn a_holder_without_hints_states_no_priority() {
    let mut harness = Harness::started_with(own(), capabilities());
    harness.run(LEASE);
    assert_eq!(last_stated(&harness).priority, Some(7));
    harness.event(Event::Hint(Hint::Coverage(Coverage::None)));
    harness.run(LEASE);
    assert_eq!(last_stated(&harness).priority, None);
}

#[test]
pub fn a_holder_states_a_pause_within_a_second() -> Harness {
    let mut harness = Harness::started_with(own(), capabilities());
    harness.run(LEASE);
    let before = writes(&harness).len();
    harness.event(Event::Pause(until(600).expect("a pause")));
    harness.run(SECOND);
    assert_eq!((last_stated(&harness).pause, writes(&harness).len()), (until(600), before + 1));
    // The same order again writes nothing.
    harness.event(Event::Pause(until(600).expect("a pause")));
    harness.run(SECOND);
    assert_eq!(writes(&harness).len(), before + 1);
    harness.event(Event::Pause(Pause { until_unix_ms: 0 }));
    harness.run(SECOND);
    assert_eq!(last_stated(&harness).pause, None);
    harness
}

#[test]
fn a_pause_lasts_at_most_a_day_and_is_not_stated_after_it() {
    let mut harness = Harness::started_with(own(), capabilities());
    harness.run(LEASE);
    harness.event(Event::Pause(Pause { until_unix_ms: u64::MAX }));
    let day = until(LEASE.as_secs() + 24 * 3600);
    assert_eq!(harness.machine.pause(harness.local()), day);
    harness.event(Event::Pause(until(20).expect("a pause")));
    harness.run(LEASE * 2);
    assert_eq!((last_stated(&harness).pause, harness.machine.pause(harness.local())), (None, None));
}

#[test]
pub fn a_successor_carries_on_the_pause_of_a_release() -> Harness {
    let mut harness = Harness::standby_with(own(), capabilities());
    harness.stores(released(until(600)));
    harness.run(LEASE);
    assert!(harness.leads());
    assert!(writes(&harness).iter().all(|write| write.mark.moves.pause == until(600)));
    harness.holds = true;
    harness.event(Event::Stop);
    let Request::Release(release) = harness.next_request() else { panic!("no release") };
    assert_eq!(release.pause, until(600));
    harness.serve();
    harness
}

#[test]
fn a_successor_carries_on_the_pause_of_an_entry() {
    for ends in [Content::Vacant(Tombstone::Deleted), Content::Vacant(Tombstone::Expired)] {
        let mut harness = Harness::standby_with(own(), capabilities());
        harness.stores(paused(until(600)));
        harness.stores(ends);
        harness.run(LEASE * 3);
        assert!(harness.leads());
        assert_eq!(last_stated(&harness).pause, until(600));
    }
    // On a lock that frees nothing, by a candidate that began after the crash.
    let lock = Capabilities { expires_entries: false, ..capabilities() };
    let mut harness = Harness::new(own(), lock);
    harness.server = incumbent_sim::Server::new(LEASE, incumbent_sim::Retention::Forever, LEASE);
    harness.server.store(harness.now, paused(until(600)), LEASE);
    harness.event(Event::Start);
    harness.run(LEASE * 3);
    assert!(harness.leads());
    assert_eq!(last_stated(&harness).pause, until(600));
}

#[test]
fn a_pause_that_the_holder_has_ended_is_not_carried_on() {
    for ended in [paused(None), released(None)] {
        let mut harness = Harness::standby_with(own(), capabilities());
        harness.stores(paused(until(600)));
        assert_eq!(harness.machine.pause(harness.local()), until(600));
        harness.stores(ended);
        assert_eq!(harness.machine.pause(harness.local()), None);
        harness.stores(Content::Vacant(Tombstone::Deleted));
        harness.run(LEASE * 3);
        assert!(harness.leads());
        assert_eq!(last_stated(&harness).pause, None);
    }
}

/// An order that came before the read of a lost reply is newer than the entry.
#[test]
fn a_holder_does_not_forget_an_order_at_its_own_entry() {
    let mut harness = Harness::started_with(own(), capabilities());
    harness.run(LEASE);
    harness.holds = true;
    harness.next_write();
    harness.event(Event::Pause(until(600).expect("a pause")));
    harness.lose_the_reply();
    harness.next_write();
    harness.serve(); // refused, as the first one was applied
    assert!(matches!(harness.next_request(), Request::Read { .. }));
    harness.serve();
    assert_eq!(harness.next_write().mark.moves.pause, until(600));
    assert!(harness.server.last_revision() > Some(Revision(1)));
}
