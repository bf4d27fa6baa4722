//! What the view asks of the lock beside watching it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use incumbent::lock::{CandidateRequest, Successor};

use super::request::{Done, Request};
use crate::elections::Elections;

/// How long answers to a roll call are awaited.
const ROLL_WITHIN: Duration = Duration::from_secs(1);

/// Carries out a request to the lock.
pub fn start<'a>(elections: &'a Elections<'a>, request: Request) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        match request {
            Request::CallRoll(election) => {
                let call = elections.call_roll(&election, CandidateRequest::Identify, ROLL_WITHIN);
                let answers = call.await;
                Done::Roll { election, answers }
            }
            Request::Evict(term) => {
                let done = format!("evicted {} from {}", term.holder.leader, term.status.election);
                Done::Change(elections.evict_term(term.status, &term.holder).await.map(|_| done))
            }
            Request::Move(term, to) => {
                let (election, holder) = (term.status.election, term.holder);
                let to = to.map_or(Successor::Any, |to| Successor::Identity(to.into()));
                let moved = elections.hand_over(&election, &holder, to).await;
                Done::Change(moved.map(|moved| format!("{election}: handing over to {}", moved.to)))
            }
        }
    })
}
