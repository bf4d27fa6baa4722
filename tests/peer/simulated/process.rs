//! A simulated process: a voter and a campaign, on a clock that drifts.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{Capabilities, LockErrorKind, Nonce, Revision};
use incumbent::peer::quorum::{Outcome, QuorumError, Voter, VoterSettings};
use incumbent::protocol::{
    CoolDown, Elector, LockFailure, MIN_LEASE, Response, Settings, Timing, TimingOptions,
};

use incumbent_sim::{Drifting, Time};

use super::LEASE;

pub struct Process {
    pub voter: Voter,
    pub campaign: Elector,
    pub id: String,
    /// Whose name it bears, by number.
    pub seat: usize,
    /// Counts its starts: what belongs to an earlier one is void.
    pub life: u64,
    pub clock: Drifting,
    /// The requests of its campaign under way, by their tickets.
    pub tickets: BTreeMap<u64, (u64, Kind)>,
    pub next_ticket: u64,
    pub deadline: Option<Instant>,
    pub paused_until: Time,
    pub up: bool,
    /// Whether another process has begun in its place.
    pub replaced: bool,
    /// When it is woken up next.
    pub wakes: Time,
}

#[derive(Clone, Copy)]
pub enum Kind {
    Read,
    Written,
    Released,
}

impl Process {
    /// One that has not begun. `size`: of its quorum.
    pub fn new(random: &mut fastrand::Rng, size: u32, seat: usize, life: u64, named: bool) -> Self {
        // A replaced member comes back under another name, or its own.
        let own = random.bool() || named;
        let id = if own { format!("m{seat}") } else { format!("m{seat}-{life}") };
        let incarnation = random.u64(..);
        let origin = Duration::from_secs(random.u64(100..10_000));
        // Wall clocks differ by less than a lease.
        let skew = Duration::from_millis(random.u64(0..400));
        let unix = Duration::from_secs(1_800_000_000) + skew - origin;
        let voter = Voter::new(VoterSettings {
            id: id.as_str().into(),
            size,
            voters: named.then(|| (0..size).map(|seat| format!("m{seat}")).collect()),
            votes: true,
            lease: LEASE,
            incarnation,
            origin_unix_us: u64::try_from(unix.as_micros()).expect("fits"),
        });
        let options = TimingOptions { lease: Some(LEASE), ..TimingOptions::default() };
        let timing = Timing::new(options, LEASE).expect("valid");
        let capabilities = Capabilities {
            min_lease: MIN_LEASE,
            max_lease: LEASE,
            can_read: true,
            empty_is_proof: true,
            expires_entries: false,
            reads_are_durable: true,
            max_identity_len: 256,
        };
        let nonce = Nonce(random.u64(..));
        let mut settings = Settings::new(id.as_str(), nonce, timing);
        settings.cool_down =
            [CoolDown::Proven, CoolDown::Proven, CoolDown::Strict, CoolDown::For(LEASE * 3 / 2)]
                [random.usize(..4)];
        let campaign = Elector::new(settings, capabilities);
        Self {
            voter,
            campaign,
            id,
            seat,
            life,
            clock: Drifting { origin, ppm: random.i64(-900..=900), lost: Duration::ZERO },
            tickets: BTreeMap::new(),
            next_ticket: 0,
            deadline: None,
            paused_until: Duration::ZERO,
            up: true,
            replaced: false,
            wakes: Duration::MAX,
        }
    }

    pub fn leads(&self, now: Time) -> bool {
        self.up && self.deadline.is_some_and(|deadline| self.clock.local(now) < deadline)
    }
}

/// A voter's answer, as a candidate takes it.
pub fn answer_of(kind: Kind, answer: Result<Outcome, QuorumError>) -> Response {
    let failure = |refusal: QuorumError| LockFailure::new(refusal.kind, refusal.message);
    let odd = || LockFailure::new(LockErrorKind::OutcomeUnknown, "another answer");
    match kind {
        Kind::Read => Response::Read(match answer {
            Ok(Outcome::Read(reading)) => Ok(reading),
            Ok(_) => Err(odd()),
            Err(refusal) => Err(failure(refusal)),
        }),
        Kind::Written => Response::Written(match answer {
            Ok(Outcome::Written(revision)) => Ok::<Revision, _>(revision),
            Ok(_) => Err(odd()),
            Err(refusal) => Err(failure(refusal)),
        }),
        Kind::Released => Response::Released(answer.map(|_| ()).map_err(failure)),
    }
}
