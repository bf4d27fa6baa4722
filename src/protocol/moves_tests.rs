use super::*;
use crate::lock::HandoverAnswer;
use crate::protocol::{Timing, TimingOptions};

const LEASE: Duration = Duration::from_secs(10);
const ME: Nonce = Nonce(1);

fn at(secs: f64) -> Instant {
    Instant::from_origin(Duration::from_secs_f64(secs))
}

/// Of priority 5, and this ready.
fn settings(readiness: Readiness) -> Settings {
    let options = TimingOptions { lease: Some(LEASE), ..TimingOptions::default() };
    let timing = Timing::new(options, LEASE).unwrap();
    Settings { priority: 5, readiness, ..Settings::new("c1", ME, timing) }
}

/// Prefers to lead once it has been ready for half a minute.
fn candidate(readiness: Readiness) -> Moves {
    let prefer_after = Some(Duration::from_secs(30));
    Moves::new(&settings(readiness), prefer_after, false, at(0.0))
}

/// The leader of this term, which is of this priority as far as it states one.
fn led(token: u64, priority: impl Into<Option<u8>>) -> Leader {
    Leader {
        identity: "c9".into(),
        token: Some(Token(token)),
        since_unix_ms: None,
        advertisement: None,
        last_seen: at(0.0),
        lease: LEASE,
        is_me: false,
        priority: priority.into(),
    }
}

/// Of priority 5, which stands by beside the leader of this term, of priority 4, from the start.
fn standby(token: u64) -> Moves {
    let mut moves = candidate(Readiness::Ready);
    moves.stands_by(at(0.0), Some(&led(token, 4)), None);
    moves
}

/// The instant at which something is due, and what it is.
fn next(moves: &mut Moves) -> Option<(Instant, CandidateRequest)> {
    for _ in 0..10 {
        let due = moves.next_wake()?;
        if let Some(call) = moves.advance(due) {
            return Some((due, call));
        }
    }
    panic!("wakes without a delay: {moves:?}");
}

/// A leader asks who is ready to lead next.
fn search() -> CandidateRequest {
    CandidateRequest::WhoCanSucceed(Successor::Any)
}

/// A ready standby.
fn other(nonce: u64, priority: u8) -> CandidateInfo {
    CandidateInfo { priority, ..CandidateInfo::new(format!("c{nonce}"), Nonce(nonce)) }
}

fn leader(priority: u8) -> CandidateInfo {
    let handover = Some(HandoverAnswer::Refused("no".into()));
    CandidateInfo { role: Role::Leader, handover, ..other(9, priority) }
}

#[test]
fn a_roll_call_instead_of_a_question_awaits_no_answer() {
    let mut moves = standby(1);
    let (asked, _) = next(&mut moves).expect("it asks");
    let won = asked + Duration::from_secs(1);
    moves.leads(won, won, None);
    assert!(moves.request(Successor::Any).is_ok());
    moves.stands_by(won + LEASE, Some(&led(2, 4)), None);
    assert_eq!(moves.on_roll(won + LEASE, &[other(2, 0)]), Err(Refusal::NotLeading));
    let (_, call) = next(&mut moves).expect("it asks again");
    assert!(matches!(call, CandidateRequest::Prefer { .. }));
}

#[test]
fn the_answer_of_an_earlier_leader_settles_nothing() {
    let mut moves = standby(1);
    let (asked, _) = next(&mut moves).expect("it asks");
    moves.stands_by(asked, Some(&led(2, 4)), None);
    moves.on_answer(asked, &[leader(9)]);
    assert!(next(&mut moves).is_some());
}

#[test]
fn failed_handovers_keep_no_unhealthy_leader_from_searching() {
    let mut moves = candidate(Readiness::Unhealthy);
    moves.leads(at(0.0), at(0.0), None);
    for secs in [3.0, 6.0, 9.0] {
        assert!(moves.request("nobody".into()).is_ok());
        assert!(moves.on_roll(at(secs), &[other(2, 0)]).is_err());
        assert!(moves.request("nobody".into()).is_ok());
        moves.on_roll_failed(at(secs));
    }
    assert_eq!(next(&mut moves), Some((at(10.0), search())));
}

/// Its work drains, and may do so for long.
#[test]
fn nothing_voluntary_takes_the_place_of_an_order() {
    let mut moves = candidate(Readiness::Ready);
    moves.leads(at(0.0), at(0.0), None);
    assert!(moves.request("c2".into()).is_ok());
    let answers = [other(2, 0), other(3, 9)];
    assert_eq!(moves.on_roll(at(20.0), &answers).map(|chosen| chosen.nonce), Ok(Nonce(2)));
    moves.set_readiness(at(21.0), Readiness::Unhealthy);
    assert_eq!(moves.next_wake(), None);
    assert_eq!(moves.prefer(at(22.0), 9), Err(Refusal::Busy));
    assert!(moves.request("c3".into()).is_ok());
    assert_eq!(moves.on_roll(at(23.0), &answers).map(|chosen| chosen.nonce), Ok(Nonce(3)));
    // It leads again.
    moves.stands_by(at(30.0), None, None);
    moves.leads(at(40.0), at(40.0), None);
    assert_eq!(next(&mut moves), Some((at(50.0), search())));
}

/// Of priority 5, which leads from the start and is this ready.
fn leading(readiness: Readiness) -> Moves {
    let mut moves = candidate(readiness);
    moves.leads(at(0.0), at(0.0), None);
    moves
}

fn of(readiness: Readiness, nonce: u64, priority: u8) -> CandidateInfo {
    CandidateInfo { readiness, ..other(nonce, priority) }
}

/// The candidate that a leader chooses.
fn chosen(moves: &mut Moves, now: f64, answers: &[CandidateInfo]) -> Result<u64, Refusal> {
    moves.on_roll(at(now), answers).map(|chosen| chosen.nonce.0)
}

/// The candidate that a leader chooses upon an order.
fn ordered(to: impl Into<Successor>, answers: &[CandidateInfo]) -> Result<u64, Refusal> {
    let mut moves = leading(Readiness::Ready);
    assert!(moves.request(to.into()).is_ok());
    chosen(&mut moves, 1.0, answers)
}

fn until(secs: f64) -> Option<Instant> {
    Some(at(secs))
}

#[test]
fn only_a_leader_hands_over_and_prepares_one_handover_at_a_time() {
    let mut moves = standby(1);
    assert_eq!(moves.request(Successor::Any), Err(Refusal::NotLeading));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::NotLeading));
    assert_eq!(chosen(&mut moves, 20.0, &[other(2, 9)]), Err(Refusal::NotLeading));

    let mut moves = leading(Readiness::Ready);
    assert!(moves.request(Successor::Any).is_ok());
    assert_eq!(moves.request(Successor::Any), Err(Refusal::Busy));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::Busy));
    moves.on_roll_failed(at(20.0));
    assert!(moves.request(Successor::Any).is_ok());
    // Another term than the one that was to be handed over.
    moves.stands_by(at(21.0), None, None);
    moves.leads(at(22.0), at(22.0), None);
    assert_eq!(chosen(&mut moves, 23.0, &[other(2, 9)]), Err(Refusal::NotLeading));
    assert!(moves.request(Successor::Any).is_ok());
}

#[test]
fn a_leader_that_finds_nobody_ready_states_what_it_found() {
    let me = CandidateInfo { nonce: ME, ..other(1, 9) };
    let answers = [of(Readiness::Unhealthy, 2, 0), of(Readiness::Cordoned, 3, 0), leader(9), me];
    let found = Found { others: 2, sick: 1, aside: 1 };
    assert_eq!(ordered(Successor::Any, &answers), Err(Refusal::NobodyReady(found)));
    let none = Refusal::NobodyReady(Found::default());
    assert_eq!(ordered("c7", &answers), Err(none.clone()));
    assert_eq!(none.to_string().matches("none answered").count(), 1);
    let site = |site: &str| Successor::Site(site.into());
    let there = CandidateInfo { site: Some("b".into()), ..other(4, 0) };
    assert_eq!(ordered(site("b"), &[other(2, 9), there.clone()]), Ok(4));
    assert!(ordered(site("a"), &[other(2, 9), there]).is_err());
}

#[test]
fn the_readiest_then_the_highest_priority_leads_next() {
    let answers = [
        of(Readiness::Cordoned, 2, 9),
        other(3, 1),
        other(4, 2),
        other(5, 2),
        of(Readiness::Unhealthy, 6, 9),
    ];
    assert_eq!(ordered(Successor::Any, &answers), Ok(5));
    assert_eq!(ordered("c3", &answers), Ok(3));
    assert_eq!(ordered("c2", &answers), Ok(2), "one that stands aside, where it is named");
    assert!(ordered("c6", &answers).is_err(), "one that is sick, though it is named");
    for role in [Role::Leader, Role::Draining, Role::CoolingDown] {
        let busy = CandidateInfo { role, ..other(2, 9) };
        assert!(ordered(Successor::Any, &[busy]).is_err(), "{role:?}");
    }
}

#[test]
fn an_unready_leader_searches_a_readier_one_after_a_lease() {
    let sick = || {
        let mut moves = leading(Readiness::Unhealthy);
        assert_eq!(next(&mut moves), Some((at(10.0), search())));
        moves
    };
    let aside = of(Readiness::Cordoned, 2, 9);
    assert_eq!(chosen(&mut sick(), 11.0, &[aside.clone(), other(3, 0)]), Ok(3));
    assert_eq!(chosen(&mut sick(), 11.0, std::slice::from_ref(&aside)), Ok(2));
    let mut moves = sick();
    assert!(chosen(&mut moves, 11.0, &[of(Readiness::Unhealthy, 4, 9)]).is_err());
    assert_eq!(next(&mut moves), Some((at(21.0), search())), "again after a lease");
    moves.on_roll_failed(at(22.0));
    assert_eq!(next(&mut moves), Some((at(42.0), search())));
    moves.set_readiness(at(42.5), Readiness::Ready);
    assert!(chosen(&mut moves, 43.0, &[other(3, 0)]).is_err(), "it has recovered");
    assert_eq!(moves.next_wake(), None);

    let mut moves = leading(Readiness::Cordoned);
    assert_eq!(next(&mut moves), Some((at(10.0), search())));
    assert!(chosen(&mut moves, 11.0, &[aside]).is_err());
    // Its check fails in the middle of a long term.
    let mut moves = leading(Readiness::Ready);
    assert_eq!(moves.next_wake(), None);
    moves.set_readiness(at(500.0), Readiness::Unhealthy);
    assert_eq!(next(&mut moves), Some((at(500.0), search())));
}

/// Each search calls the whole fleet.
#[test]
fn searches_that_find_nobody_are_ever_further_apart() {
    let mut moves = leading(Readiness::Unhealthy);
    let mut gap = LEASE;
    let (mut at, _) = next(&mut moves).expect("it searches");
    for _ in 0..12 {
        assert!(moves.on_roll(at, &[]).is_err());
        let (again, _) = next(&mut moves).expect("it searches again");
        assert_eq!(again, at + gap);
        (at, gap) = (again, (gap * 2).min(MAX_RETRY));
    }
    // What changes begins anew.
    moves.on_roll_failed(at);
    moves.set_readiness(at, Readiness::Cordoned);
    assert_eq!(next(&mut moves), Some((at, search())));
}

#[test]
fn a_leader_yields_to_a_higher_priority_after_a_lease() {
    let mut moves = leading(Readiness::Ready);
    assert_eq!(moves.prefer(at(20.0), 5), Err(Refusal::NotPreferred(5)));
    assert_eq!(moves.prefer(at(9.9), 6), Err(Refusal::TooSoon));
    assert_eq!(moves.prefer(at(10.0), 6), Ok(search()));
    let aside = of(Readiness::Cordoned, 4, 9);
    assert_eq!(chosen(&mut moves, 11.0, &[other(2, 6), other(3, 7), aside.clone()]), Ok(3));
    assert_eq!(moves.prefer(at(12.0), 6), Ok(search()));
    assert!(chosen(&mut moves, 13.0, &[other(2, 5), aside]).is_err(), "none is preferred");
}

/// So that no candidate need ask twice.
#[test]
fn a_leader_that_was_asked_too_soon_searches_by_itself() {
    let mut moves = leading(Readiness::Ready);
    assert_eq!(moves.next_wake(), None);
    assert_eq!(moves.prefer(at(2.0), 6), Err(Refusal::TooSoon));
    assert_eq!(next(&mut moves), Some((at(10.0), search())));
    moves.on_roll_failed(at(11.0));
    assert_eq!(next(&mut moves), Some((at(21.0), search())));
    assert_eq!(chosen(&mut moves, 22.0, &[other(2, 5), other(3, 6)]), Ok(3));
    assert_eq!(moves.next_wake(), None, "its work drains");

    let mut moves = leading(Readiness::Ready);
    moves.leads(at(1.0), at(0.0), until(60.0));
    assert_eq!(moves.prefer(at(20.0), 6), Err(Refusal::Paused));
    assert_eq!(next(&mut moves), Some((at(60.0), search())));
}

#[test]
fn a_pause_forbids_what_nobody_ordered() {
    let pauses = |moves: &mut Moves, now: f64, pause_ends: Option<Instant>| {
        moves.leads(at(now), at(0.0), pause_ends);
    };
    let mut moves = leading(Readiness::Unhealthy);
    pauses(&mut moves, 1.0, until(60.0));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::Paused));
    assert_eq!(moves.next_wake(), Some(at(60.0)), "it searches when the pause is over");
    assert!(moves.request(Successor::Any).is_ok());
    assert_eq!(chosen(&mut moves, 20.0, &[other(2, 0)]), Ok(2), "an order");

    let mut moves = leading(Readiness::Unhealthy);
    pauses(&mut moves, 1.0, until(60.0));
    pauses(&mut moves, 2.0, None);
    assert_eq!(next(&mut moves), Some((at(10.0), search())), "the pause was ended");
    pauses(&mut moves, 10.5, until(90.0));
    assert_eq!(chosen(&mut moves, 11.0, &[other(2, 0)]), Err(Refusal::Paused));
    assert_eq!(next(&mut moves), Some((at(90.0), search())));
}

#[test]
fn each_leader_of_lower_priority_is_asked_until_it_answers() {
    let mut moves = standby(1);
    let request = CandidateRequest::Prefer { by: ME, priority: 5 };
    let (asked, call) = next(&mut moves).expect("it asks");
    assert_eq!(call, request);
    assert!(asked >= at(30.0) && moves.next_wake().is_none(), "one question at a time");
    // Each silence doubles the time to the next question, up to ten minutes.
    let mut waited = LEASE;
    let mut asked = asked;
    for _ in 0..12 {
        moves.on_answer(asked, &[other(2, 9)]);
        let (again, _) = next(&mut moves).expect("it asks again");
        assert!(again >= asked + waited / 2 && again < asked + waited * 3 / 2, "{waited:?}");
        waited = (waited * 2).min(Duration::from_secs(600));
        asked = again;
    }
    moves.on_answer(asked, &[leader(4)]);
    assert_eq!(moves.next_wake(), None, "whatever it answers");
    moves.stands_by(asked, Some(&led(2, 4)), None);
    assert!(moves.next_wake().is_some_and(|at| at > asked + LEASE), "another leader");
}

/// One that cools down or drains states no priority; nor does one of an earlier version.
#[test]
fn only_a_leader_that_states_a_lower_priority_is_asked() {
    for (priority, asks) in [(None, false), (Some(4), true), (Some(5), false), (Some(9), false)] {
        let mut moves = candidate(Readiness::Ready);
        moves.stands_by(at(50.0), Some(&led(1, priority)), None);
        assert_eq!(moves.next_wake().is_some(), asks, "beside one of priority {priority:?}");
    }
    let mut moves = candidate(Readiness::Ready);
    moves.stands_by(at(50.0), Some(&led(1, None)), None);
    moves.stands_by(at(90.0), Some(&led(1, 4)), None);
    let due = moves.next_wake().expect("it asks");
    assert!(due >= at(100.0) && due <= at(110.0), "a lease from when it may: {due:?}");
    moves.stands_by(at(95.0), Some(&led(1, None)), None);
    assert_eq!(moves.next_wake(), None, "it drains");
}

#[test]
fn nobody_asks_in_a_pause() {
    let mut moves = standby(1);
    moves.stands_by(at(1.0), Some(&led(1, 4)), until(600.0));
    let due = moves.next_wake().expect("it asks when the pause is over");
    assert!(due >= at(600.0) && due <= at(600.0) + LEASE, "{due:?}");
    moves.stands_by(at(50.0), Some(&led(1, 4)), None);
    let due = moves.next_wake().expect("it asks sooner");
    assert!(due >= at(50.0) && due <= at(50.0) + LEASE, "{due:?}");
}

/// How many of a fleet ask before all see the leader move, `seen` after the first request.
fn asks_of(fleet: u64, seen: Duration) -> usize {
    let candidate = |nonce| {
        let own = Settings { nonce: Nonce(nonce), ..settings(Readiness::Ready) };
        let mut moves = Moves::new(&own, Some(Duration::from_secs(30)), false, at(0.0));
        moves.stands_by(at(100.0), Some(&led(1, 4)), None);
        moves.next_wake().expect("it asks")
    };
    let mut asks: Vec<Instant> = (0..fleet).map(candidate).collect();
    asks.sort_unstable();
    let settled = asks[0] + seen;
    asks.iter().take_while(|ask| **ask <= settled).count()
}

/// A request goes to the whole fleet, so 5,000 of them are 25 million deliveries.
#[test]
fn few_of_thousands_ask_a_new_leader() {
    for fleet in [1, 10, 100, 1_000, 10_000] {
        let asks = asks_of(fleet, Duration::from_millis(1_500));
        assert!(asks <= 12, "{asks} of {fleet} ask");
    }
}

#[test]
fn only_a_candidate_that_has_been_ready_long_enough_asks() {
    let mut moves = standby(1);
    moves.set_readiness(at(5.0), Readiness::Unhealthy);
    assert_eq!(moves.next_wake(), None);
    moves.set_readiness(at(50.0), Readiness::Ready);
    let due = moves.next_wake().expect("it asks");
    assert!(due >= at(80.0) && due <= at(80.0) + LEASE, "{due:?}");
    moves.stands_by(at(51.0), None, None);
    assert_eq!(moves.next_wake(), None, "nobody would understand it");
    let mut moves = Moves::new(&settings(Readiness::Ready), None, false, at(0.0));
    moves.stands_by(at(0.0), Some(&led(1, 4)), None);
    assert_eq!(moves.next_wake(), None);
}

#[test]
fn no_value_overflows() {
    for (lease_s, now_s) in [(0, 0), (1, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        let now = Instant::from_origin(Duration::from_secs(now_s));
        let own = Settings { nonce: Nonce(u64::MAX), priority: 1, ..settings(Readiness::Ready) };
        let mut moves = Moves::new(&own, Some(Duration::MAX), false, now);
        moves.lease = Duration::from_secs(lease_s);
        for pause_ends in [0, 1, u64::MAX].map(Duration::from_secs).map(Instant::from_origin) {
            let answer = other(u64::MAX, u8::MAX);
            for leads in [false, true] {
                match leads {
                    true => moves.leads(now, now, Some(pause_ends)),
                    false => moves.stands_by(now, Some(&led(u64::MAX, 0)), Some(pause_ends)),
                }
                moves.set_readiness(now, Readiness::Unhealthy);
                let _ = moves.prefer(now, u8::MAX);
                let _ = moves.on_roll(now, std::slice::from_ref(&answer));
                moves.set_readiness(now, Readiness::Ready);
                for _ in 0..70 {
                    let _ = moves.next_wake().map(|due| moves.advance(due.max(now)));
                    moves.on_roll_failed(now);
                    moves.on_answer(now, std::slice::from_ref(&answer));
                }
            }
        }
    }
}
