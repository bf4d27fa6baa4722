//! Facts about a cluster, read without a write.

use std::time::Duration;

use super::client::methods;
use super::errors::said;
use super::foreign::{ForeignCandidate, Search};
use super::lock::EtcdLock;
use super::messages::{Members, MembersRequest, Status, StatusRequest};
use crate::lock::LockError;
use crate::time::timer::deadline_after;

/// The most alarms of a member that are reported.
const MAX_ALARMS: usize = 16;

/// Reads facts about a cluster that elections depend on. It writes nothing.
#[derive(Debug)]
pub struct EtcdProbe {
    lock: EtcdLock,
}

/// What a member reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberFacts {
    /// Its version, as in `3.6.5`.
    pub version: String,
    /// The identifier of its cluster.
    pub cluster_id: u64,
    /// Whether it knows of a leader of the cluster.
    pub has_leader: bool,
    /// Whether it is a learner, which accepts no requests of elections.
    pub is_learner: bool,
    /// Its alarms, as etcd states them.
    pub alarms: Vec<String>,
}

impl EtcdProbe {
    pub(super) fn new(lock: EtcdLock) -> Self {
        Self { lock }
    }

    /// Whether the password of a user goes over a network without TLS.
    pub fn sends_password_in_clear(&self) -> bool {
        self.lock.inner.client.sends_password_in_clear()
    }

    /// Returns the addresses of the members, for people.
    pub fn place(&self) -> &str {
        self.lock.inner.client.place()
    }

    /// Returns the prefix of the keys, with a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.lock.inner.prefix
    }

    /// Returns the lock.
    pub fn lock(&self) -> EtcdLock {
        self.lock.clone()
    }

    /// Asks each configured member for its status.
    pub async fn members(&self, timeout: Duration) -> Vec<(&str, Result<MemberFacts, LockError>)> {
        let by = deadline_after(timeout);
        let client = &self.lock.inner.client;
        let answers = client.call_each::<_, Status>(methods::STATUS, &StatusRequest {}, by).await;
        let facts = answers.into_iter().map(|(address, status)| {
            let facts = status.map(|status| {
                let header = status.header.unwrap_or_default();
                let alarms = status.errors.iter().take(MAX_ALARMS);
                MemberFacts {
                    version: said(&status.version).into_owned(),
                    cluster_id: header.cluster_id,
                    has_leader: status.leader != 0,
                    is_learner: status.is_learner,
                    alarms: alarms.map(|alarm| said(alarm).into_owned()).collect(),
                }
            });
            (address, facts)
        });
        facts.collect()
    }

    /// Asks one member for the number of members that vote.
    ///
    /// # Errors
    /// If none answers in time, or the cluster has no quorum.
    pub async fn voters(&self, timeout: Duration) -> Result<usize, LockError> {
        let request = MembersRequest { linearizable: true };
        let client = &self.lock.inner.client;
        let by = deadline_after(timeout);
        let effect = crate::lock::Effect::Read;
        let (answer, _): (Members, u64) =
            client.call(methods::MEMBERS, &request, effect, by).await?;
        Ok(answer.members.iter().filter(|member| !member.is_learner).count())
    }

    /// Looks for candidates of etcd's own elections below the keys of this prefix, or of one
    /// election. Returns one that may lead beside an election here, else one that waits.
    ///
    /// # Errors
    /// If the keys cannot be read in time.
    pub async fn foreign_candidate(
        &self,
        election: Option<&str>,
        timeout: Duration,
    ) -> Result<Option<ForeignCandidate>, LockError> {
        let lock = &self.lock.inner;
        let (key, range_end) = match election {
            Some(name) => lock.below(name),
            None => {
                let prefix = lock.prefix.as_bytes();
                (prefix.to_vec(), super::lock::after(prefix))
            }
        };
        let mut search = Search::default();
        let by = deadline_after(timeout);
        lock.scan(key, range_end, by, |kv| search.look(&lock.prefix, kv)).await?;
        Ok(search.found())
    }
}
