//! Bounds of moves.

use super::*;

#[test]
fn no_value_overflows() {
    for (lease_s, now_s) in [(0, 0), (1, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        let own = MoveSettings {
            in_set: false,
            nonce: Nonce(u64::MAX),
            priority: 1,
            lease: Duration::from_secs(lease_s),
            prefer_after: Some(Duration::MAX),
        };
        let now = Instant::from_origin(Duration::from_secs(now_s));
        let mut moves = Moves::new(own, now, Standing::Ready);
        for pause_ends in [0, 1, u64::MAX].map(Duration::from_secs).map(Instant::from_origin) {
            let answer = other(u64::MAX, u8::MAX);
            for role in [beside(u64::MAX, 0), MoveRole::Leads(now)] {
                moves.set_role(now, role, Some(pause_ends));
                moves.set_standing(now, Standing::Sick);
                let _ = moves.prefer(now, u8::MAX);
                let _ = moves.on_roll(now, std::slice::from_ref(&answer));
                moves.set_standing(now, Standing::Ready);
                for _ in 0..70 {
                    let _ = moves.next_wake().map(|due| moves.advance(due.max(now)));
                    moves.on_roll_failed(now);
                    moves.on_answer(now, std::slice::from_ref(&answer));
                }
            }
        }
    }
}
