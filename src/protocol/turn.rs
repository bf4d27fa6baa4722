//! When a standby acquires a vacant entry: at once, in its turn, or after others.

use std::time::Duration;

use super::types::{Rank, Settings};
use crate::lock::{Nonce, Standing};

/// How long others hold back after a handover, at the least and at the most: a quarter of a lease,
/// within these bounds. The successor needs one round trip, and may have gone meanwhile.
const MIN_HOLD: Duration = Duration::from_millis(250);
const MAX_HOLD: Duration = Duration::from_secs(2);

/// How long the others hold back after a handover.
pub(super) fn hold(lease: Duration) -> Duration {
    (lease / 4).clamp(MIN_HOLD, MAX_HOLD)
}

/// The turn of a standby. It decides in which order candidates send their creates, and nothing
/// else: whichever create is stored first wins, and waits as long as any other winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The last holder handed over to this candidate.
    First,
    /// Among all that are woken.
    Any,
    /// This long after the entry was seen to be vacant, if it is still vacant then.
    After(Duration),
    /// Not at all.
    Never,
}

impl Turn {
    /// `successor`: the candidate that the last holder handed over to.
    pub fn new(successor: Option<Nonce>, settings: &Settings, standing: Standing) -> Self {
        let lease = settings.timing.lease();
        if !settings.may_acquire() {
            return Self::Never;
        }
        let hold = hold(lease);
        match (successor, standing) {
            // One that has become sick since must not be in the way of the others.
            (Some(to), Standing::Ready | Standing::Aside) if to == settings.nonce => Self::First,
            (_, Standing::Sick) => Self::After(lease),
            (_, Standing::Aside) => Self::After(lease / 2),
            (Some(_), Standing::Ready) => Self::After(hold),
            (None, Standing::Ready) if settings.rank == Rank::Second => Self::After(hold),
            (None, Standing::Ready) => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Timing, TimingOptions};

    #[test]
    fn a_rank_decides_when_a_vacant_shard_is_acquired() {
        const LEASE: Duration = Duration::from_secs(3);
        let timing = Timing::new(TimingOptions::default(), LEASE).unwrap();
        let turn = |rank, successor| {
            let settings = Settings { rank, ..Settings::new("m1", Nonce(1), timing) };
            Turn::new(successor, &settings, Standing::Ready)
        };
        assert_eq!(turn(Rank::First, None), Turn::Any);
        assert_eq!(turn(Rank::Next, None), Turn::Any);
        assert_eq!(turn(Rank::Second, None), Turn::After(LEASE / 4));
        assert_eq!(turn(Rank::Second, Some(Nonce(1))), Turn::First);
        assert_eq!(turn(Rank::Never, None), Turn::Never);
        assert_eq!(turn(Rank::Never, Some(Nonce(1))), Turn::Never);
    }
}
