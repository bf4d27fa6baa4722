//! What is explored.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Capabilities, Nonce};
use incumbent::protocol::{Elector, Settings, Timing, TimingOptions};
use incumbent_sim::Retention;

use crate::lock::Entrance;

/// What may go wrong. Each costs one of the faults that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A request or its answer is lost.
    Loss,
    /// A request or its answer is under way for up to [`Config::delay`] ticks.
    Delay,
    /// A request arrives twice, the second time up to [`Config::delay`] ticks later.
    Duplicate,
    /// A process dies. It may come back at any later time, without its memory.
    Crash,
    /// A process takes no step, for any time.
    Pause,
    /// An administrator deletes the entry.
    Delete,
    /// The entry is gone without a trace, as where the bucket was made anew: only where the lock
    /// does not vouch for emptiness.
    Vanish,
    /// A candidate resigns.
    Resign,
    /// A candidate stops. It may come back at any later time.
    Stop,
    /// The work of a leader does not stop when it must.
    Stuck,
    /// The lock refuses a write as if another had come before it.
    Refusal,
    /// A candidate hands over to another one, whether that lives or not.
    HandOver,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Loss,
        Self::Delay,
        Self::Duplicate,
        Self::Crash,
        Self::Pause,
        Self::Delete,
        Self::Vanish,
        Self::Resign,
        Self::Stop,
        Self::Stuck,
        Self::Refusal,
        Self::HandOver,
    ];

    /// Whether it strikes where nothing else is said. A handover ends a term as a resignation does,
    /// and has elections of its own.
    fn is_common(self) -> bool {
        self != Self::HandOver
    }
}

/// An election to explore.
#[derive(Debug, Clone)]
pub struct Config {
    /// For people.
    pub name: &'static str,
    /// Each candidate's lease.
    pub leases: Vec<Duration>,
    /// The lock's longest lease.
    pub ttl: Duration,
    /// The time between two instants at which anything happens.
    pub tick: Duration,
    /// What the lock does with an entry that is not renewed. It vouches for emptiness if it leaves
    /// markers.
    pub retention: Retention,
    /// Whether the lock was made before the time in which a lease could have been held.
    pub old: bool,
    /// Whether candidates get hints of writes. Any hint may be lost, at no cost.
    pub hints: bool,
    /// How many faults a run may have.
    pub faults: u8,
    /// Of which kinds.
    pub kinds: Vec<Fault>,
    /// Each kind at most once in a run.
    pub once: bool,
    /// For how many ticks a delayed message may be under way.
    pub delay: u8,
    /// How many ticks late a process may wake, at no cost.
    pub late: u8,
    /// No further than this many ticks.
    pub horizon: Option<u32>,
    /// How often work saves the checkpoint in a run; 0: the election keeps none.
    pub saves: u16,
    /// How many sentinels see a death, each of which releases what the process held.
    pub sentinels: u8,
    /// The permutations of identical candidates.
    pub(crate) orders: Vec<Vec<usize>>,
}

impl Config {
    /// `candidates` with equal leases of a second, which is `ticks` ticks.
    pub fn equal(name: &'static str, candidates: usize, ticks: u32, faults: u8) -> Self {
        let second = Duration::from_secs(1);
        Self {
            name,
            leases: vec![second; candidates],
            ttl: second,
            tick: tick(second, ticks),
            retention: Retention::LeavesMarkers,
            old: true,
            hints: false,
            faults,
            kinds: Fault::ALL.into_iter().filter(|kind| kind.is_common()).collect(),
            once: false,
            delay: 2,
            late: 0,
            horizon: None,
            saves: 0,
            sentinels: 0,
            orders: orders(&vec![second; candidates]),
        }
    }

    /// Leases of one second and of one and a half, on a lock that allows the longer; `ticks` is for
    /// half a second.
    pub fn mixed(name: &'static str, candidates: usize, ticks: u32, faults: u8) -> Self {
        let longer = Duration::from_millis(1500);
        let mut config = Self::equal(name, candidates, 2, faults);
        config.leases[0] = longer;
        config.orders = orders(&config.leases);
        config.ttl = longer;
        config.tick = tick(longer, 3 * ticks);
        config
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Entrance::new(self).capabilities(self.old)
    }

    pub(crate) fn campaign(&self, who: usize, nonce: Nonce) -> Elector {
        let lease = self.leases[who];
        // A renewal each tick, where there is room; work must stop a tick before the deadline.
        let close = self.tick.saturating_sub(Duration::from_millis(2));
        let grace = if lease > self.tick * 2 { close } else { lease / 6 };
        let options = TimingOptions {
            lease: Some(lease),
            renewal: Some(self.tick),
            grace: Some(grace),
            with_choria: false,
        };
        let timing = Timing::new(options, self.ttl).expect("a valid timing");
        let settings = Settings::new(format!("c{who}"), nonce, timing);
        Elector::new(Settings { backoff: Arc::new(poll), ..settings }, self.capabilities())
    }
}

/// How often a standby polls where no hints come: each tick that the jitter allows.
fn poll(_attempt: u32, _random: f64) -> Duration {
    Duration::from_millis(20)
}

/// A tick of which `ticks` are a lease with the drift that is allowed for, so that no margin hides
/// in a rounding.
fn tick(lease: Duration, ticks: u32) -> Duration {
    let stretched = lease + lease / 250;
    (stretched + Duration::from_nanos(u64::from(ticks) - 1)) / ticks
}

fn orders(leases: &[Duration]) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for place in 0..leases.len() {
        let mut longer = Vec::new();
        for order in &orders {
            for who in (0..leases.len()).filter(|who| !order.contains(who)) {
                if leases[who] == leases[place] {
                    longer.push([order.as_slice(), &[who]].concat());
                }
            }
        }
        orders = longer;
    }
    orders
}
