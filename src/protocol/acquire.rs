//! When a standby acquires a vacant entry: each reason to wait is a part of one delay.
//!
//! Candidates that wake together spread out, so that few of thousands send a create. After
//! Nonnenmacher and Biersack, "Scalable feedback for large groups", IEEE/ACM Transactions on
//! Networking 7(3), 1999: each draws its delay from a truncated exponential, so most wait almost
//! the whole window while a few go early, and a candidate that receives a create before its delay
//! is over stays silent. The expected number of creates is small and hardly depends on how many
//! there are.

use std::time::Duration;

use super::context::Context;
use super::sampling::MAX_WINDOW;
use super::types::Rank;
use crate::lock::{Coverage, Readiness};
use crate::time::clock::Instant;

/// How long, at most, a candidate that knows nothing of the last holder lets the others go first.
const GIVE_WAY: Duration = Duration::from_millis(300);

/// How long others hold back after a handover at most.
const MAX_HOLD: Duration = Duration::from_secs(2);

/// How long the others hold back after a handover: a quarter of a lease, within a bound. The
/// successor needs one round trip, and may have gone meanwhile.
pub(super) fn hold(lease: Duration) -> Duration {
    (lease / 4).min(MAX_HOLD)
}

/// When a standby acquires a vacant entry, part by part. It decides in which order candidates send
/// their creates, and nothing else: whichever create is stored first wins, and waits as long as any
/// other winner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AcquireDelay {
    /// Others are woken at the same moment.
    spread: Duration,
    /// Nothing is known of the last holder: others may know more.
    give_way: Duration,
    /// The last holder vanished, and may come back this long after the entry was seen to be vacant.
    takeover: Duration,
    /// Others go first for this long: after a handover to one of them, by the rank, or as they are
    /// readier.
    others_first: Duration,
    /// The last holder handed over to this candidate: it waits for nobody.
    is_successor: bool,
}

impl AcquireDelay {
    /// When it is over. `vacant_since`: when the entry was first seen to be vacant;
    /// `deferring_since`: since when others go first; `not_before`: a holder that has stepped down
    /// lets the others go first until then.
    pub fn ends(
        &self,
        now: Instant,
        vacant_since: Instant,
        deferring_since: &mut Option<Instant>,
        not_before: Instant,
    ) -> Instant {
        let delay = self.spread + self.give_way;
        let mut at = now + delay;
        if !self.takeover.is_zero() {
            at = at.max(vacant_since + self.takeover + delay);
        }
        if self.is_successor {
            return at;
        }
        if !self.others_first.is_zero() {
            let since = *deferring_since.get_or_insert(vacant_since);
            at = at.max(since + self.others_first + delay);
        }
        at.max(not_before)
    }
}

impl Context {
    /// The delay of a create over the vacancy, which is known; `None`: it acquires nothing.
    /// `woken`: others learned of the vacancy at the same moment.
    pub fn acquire_delay(&mut self, woken: bool) -> Option<AcquireDelay> {
        let vacancy = self.observed.vacancy()?;
        let (settings, readiness) = (&self.settings, self.standby_readiness());
        if !settings.may_acquire() {
            return None;
        }
        let lease = settings.timing.lease();
        let to = vacancy.successor();
        // One that has become sick since must not be in the way of the others.
        let is_successor = to == Some(settings.nonce) && readiness != Readiness::Unhealthy;
        let others_first = match readiness {
            _ if is_successor => Duration::ZERO,
            Readiness::Unhealthy => lease,
            Readiness::Cordoned => lease / 2,
            Readiness::Ready if to.is_some() || settings.rank == Rank::Second => {
                hold(self.common_lease())
            }
            Readiness::Ready => Duration::ZERO,
        };
        let uniform = self.random.f64();
        let mut spread = Duration::ZERO;
        if woken && !is_successor {
            let few = self.coverage == Coverage::Sampled;
            let draw = if few { delay_of_few } else { delay };
            // All find it at one instant, and locks without expiry do not state how old a hint is.
            let stale = vacancy.is_expired() && !self.capabilities.expires_entries;
            let part = if stale { lease / 32 } else { Duration::ZERO };
            let window = self.latency.window().max(part.min(self.scaled(MAX_WINDOW)));
            spread = draw(window, settings.priority, uniform);
        }
        let mut give_way = Duration::ZERO;
        if vacancy.is_unknown(self.observed.last_seen()) {
            let most = (self.capabilities.max_lease / 4).min(self.scaled(GIVE_WAY));
            give_way = most.mul_f64(0.5 + uniform / 2.0);
        }
        let last_seen = self.observed.last_seen();
        let was_other = last_seen.is_some_and(|seen| seen.entry.identity != settings.identity);
        let may_come_back = vacancy.is_vanished() && was_other;
        let takeover = if may_come_back { settings.takeover_delay } else { Duration::ZERO };
        Some(AcquireDelay { spread, give_way, takeover, others_first, is_successor })
    }
}

/// λ of the truncated exponential: with 10 and a window of 20 ms, 10,000 standbys that see each
/// other's creates within 1 ms send two creates.
const LAMBDA: f64 = 10.0;

/// A candidate that is woken among few has to subscribe to the others' creates first.
const MIN_WINDOW_OF_FEW: Duration = Duration::from_millis(24);

/// The part of a window in front of it that is kept for candidates with a priority.
const PRIORITY_PART: u32 = 4;

/// (T/λ)·ln(u·(e^λ − 1) + 1) for a window T and a uniform u in [0, 1).
pub(super) fn truncated_exponential(window: Duration, uniform: f64) -> Duration {
    window.mul_f64(((uniform * LAMBDA.exp_m1()).ln_1p() / LAMBDA).clamp(0.0, 1.0))
}

/// How long a candidate of this priority waits after a vacancy that woke others too.
///
/// Priority 0 draws from the window. Higher ones draw from slots in front of it, the higher the
/// earlier.
fn delay(window: Duration, priority: u8, uniform: f64) -> Duration {
    delay_in(window, priority, |span| truncated_exponential(span, uniform))
}

/// How long it waits where few of a fleet are woken: their delays are uniform, which spreads a few
/// best.
fn delay_of_few(window: Duration, priority: u8, uniform: f64) -> Duration {
    delay_in(window.max(MIN_WINDOW_OF_FEW), priority, |span| span.mul_f64(uniform))
}

fn delay_in(window: Duration, priority: u8, draw: impl Fn(Duration) -> Duration) -> Duration {
    let front = window / PRIORITY_PART;
    if priority == 0 {
        return front + draw(window);
    }
    let (begin, end) = (front / (u32::from(priority) + 1), front / u32::from(priority));
    begin + draw(end - begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{
        Capabilities, Content, Entry, Mark, Nonce, Record, Revision, Tombstone, WriteId,
    };
    use crate::protocol::context::Source;
    use crate::protocol::{MAX_LEASE, MIN_LEASE, Settings, Timing, TimingOptions};

    #[test]
    fn a_rank_decides_when_a_vacant_shard_is_acquired() {
        const LEASE: Duration = Duration::from_secs(3);
        let timing = Timing::new(TimingOptions::default(), LEASE).unwrap();
        let others_first = |rank, to| {
            let settings = Settings { rank, ..Settings::new("m1", Nonce(1), timing) };
            let lock = Capabilities {
                min_lease: MIN_LEASE,
                max_lease: LEASE,
                can_read: true,
                empty_is_proof: true,
                expires_entries: true,
                reads_are_durable: true,
                max_identity_len: 100,
            };
            let (by, left) = (Nonce(9), Duration::ZERO);
            let released = Tombstone::Released { by, left, cause: None, to, pause: None };
            let mut cx = Context::new(settings, lock);
            cx.record_vacancy(Instant::ORIGIN, Some((Revision(2), released)), None, false);
            cx.acquire_delay(false).map(|delay| (delay.others_first, delay.is_successor))
        };
        let at_once = Some((Duration::ZERO, false));
        assert_eq!(others_first(Rank::First, None), at_once);
        assert_eq!(others_first(Rank::Next, None), at_once);
        assert_eq!(others_first(Rank::Second, None), Some((LEASE / 4, false)));
        assert_eq!(others_first(Rank::Second, Some(Nonce(1))), Some((Duration::ZERO, true)));
        assert_eq!(others_first(Rank::Never, None), None);
        assert_eq!(others_first(Rank::Never, Some(Nonce(1))), None);
    }

    /// The successor's lease may be the longer one.
    #[test]
    fn a_short_lease_defers_for_as_long_as_the_one_last_seen_needs() {
        let timing = |ms| {
            let lease = Some(Duration::from_millis(ms));
            Timing::new(TimingOptions { lease, ..TimingOptions::default() }, MAX_LEASE).unwrap()
        };
        for (own, seen, held_back) in [(250, 250, 62), (250, 800, 200), (250, 9_000, 250)] {
            let mut cx = Context::new(
                Settings::new("m1", Nonce(1), timing(own)),
                Capabilities::of_records(MAX_LEASE),
            );
            let lease = Duration::from_millis(seen);
            let write = WriteId { nonce: Nonce(2), number: 1 };
            let mark = Some(Mark::new(write, lease, None));
            let entry = Entry { identity: "m2".into(), mark, ttl: lease, advertisement: None };
            let record = Record { revision: Revision(1), content: Content::Held(entry) };
            let source = Source { from_hint: true, on_standby: true };
            cx.record(Instant::ORIGIN, record, None, source);
            let (by, left, to) = (Nonce(2), Duration::ZERO, Some(Nonce(3)));
            let released = Tombstone::Released { by, left, cause: None, to, pause: None };
            cx.record_vacancy(Instant::ORIGIN, Some((Revision(2), released)), None, false);
            let others_first = cx.acquire_delay(false).unwrap().others_first;
            assert_eq!(others_first.as_millis(), held_back, "{own} ms beside {seen} ms");
        }
    }

    const WINDOW: Duration = Duration::from_millis(20);

    #[test]
    fn few_of_thousands_acquire_and_one_alone_within_its_window() {
        let mut random = fastrand::Rng::with_seed(7);
        for fleet in [1, 10, 100, 1_000, 10_000] {
            let mut creates = 0;
            for _ in 0..50 {
                let mut delays: Vec<_> =
                    (0..fleet).map(|_| delay(WINDOW, 0, random.f64())).collect();
                delays.sort_unstable();
                assert!(delays[fleet - 1] <= WINDOW + WINDOW / PRIORITY_PART);
                let seen = delays[0] + Duration::from_millis(1);
                creates += delays.iter().take_while(|d| **d < seen).count();
            }
            assert!(creates <= 50 * 4, "{creates} creates in 50 vacancies of {fleet} standbys");
        }
    }

    #[test]
    fn the_higher_priority_acquires_first() {
        let mut random = fastrand::Rng::with_seed(3);
        for low in 0..20u8 {
            let slowest_high = delay(WINDOW, low + 1, 0.999_999);
            let fastest_low = delay(WINDOW, low, random.f64() * 1e-9);
            assert!(slowest_high <= fastest_low, "priority {low}");
        }
    }
}
