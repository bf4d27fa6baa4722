//! The arguments of the guard process.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::device::WatchdogDevice;
use crate::process::{Cgroup, StopTimes};

/// The subcommand of the guard.
pub const SUBCOMMAND: &str = "run-guard";

/// The configuration of the guard.
pub struct GuardConfig {
    /// The grace of the tree without a schedule.
    pub grace: Duration,
    /// The stop signal.
    pub signal: Signal,
    pub cgroup: Option<Cgroup>,
    /// The directory to remove if the candidate cannot.
    pub directory: Option<PathBuf>,
    /// The schedule, unless a later request replaces it; `None` for no limit.
    pub until: Option<StopTimes>,
    /// The variables that the command does not inherit, and the guard does.
    pub withheld: Vec<String>,
    /// Whether the command loses what it takes to change addresses.
    pub drops_network_capabilities: bool,
    /// What resets the machine if the guard hangs.
    pub watchdog: Option<WatchdogDevice>,
}

impl GuardConfig {
    /// Of a command that is stopped by this signal, and killed after this grace.
    pub fn new(signal: Signal, grace: Duration, withheld: Vec<String>) -> Self {
        Self {
            grace,
            signal,
            cgroup: None,
            directory: None,
            until: None,
            withheld,
            drops_network_capabilities: false,
            watchdog: None,
        }
    }

    /// `candidates`: the process group that gets the terminal back.
    pub fn to_args(&self, candidates: Option<Pid>) -> [OsString; 9] {
        let path = |path: Option<OsString>| path.unwrap_or_else(|| "-".into());
        [
            self.grace.as_millis().to_string().into(),
            self.signal.as_raw().to_string().into(),
            path(self.cgroup.as_ref().map(|cgroup| cgroup.path().into())),
            path(self.directory.clone().map(Into::into)),
            until_argument(self.until),
            path((!self.withheld.is_empty()).then(|| self.withheld.join("=").into())),
            flag_argument(self.drops_network_capabilities),
            path(candidates.map(|group| group.as_raw_pid().to_string().into())),
            serde_json::to_string(&self.watchdog).unwrap_or_default().into(), // plain data
        ]
    }

    /// The configuration, and the process group that gets the terminal back.
    pub fn from_args(args: &mut impl Iterator<Item = OsString>) -> Option<(Self, Option<Pid>)> {
        let mut number = || args.next()?.to_str()?.parse().ok();
        let grace = Duration::from_millis(number()?);
        let signal = Signal::from_named_raw(i32::try_from(number()?).ok()?)?;
        let mut path = || args.next().map(|path| (path != "-").then_some(PathBuf::from(path)));
        let (cgroup, directory) = (path()?.map(Cgroup::at), path()?);
        let until = serde_json::from_str(args.next()?.to_str()?).ok()?;
        let withheld = args.next()?.into_string().ok()?;
        let withheld = withheld.split('=').filter(|name| *name != "-").map(str::to_owned);
        let withheld = withheld.collect();
        let drops_network_capabilities = is_flag(&args.next()?);
        let candidates = Pid::from_raw(args.next()?.to_str()?.parse().unwrap_or(0));
        let watchdog = serde_json::from_str(args.next()?.to_str()?).ok()?;
        let config = Self {
            cgroup,
            directory,
            until,
            drops_network_capabilities,
            watchdog,
            ..Self::new(signal, grace, withheld)
        };
        Some((config, candidates))
    }
}

pub fn until_argument(until: Option<StopTimes>) -> OsString {
    serde_json::to_string(&until).unwrap_or_default().into() // plain data: it cannot fail
}

pub fn flag_argument(flag: bool) -> OsString {
    if flag { "+" } else { "-" }.into()
}

pub fn is_flag(argument: &OsStr) -> bool {
    argument == "+"
}
