//! Several locks as one: leader only while all of them are held.
//!
//! For moving a fleet from one lock to another without a moment in which two may lead, and for
//! fleets in which not every candidate reaches every lock. `docs/multiple-locks.md` of the
//! repository walks through such a move.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::memory::MemoryLock;
//! use incumbent::{all_of, best_effort, new_election, required};
//!
//! let (old, new) = (MemoryLock::new(), MemoryLock::new());
//! let both = all_of([required(old.clone()), best_effort(new.clone())]);
//! let election = new_election("my_app", both).identity("c1").start()?;
//!
//! let leadership = election.won().await?;
//! assert_eq!(old.holder("my_app").as_deref(), Some("c1"));
//! assert_eq!(new.holder("my_app").as_deref(), Some("c1"));
//! let tokens = leadership.tokens(); // one of each lock, for what is fenced by it
//! assert_eq!(tokens.first(), Some(&Some(leadership.token())));
//! # drop(leadership);
//! # election.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The promise
//! **Two candidates that require the same lock never lead at the same time.** On each lock a
//! candidate keeps the lock's own rules, with a deadline, a cool-down and a token of its own; it
//! leads while it leads on every required one, so until the earliest of their deadlines. Two
//! candidates without a required lock in common do not exclude each other.
//!
//! A term begins when all required locks are held and their cool-downs are over. It ends when the
//! first of them is lost or can not be renewed in time: the work stops before the others are
//! released, the last one first.
//!
//! # Best effort
//! A [`best_effort`] lock is taken in its turn like the others, and released like them. But while
//! its requests have failed for as long as one request may take (an eighth of the lease, 250 ms to
//! 5 s), whether it cannot be reached, refuses, or its bucket is missing, a term begins and
//! continues without it. That is reported by
//! [`Election::lock_failure`](crate::Election::lock_failure). As soon as it responds again it is
//! taken again. **While another candidate is seen to hold it there is no term**: none begins, and
//! the current one ends with [`Cause::Superseded`](crate::Cause::Superseded). A holder that was
//! seen before the lock became unreachable is waited for until the lease last seen is over. Its
//! deletion by an operator ends a term. It does not bound the deadline.
//!
//! So it does not exclude candidates that cannot reach it. Before a candidate leads by that lock
//! alone, require it everywhere.
//!
//! # Waiting for the rest
//! A lock that is held is renewed while the next one is requested, but not forever. A candidate
//! that has not got the rest within one to two leases, or is refused a required lock, gives back
//! what it holds and takes nothing before the rest is free and within reach; a lock that refused is
//! tried again after a rest of a lease at most, then two, four, up to sixteen. And it takes
//! nothing while a later required lock is unreachable. So candidates that reach only one of two
//! locks do not keep others that reach both from leading, and candidates that take the locks in
//! different orders do not block each other for long. Still, give all of them the same order.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::lock::roll_call::distinct;
use crate::lock::{
    CandidateInfo, CandidateRequest, Capabilities, Lock, LockError, LockErrorKind, LockMember,
    Messages, Need, Reading, Release, Revision, Write,
};

/// Several locks as one, taken in this order and released in reverse: see the
/// [module](mod@crate::lock::multi).
///
/// Locks of one type are given as they are, and are required. Others are given as [`required`] or
/// [`best_effort`]. At least one must be required: [`start`](crate::ElectionBuilder::start) refuses
/// anything else. Locks that are themselves made of several are taken apart.
pub fn all_of<M: Into<LockMember>>(members: impl IntoIterator<Item = M>) -> MultiLock {
    MultiLock {
        members: members.into_iter().flat_map(|member| single_locks(member.into())).collect(),
    }
}

/// A lock without which there is no term.
pub fn required(lock: impl Lock) -> LockMember {
    LockMember::new(lock, Need::Required)
}

/// A lock without which a term continues while it cannot be acquired, but not while another
/// candidate is seen to hold it.
pub fn best_effort(lock: impl Lock) -> LockMember {
    LockMember::new(lock, Need::BestEffort)
}

fn single_locks(member: LockMember) -> Vec<LockMember> {
    let Some(parts) = member.lock.members() else { return vec![member] };
    let need = |part: &LockMember| match member.need {
        Need::Required => part.need,
        Need::BestEffort => Need::BestEffort,
    };
    parts.iter().map(|part| LockMember { need: need(part), ..part.clone() }).collect()
}

/// The lock that [`all_of`] creates. Candidates use its [`members`](Lock::members), never the lock
/// itself.
#[derive(Debug, Clone)]
pub struct MultiLock {
    members: Vec<LockMember>,
}

impl MultiLock {
    fn no_lock<T>(&self) -> Result<T, LockError> {
        let message = "a lock made of several is not asked itself: pass it to new_election() as it is, or ask its members";
        Err(LockError::new(LockErrorKind::Misconfigured, message))
    }
}

#[async_trait]
impl Lock for MultiLock {
    /// What all of them can do.
    fn capabilities(&self) -> Capabilities {
        let none = Capabilities {
            min_lease: Duration::ZERO,
            max_lease: Duration::MAX,
            can_read: true,
            empty_is_proof: true,
            expires_entries: true,
            reads_are_durable: true,
            max_identity_len: usize::MAX,
        };
        self.members.iter().map(|member| member.lock.capabilities()).fold(none, |a, b| {
            Capabilities {
                min_lease: a.min_lease.max(b.min_lease),
                max_lease: a.max_lease.min(b.max_lease),
                can_read: a.can_read && b.can_read,
                empty_is_proof: a.empty_is_proof && b.empty_is_proof,
                expires_entries: a.expires_entries && b.expires_entries,
                reads_are_durable: a.reads_are_durable && b.reads_are_durable,
                max_identity_len: a.max_identity_len.min(b.max_identity_len),
            }
        })
    }

    /// That of the first one that has one.
    fn identity(&self) -> Option<String> {
        self.members.iter().find_map(|member| member.lock.identity())
    }

    fn members(&self) -> Option<&[LockMember]> {
        Some(&self.members)
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        self.members.iter().try_for_each(|member| member.lock.check_name(name))
    }

    fn holds_many(&self) -> bool {
        self.members.iter().all(|member| member.lock.holds_many())
    }

    async fn read(&self, _: &str, _: Duration) -> Result<Reading, LockError> {
        self.no_lock()
    }

    async fn write(&self, _: &str, _: Write) -> Result<Revision, LockError> {
        self.no_lock()
    }

    async fn release(&self, _: &str, _: Release) -> Result<(), LockError> {
        self.no_lock()
    }

    /// On each of them.
    async fn check_release(&self, name: &str, timeout: Duration) -> Result<(), LockError> {
        for member in &self.members {
            member.lock.check_release(name, timeout).await?;
        }
        Ok(())
    }

    fn messages(&self) -> Option<&dyn Messages> {
        Some(self)
    }
}

#[async_trait]
impl Messages for MultiLock {
    fn carries_calls(&self) -> bool {
        self.members.iter().any(|member| member.lock.carries_calls())
    }

    /// On each of them that carries calls: a candidate need not reach all.
    async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        let call = |member: &LockMember| {
            let (lock, request) = (Arc::clone(&member.lock), request.clone());
            async move { lock.call_roll(name, request, within).await }
        };
        let mut answers = Vec::new();
        if request.is_for_leader() {
            // One after the other: a leader that hands over refuses the same request once more.
            for member in &self.members {
                let found = call(member).await;
                let is_answer = |info: &CandidateInfo| request.is_answered_by(info);
                let answered = found.as_ref().is_ok_and(|found| found.iter().any(is_answer));
                answers.push(found);
                if answered {
                    break;
                }
            }
        } else {
            answers = futures_util::future::join_all(self.members.iter().map(call)).await;
        }
        let (called, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        if let (true, Some(Err(error))) = (called.is_empty(), failed.into_iter().next()) {
            return Err(error);
        }
        Ok(distinct(called.into_iter().flatten().flatten()))
    }
}
