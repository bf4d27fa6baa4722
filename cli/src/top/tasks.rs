//! What the view asks of the lock beside watching it, and of a recording.

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use super::request::{Done, Recorded, Request};
use crate::elections::Elections;
use crate::error::{CliError, Code};
use crate::history::Recording;
use crate::view::{Answer, Asked, carry_out};

/// How many recorded transitions are shown at most.
const TRANSITIONS: u32 = 100;

/// Carries out a request.
pub fn start<'a>(
    elections: &'a Elections<'a>,
    recording: Option<&'a Recording>,
    request: Request,
) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        match request {
            Request::Ask(election, asked) => {
                let is_roll_call = matches!(asked, Asked::CallRoll);
                match carry_out(elections, &election, asked).await {
                    Ok(Answer::Roll(roll)) => Done::Roll { election, answers: Ok(roll) },
                    Err(failure) if is_roll_call => Done::Roll { election, answers: Err(failure) },
                    Ok(Answer::Done(line)) => Done::Change(Ok(line)),
                    Err(failure) => Done::Change(Err(failure)),
                }
            }
            Request::ReadRecording(election) => {
                let answer = match recording {
                    Some(recording) => read_apart(recording.clone(), election.clone()).await,
                    None => Ok(None),
                };
                Done::Recorded { election, answer }
            }
        }
    })
}

/// Reads beside the view: a long history takes some time to compute.
async fn read_apart(recording: Recording, election: String) -> Result<Option<Recorded>, CliError> {
    let mut task = JoinSet::new(); // ends the task with the view
    task.spawn(async move { read(&recording, &election).await });
    match task.join_next().await {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => Err(CliError::new(Code::Failed, error.to_string())),
        None => Ok(None),
    }
}

async fn read(recording: &Recording, election: &str) -> Result<Option<Recorded>, CliError> {
    let Some(history) = recording.history(election, None).await? else { return Ok(None) };
    let transitions = recording.transitions(Some(election), None, TRANSITIONS).await?;
    Ok(Some(Recorded { statistics: history.statistics(), transitions }))
}
