use super::*;
use crate::lock::{HandoverAnswer, Token};

const LEASE: Duration = Duration::from_secs(10);
const ME: Nonce = Nonce(1);
/// What the wall clock shows when a scenario begins.
const WALL_MS: u64 = 1_700_000_000_000;

fn at(secs: f64) -> Instant {
    Instant::from_origin(Duration::from_secs_f64(secs))
}

fn settings(priority: u8) -> MoveSettings {
    let prefer_after = Some(Duration::from_secs(30));
    MoveSettings {
        nonce: ME,
        priority,
        lease: LEASE,
        prefer_after,
        in_set: false,
        origin_unix_ms: WALL_MS,
    }
}

/// Of priority 5, which stands by beside the leader of this term from the begin.
fn standby(token: u64) -> Moves {
    let mut moves = Moves::new(settings(5), at(0.0), Standing::Ready);
    moves.set_role(at(0.0), MoveRole::StandsBy(Some(Token(token))));
    moves
}

/// The instant at which something is due, and what it is.
fn next(moves: &mut Moves) -> Option<(Instant, MoveCall)> {
    for _ in 0..10 {
        let due = moves.next_wake()?;
        if let Some(call) = moves.advance(due) {
            return Some((due, call));
        }
    }
    panic!("wakes without a delay: {moves:?}");
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
fn a_roll_call_in_the_place_of_a_question_leaves_no_answer_awaited() {
    let mut moves = standby(1);
    let (asked, _) = next(&mut moves).expect("it asks");
    let led = asked + Duration::from_secs(1);
    moves.set_role(led, MoveRole::Leads(led));
    assert_eq!(moves.request(Successor::Any), Ok(()));
    moves.set_role(led + LEASE, MoveRole::StandsBy(Some(Token(2))));
    assert_eq!(moves.on_roll(led + LEASE, &[other(2, 0)]), Err(Refusal::NotLeading));
    assert!(next(&mut moves).is_some_and(|(_, call)| matches!(call, MoveCall::Leader(_))));
}

#[test]
fn answers_that_come_after_the_term_still_state_a_pause() {
    let mut moves = Moves::new(settings(5), at(0.0), Standing::Sick);
    moves.set_role(at(0.0), MoveRole::Leads(at(0.0)));
    let (due, _) = next(&mut moves).expect("it searches");
    moves.set_role(due, MoveRole::StandsBy(None));
    let until_unix_ms = WALL_MS + 600_000;
    let pause = Some(Pause { set_unix_ms: WALL_MS, until_unix_ms });
    let answer = CandidateInfo { pause, ..other(2, 0) };
    assert_eq!(moves.on_roll(due, &[answer]), Err(Refusal::NotLeading));
    assert_eq!(moves.paused_until(due), Some(until_unix_ms));
}

/// One that answers, and cannot write, must not cost the election a lease each time.
#[test]
fn a_successor_that_did_not_lead_is_left_out_for_a_while() {
    let mut moves = Moves::new(settings(5), at(0.0), Standing::Sick);
    moves.set_role(at(0.0), MoveRole::Leads(at(0.0)));
    let answers = [other(2, 9), other(3, 0)];
    let (due, _) = next(&mut moves).expect("it searches");
    assert_eq!(moves.on_roll(due, &answers).map(|chosen| chosen.nonce), Ok(Nonce(2)));
    moves.set_role(due, MoveRole::StandsBy(None));
    let again = due + LEASE;
    moves.set_role(again, MoveRole::Leads(again));
    let (due, _) = next(&mut moves).expect("it searches");
    assert_eq!(moves.on_roll(due, &answers).map(|chosen| chosen.nonce), Ok(Nonce(3)));
    // An order still may.
    assert_eq!(moves.request(Successor::Identity("c2".into())), Ok(()));
    assert_eq!(moves.on_roll(due, &answers).map(|chosen| chosen.nonce), Ok(Nonce(2)));
    // Another one led meanwhile, perhaps this one, or a few leases have passed: it may again.
    moves.set_role(due, MoveRole::StandsBy(Some(Token(7))));
    let again = due + LEASE * 3;
    moves.set_role(again, MoveRole::Leads(again));
    let (due, _) = next(&mut moves).expect("it searches");
    assert_eq!(moves.on_roll(due, &answers).map(|chosen| chosen.nonce), Ok(Nonce(2)));
}

#[test]
fn one_that_overhears_another_asks_later() {
    for (priority, waits) in [(4, false), (5, true), (9, true)] {
        let mut moves = standby(1);
        let due = moves.next_wake().expect("it is to ask");
        moves.overheard(priority);
        let (asked, _) = next(&mut moves).expect("it asks");
        let expected = if waits { due + LEASE * 4 } else { due };
        assert_eq!(asked, expected, "beside one of priority {priority}");
    }
}

#[test]
fn one_that_sees_another_leader_asks_it_whatever_it_overheard_before() {
    let mut moves = standby(1);
    moves.overheard(9);
    moves.set_role(at(40.0), MoveRole::StandsBy(Some(Token(2))));
    assert!(next(&mut moves).is_some_and(|(asked, _)| asked <= at(40.0) + LEASE));
}

#[test]
fn the_answer_of_an_earlier_leader_settles_nothing() {
    let mut moves = standby(1);
    let (asked, _) = next(&mut moves).expect("it asks");
    moves.set_role(asked, MoveRole::StandsBy(Some(Token(2))));
    moves.on_answer(asked, &[leader(9)]);
    assert!(next(&mut moves).is_some());
}

#[test]
fn handovers_that_fail_do_not_keep_a_sick_leader_from_its_search() {
    let mut moves = Moves::new(settings(5), at(0.0), Standing::Sick);
    moves.set_role(at(0.0), MoveRole::Leads(at(0.0)));
    for secs in [3.0, 6.0, 9.0] {
        assert_eq!(moves.request("nobody".into()), Ok(()));
        assert!(moves.on_roll(at(secs), &[other(2, 0)]).is_err());
        assert_eq!(moves.request("nobody".into()), Ok(()));
        moves.on_roll_failed(at(secs));
    }
    assert_eq!(next(&mut moves), Some((at(10.0), MoveCall::Ready)));
}

/// Its work drains, and may do so for long.
#[test]
fn nothing_voluntary_takes_the_place_of_an_order() {
    let mut moves = Moves::new(settings(5), at(0.0), Standing::Ready);
    moves.set_role(at(0.0), MoveRole::Leads(at(0.0)));
    assert_eq!(moves.request("c2".into()), Ok(()));
    let answers = [other(2, 0), other(3, 9)];
    assert_eq!(moves.on_roll(at(20.0), &answers).map(|chosen| chosen.nonce), Ok(Nonce(2)));
    moves.set_standing(at(21.0), Standing::Sick);
    assert_eq!(moves.next_wake(), None);
    assert_eq!(moves.prefer(at(22.0), 9), Err(Refusal::Busy));
    assert_eq!(moves.request("c3".into()), Ok(()));
    assert_eq!(moves.on_roll(at(23.0), &answers).map(|chosen| chosen.nonce), Ok(Nonce(3)));
    // It leads again.
    moves.set_role(at(30.0), MoveRole::StandsBy(None));
    moves.set_role(at(40.0), MoveRole::Leads(at(40.0)));
    assert_eq!(next(&mut moves), Some((at(50.0), MoveCall::Ready)));
}

/// Else none that comes later would be known to be later.
#[test]
fn a_pause_from_the_far_future_gives_way_to_a_later_one() {
    let far = Pause { set_unix_ms: u64::MAX, until_unix_ms: u64::MAX };
    let mut moves = standby(1);
    moves.set_pause(at(1.0), far);
    let first = moves.pause().expect("it is known");
    moves.set_pause(at(2.0), Pause { set_unix_ms: WALL_MS, until_unix_ms: 0 });
    let second = moves.pause().expect("it is known");
    assert!(second > first && moves.paused_until(at(2.0)).is_none(), "{second:?}");
    let mut newcomer = Moves::new(settings(5), at(0.0), Standing::Ready);
    for pauses in [[first, second], [second, first]] {
        let answers = pauses.map(|pause| CandidateInfo { pause: Some(pause), ..other(2, 0) });
        newcomer.on_answer(at(3.0), &answers);
        assert_eq!(newcomer.paused_until(at(3.0)), None);
    }
}

/// Of priority 5, which leads from the begin and is this ready.
fn leading(standing: Standing) -> Moves {
    let mut moves = Moves::new(settings(5), at(0.0), standing);
    moves.set_role(at(0.0), MoveRole::Leads(at(0.0)));
    moves
}

fn of(standing: Standing, nonce: u64, priority: u8) -> CandidateInfo {
    CandidateInfo { standing, ..other(nonce, priority) }
}

/// The candidate that a leader chooses.
fn chosen(moves: &mut Moves, now: f64, answers: &[CandidateInfo]) -> Result<u64, Refusal> {
    moves.on_roll(at(now), answers).map(|chosen| chosen.nonce.0)
}

/// The candidate that a leader chooses upon an order.
fn ordered(to: impl Into<Successor>, answers: &[CandidateInfo]) -> Result<u64, Refusal> {
    let mut moves = leading(Standing::Ready);
    assert_eq!(moves.request(to.into()), Ok(()));
    chosen(&mut moves, 1.0, answers)
}

fn until(secs: u64) -> Pause {
    Pause { set_unix_ms: WALL_MS, until_unix_ms: WALL_MS + secs * 1000 }
}

#[test]
fn only_a_leader_hands_over_and_prepares_one_handover_at_a_time() {
    let mut moves = standby(1);
    assert_eq!(moves.request(Successor::Any), Err(Refusal::NotLeading));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::NotLeading));
    assert_eq!(chosen(&mut moves, 20.0, &[other(2, 9)]), Err(Refusal::NotLeading));

    let mut moves = leading(Standing::Ready);
    assert_eq!(moves.request(Successor::Any), Ok(()));
    assert_eq!(moves.request(Successor::Any), Err(Refusal::Busy));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::Busy));
    moves.on_roll_failed(at(20.0));
    assert_eq!(moves.request(Successor::Any), Ok(()));
    // Another term than the one that was to be handed over.
    moves.set_role(at(21.0), MoveRole::StandsBy(None));
    moves.set_role(at(22.0), MoveRole::Leads(at(22.0)));
    assert_eq!(chosen(&mut moves, 23.0, &[other(2, 9)]), Err(Refusal::NotLeading));
    assert_eq!(moves.request(Successor::Any), Ok(()));
}

#[test]
fn a_leader_that_finds_nobody_ready_states_what_it_found() {
    let me = CandidateInfo { nonce: ME, ..other(1, 9) };
    let answers = [of(Standing::Sick, 2, 0), of(Standing::Aside, 3, 0), leader(9), me];
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
fn the_readiest_leads_next_and_among_them_the_one_with_the_highest_priority() {
    let answers = [
        of(Standing::Aside, 2, 9),
        other(3, 1),
        other(4, 2),
        other(5, 2),
        of(Standing::Sick, 6, 9),
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
fn a_leader_that_is_not_ready_searches_a_readier_one_once_its_term_has_lasted_a_lease() {
    let sick = || {
        let mut moves = leading(Standing::Sick);
        assert_eq!(next(&mut moves), Some((at(10.0), MoveCall::Ready)));
        moves
    };
    let aside = of(Standing::Aside, 2, 9);
    assert_eq!(chosen(&mut sick(), 11.0, &[aside.clone(), other(3, 0)]), Ok(3));
    assert_eq!(chosen(&mut sick(), 11.0, std::slice::from_ref(&aside)), Ok(2));
    let mut moves = sick();
    assert!(chosen(&mut moves, 11.0, &[of(Standing::Sick, 4, 9)]).is_err());
    assert_eq!(next(&mut moves), Some((at(21.0), MoveCall::Ready)), "again after a lease");
    moves.on_roll_failed(at(22.0));
    assert_eq!(next(&mut moves), Some((at(32.0), MoveCall::Ready)));
    moves.set_standing(at(32.5), Standing::Ready);
    assert!(chosen(&mut moves, 33.0, &[other(3, 0)]).is_err(), "it has recovered");
    assert_eq!(moves.next_wake(), None);

    let mut moves = leading(Standing::Aside);
    assert_eq!(next(&mut moves), Some((at(10.0), MoveCall::Ready)));
    assert!(chosen(&mut moves, 11.0, &[aside]).is_err());
    // Its check fails in the middle of a long term.
    let mut moves = leading(Standing::Ready);
    assert_eq!(moves.next_wake(), None);
    moves.set_standing(at(500.0), Standing::Sick);
    assert_eq!(next(&mut moves), Some((at(500.0), MoveCall::Ready)));
}

#[test]
fn a_leader_gives_way_to_a_higher_priority_once_its_term_has_lasted_a_lease() {
    let mut moves = leading(Standing::Ready);
    assert_eq!(moves.prefer(at(20.0), 5), Err(Refusal::NotPreferred(5)));
    assert_eq!(moves.prefer(at(9.9), 6), Err(Refusal::TooSoon));
    assert_eq!(moves.prefer(at(10.0), 6), Ok(()));
    let aside = of(Standing::Aside, 4, 9);
    assert_eq!(chosen(&mut moves, 11.0, &[other(2, 6), other(3, 7), aside.clone()]), Ok(3));
    assert_eq!(moves.prefer(at(12.0), 6), Ok(()));
    assert!(chosen(&mut moves, 13.0, &[other(2, 5), aside]).is_err(), "none is preferred");
}

#[test]
fn a_pause_forbids_what_nobody_ordered() {
    let mut moves = leading(Standing::Sick);
    moves.set_pause(at(1.0), until(60));
    assert_eq!(moves.paused_until(at(59.0)), Some(WALL_MS + 60_000));
    assert_eq!(moves.prefer(at(20.0), 9), Err(Refusal::Paused));
    assert_eq!(moves.next_wake(), Some(at(60.0)), "it searches when the pause is over");
    assert_eq!(moves.request(Successor::Any), Ok(()));
    assert_eq!(chosen(&mut moves, 20.0, &[other(2, 0)]), Ok(2), "an order");

    let mut moves = leading(Standing::Sick);
    moves.set_pause(at(1.0), until(60));
    moves.set_pause(at(2.0), Pause { set_unix_ms: 0, until_unix_ms: 0 });
    assert_eq!(moves.paused_until(at(3.0)), None);
    assert_eq!(next(&mut moves), Some((at(10.0), MoveCall::Ready)), "the pause was ended");
    let answer = CandidateInfo { pause: Some(until(60)), ..other(2, 0) };
    let later = Pause { set_unix_ms: WALL_MS + 10_000, ..until(90) };
    assert_eq!(chosen(&mut moves, 11.0, &[answer]), Ok(2), "an earlier pause has no effect");
    moves.set_role(at(12.0), MoveRole::StandsBy(None));
    moves.set_role(at(13.0), MoveRole::Leads(at(13.0)));
    assert_eq!(next(&mut moves), Some((at(23.0), MoveCall::Ready)));
    let answer = CandidateInfo { pause: Some(later), ..other(2, 0) };
    assert_eq!(chosen(&mut moves, 24.0, &[answer]), Err(Refusal::Paused), "a later one has");
    assert_eq!(moves.pause(), Some(later));
    assert_eq!(next(&mut moves), Some((at(90.0), MoveCall::Ready)));
}

#[test]
fn a_pause_lasts_for_a_day_at_the_most() {
    let day = WALL_MS + 24 * 3600 * 1000;
    let mut moves = standby(1);
    moves.set_pause(at(0.0), until(u64::from(u32::MAX)));
    assert_eq!(moves.paused_until(at(0.0)), Some(day));
    let far = Pause { set_unix_ms: u64::MAX, until_unix_ms: u64::MAX };
    let mut moves = standby(1);
    moves.on_answer(at(0.0), &[CandidateInfo { pause: Some(far), ..other(2, 0) }]);
    assert_eq!(moves.paused_until(at(0.0)), Some(day));
}

#[test]
fn a_candidate_asks_each_leader_of_a_lower_priority_until_it_answers_once() {
    let mut moves = standby(1);
    let request = CandidateRequest::Prefer { by: ME, priority: 5 };
    let (asked, call) = next(&mut moves).expect("it asks");
    assert_eq!(call, MoveCall::Leader(request));
    assert!(asked >= at(30.0) && moves.next_wake().is_none(), "one question at a time");
    // Each silence doubles the time to the next question, up to ten minutes.
    let mut waited = LEASE;
    let mut asked = asked;
    for _ in 0..12 {
        moves.on_answer(asked, &[other(2, 9)]);
        waited = (waited * 2).min(Duration::from_secs(600));
        let (again, _) = next(&mut moves).expect("it asks again");
        assert_eq!(again, asked + waited);
        asked = again;
    }
    moves.on_answer(asked, &[leader(4)]);
    assert_eq!(next(&mut moves).map(|(again, _)| again), Some(asked + LEASE), "refused for now");
    moves.on_answer(asked, &[leader(5)]);
    assert_eq!(moves.next_wake(), None, "settled");
    moves.set_role(asked, MoveRole::StandsBy(Some(Token(2))));
    assert!(moves.next_wake().is_some_and(|at| at <= asked + LEASE), "another leader");
}

#[test]
fn only_a_candidate_that_has_been_ready_for_so_long_asks() {
    let mut moves = standby(1);
    moves.set_standing(at(5.0), Standing::Sick);
    assert_eq!(moves.next_wake(), None);
    moves.set_standing(at(50.0), Standing::Ready);
    assert_eq!(moves.next_wake(), Some(at(80.0)));
    moves.set_role(at(51.0), MoveRole::StandsBy(None));
    assert_eq!(moves.next_wake(), None, "nobody would understand it");
    let never = MoveSettings { prefer_after: None, ..settings(5) };
    let mut moves = Moves::new(never, at(0.0), Standing::Ready);
    moves.set_role(at(0.0), MoveRole::StandsBy(Some(Token(1))));
    assert_eq!(moves.next_wake(), None);
}

#[path = "moves_bounds_tests.rs"]
mod bounds;
