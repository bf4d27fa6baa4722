//! Roll calls: a notification to the candidates, which answer on a channel of the call.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::errors::{self, Effect};
use super::state::LockState;
use super::statements;
use crate::lock::roll_call::{Answers, no_calls, to_json};
use crate::lock::{CallId, CandidateInfo, CandidateRequest, LockError, RollCall};

/// The timeout of sending a notification.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The channel for the answers to a call.
fn answers_channel(id: CallId) -> String {
    format!("incumbent_roll_call_{id}")
}

pub(super) async fn call(
    lock: &LockState,
    name: &str,
    request: CandidateRequest,
    within: Duration,
) -> Result<Vec<CandidateInfo>, LockError> {
    if !lock.listens {
        return no_calls();
    }
    let failed = |error| errors::failed(error, Effect::Read, lock.connections.place());
    let call = RollCall { id: CallId::random(), within, request };
    let mut answers =
        lock.connections.listen(&[&answers_channel(call.id)]).await.map_err(failed)?;
    let payload = json!({ "name": name, "roll_call": call }).to_string();
    let statement = statements::notify(&lock.opened.channel, &payload);
    lock.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await?;
    let end = Instant::now() + within;
    let mut found = Answers::to(call.request);
    while let Ok(answer) = timeout_at(end, answers.recv()).await {
        let answer = answer.map_err(failed)?;
        if found.take(answer.payload().as_bytes()) {
            break;
        }
    }
    Ok(found.into_vec())
}

pub(super) async fn answer(
    lock: &LockState,
    call: &RollCall,
    info: &CandidateInfo,
) -> Result<(), LockError> {
    let statement = statements::notify(&answers_channel(call.id), &to_json(info));
    lock.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await.map(drop)
}
