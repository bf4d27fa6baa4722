//! `election history`.

mod runs;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use incumbent::lock::LockFacts;
use time::{Date, OffsetDateTime};

use crate::console::history::{self, Day, History, Part, Recording, Span, State, Statistics};
use crate::error::{CliError, Code};
use crate::lock::elections::Elections;
use crate::lock::{LockArgs, check_name};
use crate::output::time_format::{self, with_millis};
use crate::output::{self, Format, Printing, or_dash};

/// Show the terms of an election, the gaps without a leader between them, and statistics of both.
///
/// With --from it reads a file of `incumbent record`, and needs no server. Without it, it reads
/// the writes that a NATS bucket still stores: as many as its history has, renewals included, and
/// none older than its TTL. Other locks know the current term only. Needs the permissions of an
/// observer.
#[derive(Args)]
pub struct ShowHistory {
    /// The election; with Kubernetes its object.
    name: String,
    /// The recording to read, a file of `incumbent record`.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// How far to look back, as in 7d or 12h [default: as far as it reaches].
    #[arg(long, value_name = "DURATION", value_parser = time_format::parse_up_to_a_year)]
    since: Option<Duration>,
    /// Show the runs of the jobs of this election: of `incumbent cron`, or of the schedule of a
    /// program.
    ///
    /// With --from those that `incumbent record --runs` has recorded. Without it up to 32, which
    /// are in the checkpoint of the election.
    #[arg(long)]
    runs: bool,
    #[command(flatten)]
    printing: Printing,
}

impl ShowHistory {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let since = self
            .since
            .and_then(|span| OffsetDateTime::now_utc().checked_sub(span.try_into().ok()?));
        if self.runs {
            let (name, format) = (&self.name, self.printing.output);
            return runs::show(name, self.from.as_deref(), lock, since, format).await;
        }
        let history = match &self.from {
            Some(file) => {
                check_name(&self.name)?;
                let recording = Recording::open(file).await?;
                recording.history(&self.name, since).await?.ok_or_else(|| {
                    let message =
                        format!("election {}: nothing of it is in {}", self.name, file.display());
                    CliError::new(Code::NotFound, message)
                })?
            }
            None => self.of_lock(lock, since).await?,
        };
        match self.printing.output {
            Format::Json => output::json(&history.json()),
            Format::Text => print(&history),
        }
    }

    /// What the lock knows.
    async fn of_lock(
        &self,
        lock: &LockArgs,
        since: Option<OffsetDateTime>,
    ) -> Result<History, CliError> {
        let elections = Elections::open(lock, Some(&self.name)).await?;
        let absent = || {
            let message = format!("election {}: no leader, and no record found", self.name);
            CliError::new(Code::NotFound, message)
        };
        if let Some(records) = elections.stored(&self.name).await? {
            let count = records.len();
            let history =
                history::stored(&self.name, &elections, records, since).ok_or_else(absent)?;
            output::note(reach(elections.name(), elections.facts(), count));
            return Ok(history);
        }
        let status = elections.now(&self.name).await?;
        if status.revision.0 == 0 {
            return Err(absent());
        }
        output::note("this lock stores the last write only; `incumbent record` keeps a history");
        Ok(history::current(status, since))
    }
}

/// How far the writes of a bucket reach back, and what to do about it.
fn reach(bucket: &str, facts: &LockFacts, count: usize) -> String {
    let limit = facts.stored_writes;
    let ttl = facts
        .max_lease
        .map(|ttl| format!(", none older than its TTL of {}", time_format::span(ttl)));
    let ttl = ttl.unwrap_or_default();
    if limit == 1 {
        return format!(
            "bucket {bucket} stores the last write only: `incumbent record` keeps a history; \
             `nats kv edit {bucket} --history 64` would store 64 writes, renewals included{ttl}"
        );
    }
    format!(
        "bucket {bucket} has {count} writes of this election: it stores {limit}, renewals \
         included{ttl}; `incumbent record` keeps more"
    )
}

fn print(history: &History) -> Result<(), CliError> {
    let rows = history.parts().into_iter().map(|part| match part {
        Part::Span(span) => row(span, history.until()),
        Part::Unknown(period) => [
            with_millis(period.begin),
            with_millis(period.end),
            time_format::span(period.length()),
            "unknown".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
        ],
    });
    output::table(["begin (UTC)", "end", "length", "leader", "token", "cause"], rows)?;
    output::line("")?;
    print_statistics(&history.statistics())
}

fn row(span: &Span, until: OffsetDateTime) -> [String; 6] {
    // An end that nobody saw is before the time that is known.
    let about = |seen: bool| if seen { "" } else { "~" };
    let end = span.end.map(|end| format!("{}{}", about(end.seen), with_millis(end.at)));
    let (leader, token, cause) = match (&span.state, &span.cause) {
        (State::Led { leader, token }, cause) => {
            let token = or_dash(token.map(|token| token.to_string()));
            let cause = cause.clone().or(span.end.map(|_| "unknown".to_owned()));
            (leader.clone(), token, cause)
        }
        (State::Leaderless, cause) => ("none".to_owned(), "-".to_owned(), cause.clone()),
    };
    [
        format!("{}{}", about(span.begin.seen), with_millis(span.begin.at)),
        end.unwrap_or_else(|| "now".to_owned()),
        time_format::span(span.length(until)),
        leader,
        token,
        or_dash(cause.map(|cause| cause.replace('_', " "))),
    ]
}

fn print_statistics(statistics: &Statistics) -> Result<(), CliError> {
    let days = statistics.days.iter().map(|(date, day)| day_row(*date, day));
    if !statistics.days.is_empty() {
        output::table(["day (UTC)", "available", "known", "leaderless", "ends"], days)?;
        output::line("")?;
    }
    let known = match statistics.known() {
        Duration::ZERO => "unknown".to_owned(),
        known => format!(
            "{} of {} known",
            history::percent(statistics.led, statistics.leaderless),
            time_format::span(known)
        ),
    };
    let unknown = match statistics.unknown {
        Duration::ZERO => String::new(),
        span => format!(", {} unknown", time_format::span(span)),
    };
    output::line(format!("available: {known}{unknown}"))?;
    if let Some((begin, length, cause)) = &statistics.longest_gap {
        let cause = cause.as_deref().unwrap_or("unknown").replace('_', " ");
        output::line(format!(
            "longest gap: {} from {} ({})",
            time_format::span(*length),
            with_millis(*begin),
            crate::output::text::printable(&cause)
        ))?;
    }
    let causes = statistics.causes();
    let mean = statistics.mean_between_changes();
    let mean = mean.map(|mean| format!(", one in {} on average", time_format::span(mean)));
    let ends = statistics.ends();
    output::line(format!("ends of terms: {ends}{causes}{}", mean.unwrap_or_default()))
}

fn day_row(date: Date, day: &Day) -> [String; 5] {
    [
        date.to_string(),
        history::percent(day.led, day.leaderless),
        time_format::span(day.led.saturating_add(day.leaderless)),
        time_format::span(day.leaderless),
        day.changes.to_string(),
    ]
}
