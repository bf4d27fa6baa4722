//! The flags of how the leadership moves.

use std::time::Duration;

use clap::Args;
use incumbent::{ElectionBuilder, HealthCheck};

use super::check::{Check, CheckProcesses};
use crate::error::CliError;
use crate::lock::LockArgs;
use crate::output::time_format::parse_up_to_a_year;

/// How long a candidate is ready before it asks a leader of lower priority to hand over.
const PREFER_AFTER: Duration = Duration::from_secs(60);

/// The flags of how the leadership moves.
#[derive(Debug, Default, Args)]
pub struct MoveArgs {
    /// The priority, 0 to 255: of several candidates that are ready the one with the highest leads
    /// next [default: 0].
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Where this candidate runs, such as a zone: `election move --to-site` selects by it.
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    #[command(flatten)]
    pub check: CheckArgs,
    /// Ask a leader of lower priority to hand over, once this process has been ready for a minute.
    ///
    /// Without this flag the priority counts only when the leadership is vacant or moved.
    #[arg(long, requires = "priority")]
    prefer: bool,
    /// Ask a leader of lower priority to hand over, once this process has been ready for this long.
    #[arg(long, value_name = "DURATION", requires = "priority", value_parser = parse_up_to_a_year)]
    prefer_after: Option<Duration>,
    /// Begin by standing aside: lead only if no candidate that is ready does.
    #[arg(long)]
    pub stand_aside: bool,
}

/// The flags of the check.
#[derive(Debug, Default, Args)]
pub struct CheckArgs {
    /// Check whether this process can do the work of a leader: by a command, or a URL.
    ///
    /// A command runs in `sh -c`: exit code 0 passes, else the last line of its output is the
    /// reason. It does not inherit credentials of the lock. A URL, which begins with http:// or
    /// https://, is fetched: status 2xx passes; redirects are not followed. A check that takes
    /// longer than --check-interval fails, and is killed with its process group. While the check
    /// fails, this process leads only if no other candidate does. A leader whose check fails hands
    /// over to a candidate that is ready; if there is none, it continues.
    #[arg(long, value_name = "COMMAND|URL", value_parser = Check::parse)]
    check: Option<Check>,
    /// The time between two checks, and the maximum duration of each: 10ms to 1h [default: 5s].
    #[arg(long, value_name = "DURATION", requires = "check", value_parser = parse_interval)]
    check_interval: Option<Duration>,
    /// How many failures in a row make this process sick, and how many passes healthy again
    /// [default: 3].
    #[arg(long, value_name = "N", requires = "check")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    check_failures: Option<u32>,
}

fn parse_interval(word: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(word).map_err(|error| error.to_string())?;
    match (Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&span) {
        true => Ok(span),
        false => Err("10ms to 1h".to_owned()),
    }
}

impl CheckArgs {
    /// The check, before the campaign. Its command does not inherit the secrets of `lock`.
    pub fn start(
        &self,
        lock: &LockArgs,
        processes: &CheckProcesses,
    ) -> Result<Option<HealthCheck>, CliError> {
        let Some(check) = &self.check else { return Ok(None) };
        let mut check = check.start(lock.secrets(&[]), processes)?;
        if let Some(interval) = self.check_interval {
            check = check.every(interval);
        }
        if let Some(failures) = self.check_failures {
            check = check.failures(failures);
        }
        Ok(Some(check))
    }
}

impl MoveArgs {
    /// The parts that a member of a set has too: the site, the check, and whether it stands aside.
    pub fn for_set(self) -> (Option<String>, CheckArgs, bool) {
        (self.site, self.check, self.stand_aside)
    }

    /// The first given flag of the priority.
    pub fn priority_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--priority", self.priority.is_some()),
            ("--prefer", self.prefer),
            ("--prefer-after", self.prefer_after.is_some()),
        ];
        flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    pub fn apply(
        &self,
        mut builder: ElectionBuilder,
        check: Option<HealthCheck>,
    ) -> ElectionBuilder {
        if let Some(site) = &self.site {
            builder = builder.site(site);
        }
        if let Some(check) = check {
            builder = builder.check(check);
        }
        if let Some(after) = self.prefer_after.or(self.prefer.then_some(PREFER_AFTER)) {
            builder = builder.prefer_after(after);
        }
        builder.priority(self.priority.unwrap_or_default()).stand_aside(self.stand_aside)
    }
}
