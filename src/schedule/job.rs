//! A job: its name, its cron expression, and how its runs are counted.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use croner::errors::CronError;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::ScheduleError;

/// How late a run begins at most, unless the job states it: longer than a takeover lasts, which
/// waits for the lease of a host that was killed. Without a setting that is a minute.
const CATCH_UP: Duration = Duration::from_secs(120);
/// The maximum of [`Job::catch_up`]: 31 days.
pub const MAX_CATCH_UP: Duration = Duration::from_secs(31 * 24 * 3600);
/// The most times of day of a list that are looked at one by one.
const MAX_TIMES: usize = 48;
/// The maximum length of the name of a job, in bytes.
const MAX_NAME_LEN: usize = 64;

/// The instant for which a run is scheduled. It names the run: the hosts of a fleet agree on it
/// although their clocks do not.
///
/// Whole seconds since 1970; shown in UTC, as in `2026-11-26T02:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) i64);

impl Slot {
    /// Seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        self.0
    }

    pub(super) fn of(time: Timestamp) -> Self {
        Self(time.as_second())
    }

    pub(super) fn time(self) -> Option<Timestamp> {
        Timestamp::from_second(self.0).ok()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time() {
            Some(time) => write!(f, "{time}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// How often a slot runs if a run does not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Runs {
    /// A slot is recorded before its run begins: one that is cut short is not repeated.
    #[default]
    AtMostOnce,
    /// A slot is recorded once its run has ended: one that is cut short runs again.
    AtLeastOnce,
}

/// Something that runs at the times of a cron expression.
///
/// ```
/// use std::time::Duration;
/// use incumbent::schedule::Job;
///
/// # fn main() -> Result<(), incumbent::schedule::ScheduleError> {
/// let nightly = Job::new("nightly", "0 3 * * *")?
///     .zone("Europe/Berlin")?
///     .at_least_once()
///     .catch_up(Duration::from_secs(3600));
/// assert_eq!(nightly.name(), "nightly");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    name: String,
    /// One, or each time of day of a list.
    crons: Vec<Cron>,
    zone: TimeZone,
    pub(super) runs: Runs,
    pub(super) catch_up: Duration,
}

impl Job {
    /// A job at the times of a cron expression of five fields, or six with seconds first, in UTC.
    ///
    /// Names of days and months, ranges, steps, `L`, `W`, `#` and `@daily` and the like are
    /// understood. The name is 1 to 64 of the letters `a-z`, `A-Z`, `0-9`, `-`, `_` and `.`.
    ///
    /// # Errors
    /// The name or the expression is invalid, or no time ever matches.
    pub fn new(name: impl Into<String>, expression: &str) -> Result<Self, ScheduleError> {
        let name = name.into();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=MAX_NAME_LEN).contains(&name.len()) || !name.bytes().all(fits) {
            let shown: String = name.chars().take(MAX_NAME_LEN).collect();
            return Err(ScheduleError::invalid(format!(
                "job name {shown:?}: use 1 to {MAX_NAME_LEN} of the letters a-z, A-Z, 0-9, '-', '_' and '.'"
            )));
        }
        let refused = |error: CronError| {
            let shown: String = expression.chars().take(100).collect();
            let why = error.to_string();
            let why = why.trim_end_matches('.');
            ScheduleError::invalid(format!(
                "job {name}: the cron expression {shown:?} is invalid: {why}"
            ))
        };
        Cron::from_str(expression).map_err(refused)?; // as it was written
        let crons = times_of_day(expression).into_iter().map(|one| Cron::from_str(&one));
        let crons = crons.collect::<Result<_, _>>().map_err(refused)?;
        let (zone, runs) = (TimeZone::UTC, Runs::default());
        let job = Self { name, crons, zone, runs, catch_up: CATCH_UP };
        if job.next(Timestamp::now()).is_none() {
            let name = &job.name;
            return Err(ScheduleError::invalid(format!(
                "job {name}: no time matches {expression:?}: check its day and month"
            )));
        }
        Ok(job)
    }

    /// Has the expression match the time of day in a zone, by its name in the IANA database.
    ///
    /// Where a change of the clocks skips a time of day, a run that is set for it begins right
    /// after the gap; where it repeats one, such a run does not repeat. That holds for hours and
    /// minutes that are numbers, or lists of them. Those with `*`, a step or a range follow the
    /// elapsed time.
    ///
    /// # Errors
    /// The database of this host does not know the zone.
    pub fn zone(mut self, name: &str) -> Result<Self, ScheduleError> {
        self.zone = TimeZone::get(name).map_err(|_| {
            let shown: String = name.chars().take(64).collect();
            let job = &self.name;
            ScheduleError::invalid(format!(
                "job {job}: the time zone {shown:?} is unknown: use a name as Europe/Berlin, and install tzdata"
            ))
        })?;
        Ok(self)
    }

    /// Records a slot once its run has ended: one that a crash or the loss of the lead cuts short
    /// runs again, by the next leader. Without this a slot is recorded before its run begins.
    pub fn at_least_once(mut self) -> Self {
        self.runs = Runs::AtLeastOnce;
        self
    }

    /// Has slots that nobody ran in time run late, each once, if they are not older than this:
    /// two minutes unless stated, at most [`MAX_CATCH_UP`]. Zero skips them.
    ///
    /// A slot is missed while nobody leads, or while the run of an earlier slot of the same job
    /// continues.
    pub fn catch_up(mut self, span: Duration) -> Self {
        self.catch_up = span.min(MAX_CATCH_UP);
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn next(&self, after: Timestamp) -> Option<Slot> {
        let after: Zoned = after.to_zoned(self.zone.clone());
        let next = |cron: &Cron| cron.find_next_occurrence(&after, false).ok();
        self.crons.iter().filter_map(next).map(|next| Slot::of(next.timestamp())).min()
    }
}

/// The expression for each time of day in its lists of hours and minutes: where the clocks change,
/// the parser has the rules of a fixed time for single ones only.
fn times_of_day(expression: &str) -> Vec<String> {
    let whole = || vec![expression.to_owned()];
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let at = fields.len().saturating_sub(5); // seconds are first
    let (Some(minutes), Some(hours)) = (fields.get(at), fields.get(at + 1)) else {
        return whole();
    };
    let list = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let (minute, hour) = (|| minutes.split(','), || hours.split(','));
    let are_few = minute().count() * hour().count() <= MAX_TIMES;
    if fields.len() > 6 || !are_few || !list(minutes) || !list(hours) {
        return whole();
    }
    let mut times = Vec::new();
    for hour in hour() {
        for minute in minute() {
            let mut one = fields.clone();
            one.splice(at..at + 2, [minute, hour]);
            times.push(one.join(" "));
        }
    }
    times
}
