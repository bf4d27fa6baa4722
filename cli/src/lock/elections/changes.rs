//! What an operator changes: evictions, moves and pauses.

use std::time::Duration;

use incumbent::CandidateInfo;
use incumbent::lock::{
    CandidateRequest, ElectionRecord, ElectionState, HandoverAnswer, Holder, Pause, Revision, Role,
    RollCall, Successor,
};

use super::Elections;
use crate::error::{CliError, Code};

/// How often a leader may renew between the read and the eviction.
const ATTEMPTS: usize = 50;

/// The leader that hands over, and to whom.
pub struct Handover {
    pub from: CandidateInfo,
    pub to: String,
}

impl Elections {
    /// Ends the term of this holder, although it may renew meanwhile. Returns a revision below
    /// those of its successors.
    pub async fn evict_term(
        &self,
        mut status: ElectionRecord,
        holder: &Holder,
    ) -> Result<Revision, CliError> {
        let operation = format!("eviction from {}", status.election);
        for _ in 0..ATTEMPTS {
            if self.evict(&status).await? {
                return Ok(status.revision);
            }
            status = match self.read(&status.election).await? {
                Some(now) if now.holder().is_some_and(|now| now.is_same_term(holder)) => now,
                Some(ElectionRecord { state: ElectionState::Held(now), .. }) => {
                    let message = format!("{operation}: {} took over meanwhile", now.identity);
                    return Err(CliError::new(Code::Failed, message));
                }
                _ => {
                    let message =
                        format!("{operation}: {} stepped down by itself", holder.identity);
                    return Err(CliError::new(Code::NotFound, message));
                }
            };
        }
        Err(CliError::new(
            Code::Failed,
            format!("{operation}: the entry keeps changing; try again"),
        ))
    }

    /// Has the leader of an election hand over.
    pub async fn hand_over(
        &self,
        name: &str,
        holder: &Holder,
        to: Successor,
    ) -> Result<Handover, CliError> {
        let request = CandidateRequest::HandOver(to);
        let answers = self.call_roll(name, request, RollCall::HANDOVER_WITHIN).await?;
        let leader = answers.into_iter().find(|info| info.handover.is_some());
        let why = match leader.map(|info| (info.handover.clone(), info)) {
            Some((Some(HandoverAnswer::To(to)), from)) => {
                return Ok(Handover { from, to: to.to_string() });
            }
            Some((Some(HandoverAnswer::Refused(why)), from)) => {
                format!("{} continues to lead: {why}", from.identity)
            }
            _ => format!(
                "{}, who leads, does not answer: it is of another program or version, or cut off; \
                 see `election members` and `election evict`",
                holder.identity
            ),
        };
        Err(CliError::new(Code::Failed, format!("move of {name}: {why}")))
    }

    /// Has the leader of an election state a pause in its entry, or its end. Returns the leader.
    pub async fn pause(
        &self,
        name: &str,
        pause: Pause,
        within: Duration,
    ) -> Result<CandidateInfo, CliError> {
        let answers = self.call_roll(name, CandidateRequest::Pause(pause), within).await?;
        let leader = answers.into_iter().find(|info| info.role != Role::Standby);
        leader.ok_or_else(|| {
            let why = "no leader of this library answered; see `election members`";
            CliError::new(Code::Failed, format!("election {name}: {why}"))
        })
    }
}

impl Handover {
    /// Whether this is the term that ends.
    pub fn is_from(&self, holder: &Holder) -> bool {
        let token = self.from.token;
        holder.identity == *self.from.identity && (token.is_none() || token == holder.token)
    }
}
