//! Hints that reach a few of the standbys, drawn at random.

use std::time::Duration;

use incumbent::lock::{
    CallId, CandidateRequest, Content, Coverage, Hint, LockErrorKind, Request, RollCall,
    StepDownNotice, Successor, Tombstone,
};
use incumbent::protocol::{Action, Event, Rank, Settings};

use super::harness::{Harness, LEASE, ME, OTHER, capabilities, of_other, released, settings};

const HOUR: Duration = Duration::from_secs(3600);

fn sampled(settings: Settings) -> Harness {
    let mut harness = Harness::standby_with(settings, capabilities());
    harness.event(Event::Hint(Hint::Coverage(Coverage::Sampled)));
    harness
}

/// Lets so much time pass while the other one leads, of which no hint comes.
fn passes_unheard(harness: &mut Harness, time: Duration) {
    let end = harness.now + time;
    while harness.now < end {
        harness.server.store(harness.now, of_other(LEASE), LEASE);
        harness.run(LEASE / 3);
    }
}

fn reads(harness: &Harness) -> usize {
    harness.requests().into_iter().filter(|it| matches!(it, Request::Read { .. })).count()
}

fn wants_all(harness: &Harness) -> bool {
    harness.machine.wants_all_hints(harness.local())
}

#[test]
fn a_standby_that_receives_nothing_polls_less_and_less() {
    let mut harness = sampled(settings());
    harness.log.clear();
    passes_unheard(&mut harness, HOUR);
    assert!((5..40).contains(&reads(&harness)), "{} reads", reads(&harness));
    assert!(!wants_all(&harness));
}

#[test]
fn a_missed_vacancy_is_found_sooner_once_hints_arrive_again() {
    let mut harness = sampled(settings());
    passes_unheard(&mut harness, HOUR);
    for _ in 0..100 {
        harness.other_writes(LEASE);
        harness.run(LEASE / 3);
    }
    harness.server.store(harness.now, released(OTHER, Duration::ZERO), LEASE);
    harness.run(LEASE * 4);
    assert!(harness.leads());
}

#[test]
fn a_release_that_was_not_received_is_found() {
    let mut harness = sampled(settings());
    passes_unheard(&mut harness, HOUR);
    harness.server.store(harness.now, released(OTHER, Duration::ZERO), HOUR);
    harness.run(Duration::from_secs(15 * 60));
    assert!(harness.leads());
}

#[test]
fn all_hints_are_needed_from_the_create_to_the_end_of_the_term() {
    let mut harness = sampled(settings());
    harness.holds = true;
    harness.stores(released(OTHER, Duration::ZERO));
    assert!(wants_all(&harness), "it is about to create");
    harness.next_request();
    assert!(wants_all(&harness), "it creates");
    harness.serve();
    harness.holds = false;
    harness.run(LEASE);
    assert!(harness.leads() && wants_all(&harness));
    harness.event(Event::Resign);
    harness.other_writes(LEASE);
    harness.run(LEASE);
    assert!(!wants_all(&harness));
    harness.event(Event::Rank(Rank::Next));
    assert!(wants_all(&harness), "its member asked for the entry");
    assert!(wants_all(&sampled(Settings { eligible: false, ..settings() })), "it observes");
}

#[test]
fn named_successor_reads_and_wants_no_more_hints() {
    let named = |nonce| {
        let request = CandidateRequest::WhoCanSucceed(Successor::Candidate(nonce));
        let call = RollCall { id: CallId(1), within: Duration::ZERO, request };
        Event::Hint(Hint::RollCall(call))
    };
    let mut harness = sampled(settings());
    passes_unheard(&mut harness, HOUR);
    harness.log.clear();
    harness.event(named(OTHER));
    harness.run(Duration::from_millis(1));
    assert_eq!(reads(&harness), 0, "another one is named");
    harness.event(named(ME));
    harness.run(Duration::from_millis(1));
    assert_eq!((reads(&harness), wants_all(&harness)), (1, false));
    harness.server.store(harness.now, released(OTHER, Duration::ZERO), HOUR);
    harness.event(named(ME));
    harness.run(LEASE);
    assert!(harness.leads());
}

/// Of its own term it has received everything, or nothing where its renewals are left out.
#[test]
fn former_leader_finds_a_missed_release_within_leases() {
    let mut harness = Harness::leading();
    harness.event(Event::Hint(Hint::Coverage(Coverage::Sampled)));
    harness.run(HOUR);
    assert!(harness.leads());
    harness.event(Event::Resign);
    harness.other_writes(LEASE);
    harness.run(LEASE);
    harness.server.store(harness.now, released(OTHER, Duration::ZERO), HOUR);
    harness.run(LEASE * 4);
    assert!(harness.leads());
}

/// Its successor may not have received the notice before it created its entry, nor the next one.
#[test]
pub fn an_evicted_leader_repeats_its_notice_for_a_lease() -> Harness {
    let harness = evicted(Coverage::Sampled);
    let notices = notices(&harness);
    assert_eq!(notices.len(), 1 + 3);
    assert!(notices.iter().all(|notice| *notice == notices[0] && notice.by == ME), "{notices:?}");
    harness
}

/// Its release fails: the successor creates its entry meanwhile.
#[test]
fn a_leader_that_still_steps_down_repeats_its_notice() {
    let mut harness = Harness::leading();
    harness.event(Event::Hint(Hint::Coverage(Coverage::Sampled)));
    harness.run(LEASE);
    harness.holds = true;
    harness.stores(Content::Vacant(Tombstone::Deleted));
    assert!(matches!(harness.next_request(), Request::NotifyStepDown(_)));
    harness.serve();
    assert!(matches!(harness.next_request(), Request::Release(_)));
    harness.fail(LockErrorKind::Unavailable);
    assert_eq!(notices(&harness).len(), 1);
    harness.other_writes(LEASE);
    let notices = notices(&harness);
    assert!(notices.len() == 2 && notices[0] == notices[1], "{notices:?}");
}

#[test]
fn a_leader_that_was_evicted_notifies_once_where_all_receive_it() {
    assert_eq!(notices(&evicted(Coverage::Full)).len(), 1);
}

/// A leader that was evicted, and the first writes of its successor.
fn evicted(coverage: Coverage) -> Harness {
    let mut harness = Harness::leading();
    harness.event(Event::Hint(Hint::Coverage(coverage)));
    harness.run(LEASE);
    harness.stores(Content::Vacant(Tombstone::Deleted));
    harness.run(Duration::from_millis(10));
    for _ in 0..4 {
        harness.other_writes(LEASE);
        harness.run(LEASE / 3);
    }
    harness
}

fn notices(harness: &Harness) -> Vec<StepDownNotice> {
    let requests = harness.log.iter().filter_map(|(_, action)| match action {
        Action::Request { request: Request::NotifyStepDown(notice), .. } => Some(*notice),
        _ => None,
    });
    requests.collect()
}
