//! The locks that a sentinel releases on, with a connection of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent::lock::Lock;
use incumbent::protocol::{CrashOutcome, RegisteredTerm};
use incumbent::sentinel::{check_registered, check_release, release_crashed};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tracing::warn;

use crate::error::{CliError, Code};
use crate::lock::{Attempts, LockArgs};

type OpenedLocks = Arc<OnceCell<Vec<Arc<dyn Lock>>>>;

/// The most locks that stay open while nothing is asked of them.
const MAX_OPENED: usize = 256;

/// The locks of the flags, opened when they are first needed.
pub struct SentinelLocks {
    args: LockArgs,
    object: Option<String>,
    /// Whether a child of this process is not taken for one of the work that it watches.
    may_run_programs: bool,
    /// By election, where each one has a lock of its own.
    opened: Mutex<HashMap<String, OpenedLocks>>,
}

impl SentinelLocks {
    /// `object`: as with `--object`.
    pub fn new(args: LockArgs, object: Option<String>) -> Self {
        Self { args, object, may_run_programs: true, opened: Mutex::default() }
    }

    /// Of a process that takes each of its children for one of the work that it watches.
    pub fn without_programs(self) -> Self {
        Self { may_run_programs: false, ..self }
    }

    /// The locks of an election: almost always one. Waits while the server is unreachable.
    async fn of(&self, election: &str) -> Result<Vec<Arc<dyn Lock>>, CliError> {
        let key = if self.args.is_per_election() { election } else { "" };
        let cell = {
            let mut opened = self.opened.lock();
            if opened.len() >= MAX_OPENED && !opened.contains_key(key) {
                opened.retain(|_, cell| Arc::strong_count(cell) > 1);
            }
            Arc::clone(opened.entry(key.to_owned()).or_default())
        };
        let open = || async {
            if !self.may_run_programs && self.args.runs_a_program().await {
                let why = "its kubeconfig runs a program for the credentials (exec), and the guard \
                           of COMMAND may not";
                return Err(CliError::new(Code::Usage, why));
            }
            let on_retry = |why: &CliError| warn!(error = %why, "the lock cannot be opened yet");
            let lock = self
                .args
                .open_existing(election, self.object.clone(), Attempts::UnlessTimeout, on_retry)
                .await?;
            Ok::<_, CliError>(match lock.members() {
                None => vec![lock],
                Some(members) => members.iter().map(|member| Arc::clone(member.lock())).collect(),
            })
        };
        cell.get_or_try_init(open).await.cloned()
    }

    /// Checks that the entry of a term can be released. Returns whether there is one, or the
    /// problem.
    pub async fn check_term(&self, election: &str, term: RegisteredTerm) -> Result<bool, String> {
        let locks = self.of(election).await.map_err(|why| why.to_string())?;
        let found = join_all(locks.iter().map(|lock| check_registered(&**lock, election, term)));
        let mut problem = None;
        for found in found.await {
            match found {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => problem = Some(why),
            }
        }
        problem.map_or(Ok(false), Err)
    }

    /// Checks that the lock responds, and would let this election be released. Returns the problem.
    pub async fn check_lock(&self, election: &str) -> Result<(), String> {
        for lock in self.of(election).await.map_err(|why| why.to_string())? {
            let read = lock.read(election, Duration::from_secs(2)).await;
            read.map_err(|error| error.to_string())?;
            check_release(&*lock, election).await?;
        }
        Ok(())
    }

    /// Releases the entry of a term whose process is dead, with all its work. Tries for `limit`.
    pub async fn release(
        &self,
        election: &str,
        term: RegisteredTerm,
        limit: Duration,
    ) -> CrashOutcome {
        let released = async {
            let locks = match self.of(election).await {
                Ok(locks) => locks,
                Err(why) => return CrashOutcome::Failed(why.to_string()),
            };
            // A nonce is of one lock, so at most one of them has the entry.
            let each = locks.iter().map(|lock| release_crashed(&**lock, election, term, limit));
            let outcomes = join_all(each).await;
            let rank = |outcome: &CrashOutcome| match outcome {
                CrashOutcome::Released => 2,
                CrashOutcome::Failed(_) => 1,
                CrashOutcome::NotHeld => 0,
            };
            outcomes.into_iter().max_by_key(rank).unwrap_or(CrashOutcome::NotHeld)
        };
        match tokio::time::timeout(limit, released).await {
            Ok(outcome) => outcome,
            Err(_) => CrashOutcome::Failed("the lock cannot be opened".to_owned()),
        }
    }
}
