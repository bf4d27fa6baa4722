//! Schedules by name: a fleet and a seed.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::figures::Report;
use crate::fleet::{Fleet, scenario};
use crate::run::run;
use crate::scenario::Scenario;

/// One generated scenario, by name: `plain:17`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    pub fleet: Fleet,
    pub seed: u64,
}

impl Schedule {
    /// What happens in it.
    pub fn scenario(self) -> Scenario {
        self.tree().current()
    }

    /// Plays it out.
    pub fn run(self) -> Report {
        run(&self.scenario(), false)
    }

    /// A smaller scenario that fails as well, with its history; `None` if this one does not fail.
    pub fn shrink(self, at_most: Duration) -> Option<(Scenario, Report)> {
        let began = Instant::now();
        let mut tree = self.tree();
        let mut smallest = tree.current();
        run(&smallest, false).violation?;
        let mut goes_on = tree.simplify();
        while goes_on && began.elapsed() < at_most {
            let candidate = tree.current();
            goes_on = if run(&candidate, false).violation.is_some() {
                smallest = candidate;
                tree.simplify()
            } else {
                tree.complicate()
            };
        }
        let report = run(&smallest, true);
        Some((smallest, report))
    }

    fn tree(self) -> impl ValueTree<Value = Scenario> {
        let mut bytes = [self.fleet as u8; 32];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config { failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, random);
        scenario(self.fleet).new_tree(&mut runner).expect("no scenario is filtered out")
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fleet, self.seed)
    }
}

/// Why a text names no schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseScheduleError(String);

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fleets: Vec<_> = Fleet::all().map(|fleet| fleet.to_string()).collect();
        let fleets = fleets.join(", ");
        write!(f, "{:?} names no schedule: say FLEET:NUMBER, FLEET one of {fleets}", self.0)
    }
}

impl std::error::Error for ParseScheduleError {}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (fleet, seed) = text.split_once(':')?;
            let fleet = Fleet::all().find(|known| known.to_string() == fleet)?;
            Some(Self { fleet, seed: seed.parse().ok()? })
        };
        parse().ok_or_else(|| ParseScheduleError(text.to_owned()))
    }
}
