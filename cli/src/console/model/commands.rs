//! What a view asks of the lock: roll calls, and the changes of an operator.

use std::time::{Duration, SystemTime};

use incumbent::CandidateInfo;
use incumbent::lock::{CandidateRequest, Pause, Successor};

use crate::error::{CliError, Code};
use crate::lock::elections::{ElectionRecord, Elections, Holder};

/// How long answers to a roll call are awaited.
const ROLL_WITHIN: Duration = Duration::from_secs(1);

/// A request to the lock about one election.
#[derive(Debug)]
pub enum Command {
    CallRoll,
    /// End the term of this holder, and no later one.
    Evict(Holder),
    /// Have this holder hand over, to this identity or to any.
    Move(Holder, Option<String>),
    /// Pause the election for this long; zero resumes it.
    Pause(Duration),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Answer {
    Roll(Vec<CandidateInfo>),
    /// A line to show.
    Done(String),
}

/// Carries out a request.
pub async fn execute(
    elections: &Elections,
    election: &str,
    asked: Command,
) -> Result<Answer, CliError> {
    let is_name = elections.check_name(election);
    if matches!(asked, Command::CallRoll) && is_name.is_err() {
        return Ok(Answer::Roll(Vec::new())); // of what cannot be an election
    }
    is_name?;
    Ok(match asked {
        Command::CallRoll => {
            let request = CandidateRequest::Identify;
            Answer::Roll(elections.call_roll(election, request, ROLL_WITHIN).await?)
        }
        Command::Evict(holder) => {
            let status = current(elections, election, &holder).await?;
            elections.evict_term(status, &holder).await?;
            Answer::Done(format!("evicted {} from {election}", holder.identity))
        }
        Command::Move(holder, to) => {
            current(elections, election, &holder).await?;
            let to = to.map_or(Successor::Any, |to| Successor::Identity(to.into()));
            let handover = elections.hand_over(election, &holder, to).await?;
            Answer::Done(format!("{election}: handing over to {}", handover.to))
        }
        Command::Pause(span) => {
            let pause = Pause::new(SystemTime::now(), span);
            let leader = elections.pause(election, pause, ROLL_WITHIN).await?.identity;
            let what = if span.is_zero() { "resumed" } else { "paused" };
            Answer::Done(format!("{election}: {what}, as {leader} will state in its entry"))
        }
    })
}

/// The status of the election, if the term still lasts.
async fn current(
    elections: &Elections,
    election: &str,
    term: &Holder,
) -> Result<ElectionRecord, CliError> {
    let none = || CliError::new(Code::NotFound, format!("election {election}: no leader now"));
    let status = elections.read(election).await?.ok_or_else(none)?;
    let holder = status.holder().ok_or_else(none)?;
    if !holder.is_same_term(term) {
        let message = format!("election {election}: {} leads now", holder.identity);
        return Err(CliError::new(Code::Failed, message));
    }
    Ok(status)
}
