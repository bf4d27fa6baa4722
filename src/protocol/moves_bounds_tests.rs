//! Orders and bounds of moves.

use super::*;

#[test]
fn those_of_a_higher_priority_ask_sooner() {
    let wake = |priority, nonce| {
        let own = MoveSettings { nonce: Nonce(nonce), ..settings(priority) };
        let mut moves = Moves::new(own, at(0.0), Standing::Ready);
        moves.set_role(at(100.0), MoveRole::StandsBy(Some(Token(1))));
        moves.next_wake().expect("it asks")
    };
    assert!(wake(9, u64::MAX) < wake(8, 0) && wake(8, 0) < wake(8, 255));
    assert!(wake(u8::MAX, 0) >= at(100.0) && wake(0, u64::MAX) <= at(100.0) + LEASE);
}

#[test]
fn no_value_overflows() {
    let ends = [0, 1, WALL_MS, u64::MAX];
    for (unix_ms, lease_s, now_s) in ends.into_iter().flat_map(|unix_ms| {
        let times = [(0, 0), (1, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)];
        times.map(|(lease_s, now_s)| (unix_ms, lease_s, now_s))
    }) {
        let own = MoveSettings {
            in_set: false,
            nonce: Nonce(u64::MAX),
            priority: 0,
            lease: Duration::from_secs(lease_s),
            prefer_after: Some(Duration::MAX),
            origin_unix_ms: unix_ms,
        };
        let now = Instant::from_origin(Duration::from_secs(now_s));
        let mut moves = Moves::new(own, now, Standing::Ready);
        for until_unix_ms in ends {
            let pause = Pause { set_unix_ms: until_unix_ms, until_unix_ms };
            let answer = CandidateInfo { pause: Some(pause), ..other(u64::MAX, u8::MAX) };
            for role in [MoveRole::StandsBy(Some(Token(u64::MAX))), MoveRole::Leads(now)] {
                moves.set_role(now, role);
                moves.set_pause(now, pause);
                moves.overheard(u8::MAX);
                moves.set_standing(now, Standing::Sick);
                let _ = moves.prefer(now, u8::MAX);
                let _ = moves.on_roll(now, std::slice::from_ref(&answer));
                moves.set_standing(now, Standing::Ready);
                for _ in 0..70 {
                    let _ = moves.next_wake().map(|due| moves.advance(due.max(now)));
                    moves.on_roll_failed(now);
                    moves.on_answer(now, std::slice::from_ref(&answer));
                }
                let _ = (moves.paused_until(now), moves.pause());
            }
        }
    }
}
