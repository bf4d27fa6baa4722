//! The leader at this moment: one whose lease is over is none.

use std::time::{Duration, SystemTime};

use incumbent::CandidateInfo;
use incumbent::lock::{
    CandidateRequest, CoolDownLeft, ElectionRecord, ElectionState, Revision, Role, Successor,
    Vacancy,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Elections;
use crate::error::CliError;
use crate::output::time_format;

/// The bounds of the interval of reads, which is a tenth of the lease.
const READS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long the holder of a new entry may take to state what it waits for.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// The most time for the whole call, which is no more than a help.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// The usual maximum lease of a lock.
const USUAL_LEASE: Duration = Duration::from_secs(60);
/// For this many leases after its create a holder may be cooling down.
const COOL_DOWN_LEASES: u32 = 4;

impl Elections {
    /// What is left of the cool-down of the holder, as it states itself when it is asked. Locks
    /// without roll calls refuse the call: then it is not known.
    pub async fn cool_down(&self, status: &ElectionRecord) -> Option<CoolDownLeft> {
        let holder = status.holder().filter(|holder| holder.token.is_some())?;
        // From when it leads its entry states that it may be asked to move.
        if holder.moves.priority.is_some() {
            return None;
        }
        // The lease of the entry may be what is left of the wait, which may be for a longer one.
        let lease = self.max_wait(holder).unwrap_or_default().max(USUAL_LEASE);
        if time_format::age(time_format::from_system(holder.since?)?)
            > lease.saturating_mul(COOL_DOWN_LEASES)
        {
            return None;
        }
        // A question to the standbys of this identity, and to a holder that does not lead yet.
        let request =
            CandidateRequest::WhoCanSucceed(Successor::Identity(holder.identity.as_str().into()));
        let call = self.call_roll(&status.election, request, ANSWER_WITHIN);
        let answers = timeout(CALL_WITHIN, call).await.ok()?.ok()?;
        let holds = |info: &CandidateInfo| {
            info.role == Role::CoolingDown && *info.identity == *holder.identity
        };
        answers.into_iter().filter(holds).find_map(|info| info.cool_down)
    }

    /// The leader of an election now. A holder whose lease is over, or whose pod is gone, is none.
    ///
    /// Where the lock shows no time of a write, this waits for the next one, for a lease at most.
    pub async fn now(&self, name: &str) -> Result<ElectionRecord, CliError> {
        let Some(status) = self.read(name).await? else { return Ok(absent(name)) };
        let Some(holder) = status.holder() else { return Ok(status) };
        if holder.pod.as_ref().is_some_and(|pod| pod.gone) {
            return Ok(vacant(status, Vacancy::Gone));
        }
        if status.is_overdue(SystemTime::now()) {
            return Ok(vacant(status, Vacancy::Expired));
        }
        match holder.lease {
            Some(lease) if status.written.is_none() => self.next_write(status, lease).await,
            _ => Ok(status),
        }
    }

    /// Waits until the election is written again, or the lease has passed since it was read.
    async fn next_write(
        &self,
        status: ElectionRecord,
        lease: Duration,
    ) -> Result<ElectionRecord, CliError> {
        let (end, pause) = (Instant::now(), (lease / 10).clamp(READS.0, READS.1));
        let end = time_format::after(end, lease);
        let names = [status.election.clone()];
        let mut watcher = self.watch(&names).await?;
        loop {
            let is_over = tokio::select! {
                update = watcher.next() => {
                    update?;
                    false
                }
                () = sleep(pause) => false,
                () = sleep_until(end) => true,
            };
            match self.read(&status.election).await? {
                None => return Ok(absent(&status.election)),
                Some(now) if (now.revision, &now.state) != (status.revision, &status.state) => {
                    return Ok(now);
                }
                Some(now) if is_over => return Ok(vacant(now, Vacancy::Expired)),
                Some(_) => {}
            }
        }
    }
}

fn vacant(record: ElectionRecord, cause: Vacancy) -> ElectionRecord {
    ElectionRecord { state: ElectionState::Vacant(cause), ..record }
}

/// The status of an election without an entry.
fn absent(name: &str) -> ElectionRecord {
    ElectionRecord::vacant(name, Revision(0), Vacancy::Absent)
}
