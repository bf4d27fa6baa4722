use super::*;
use crate::lock::HandoverAnswer;

const LEASE: Duration = Duration::from_secs(10);
const ME: Nonce = Nonce(1);
/// What the wall clock shows when a scenario begins.
const WALL_MS: u64 = 1_700_000_000_000;

fn at(secs: f64) -> Instant {
    Instant::from_origin(Duration::from_secs_f64(secs))
}

fn settings(priority: u8) -> MoveSettings {
    let prefer_after = Some(Duration::from_secs(30));
    MoveSettings { nonce: ME, priority, lease: LEASE, prefer_after, origin_unix_ms: WALL_MS }
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
        let told = pauses.map(|pause| CandidateInfo { pause: Some(pause), ..other(2, 0) });
        newcomer.on_answer(at(3.0), &told);
        assert_eq!(newcomer.paused_until(at(3.0)), None);
    }
}
