//! Roll calls: a notification to the candidates, which answer on a channel of the call.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgListener;
use tokio::time::{Instant, timeout_at};

use super::errors::{self, Effect};
use super::state::LockState;
use super::statements;
use crate::lock::roll_call::{Answers, no_calls, to_json};
use crate::lock::{CandidateInfo, CandidateRequest, LockError, RollCall};

/// The prefix of the channels for answers; a random number follows.
const CHANNEL: &str = "incumbent_roll_call_";
/// The timeout of sending a notification.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The payload of a notification that calls the roll.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    name: String,
    reply_to: String,
    within_ms: u64,
    #[serde(default)]
    request: CandidateRequest,
}

impl Call {
    /// The election, and the call. Answers go to channels of calls only.
    pub fn parse(payload: &str) -> Option<(String, RollCall)> {
        let Self { name, reply_to, within_ms, request } = serde_json::from_str(payload).ok()?;
        let number = reply_to.strip_prefix(CHANNEL)?;
        let valid = number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| (name, RollCall::new(reply_to, within_ms, request)))
    }
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
    let reply_to = format!("{CHANNEL}{:016x}", fastrand::u64(..));
    let pool = lock.connections.for_listener();
    let mut answers = PgListener::connect_with(&pool).await.map_err(failed)?;
    answers.listen(&reply_to).await.map_err(failed)?;
    let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let call = Call { name: name.to_owned(), reply_to, within_ms, request: request.clone() };
    let payload = serde_json::to_string(&call).unwrap_or_default();
    let statement = statements::notify(&lock.opened.channel, &payload);
    lock.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await?;
    let end = Instant::now() + within;
    let mut found = Answers::to(request);
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
    let channel: Arc<str> = Arc::clone(&call.reply_to);
    let statement = statements::notify(&channel, &to_json(info));
    lock.connections.execute(&statement, Effect::Read, SEND_TIMEOUT).await.map(drop)
}
