//! What the driver reports of the lock and of the leader.

use tracing::{debug, info, warn};

use super::Driver;
use crate::election::change::Change;
use crate::protocol::{Leader, LockFailure};
use crate::util::text::escape_line;

/// The most bytes of another candidate's identity in a log line.
const MAX_IDENTITY_SHOWN: usize = 128;

impl Driver {
    pub(super) fn set_lock_failure(&self, failure: Option<LockFailure>) {
        self.telemetry().lock_up(failure.is_none());
        let mut term = None;
        self.shared().update(|status| {
            status.lock_failure.clone_from(&failure);
            term.clone_from(&status.term);
        });
        if let Some(term) = term {
            term.set_lock_failure(failure);
        }
    }

    pub(super) fn leader_changed(&mut self, lock: usize, leader: Option<Leader>) {
        match &leader {
            Some(leader) if leader.is_me => {
                let now = self.now();
                let cool_down = self.machine.cool_down().filter(|(at, _)| *at > now);
                match cool_down {
                    Some((at, reason)) => {
                        let wait = at.saturating_since(now);
                        info!(?wait, %reason, "cooling down before leading");
                    }
                    None => debug!("holding the entry"),
                }
            }
            Some(leader) => {
                let identity = escape_line(&leader.identity, MAX_IDENTITY_SHOWN);
                info!(leader = %identity, token = ?leader.token.map(|t| t.0), "observed leader");
                let with_choria = self.machine.settings().with_choria;
                let capabilities = self.machine.capabilities(lock);
                let expires = capabilities.is_some_and(|lock| lock.expires_entries);
                if leader.token.is_none() && expires && !with_choria {
                    warn!(
                        leader = %identity,
                        "entry without a mark: waiting for the maximum lease. If Choria's candidates take part, set with_choria() (--with-choria, ?with-choria); else find what writes to the entry"
                    );
                }
            }
            None => debug!("no leader"),
        }
        self.vacant_since = match leader {
            Some(ref leader) if !leader.is_me || self.current().is_some() => None,
            _ => self.vacant_since.or_else(|| Some(self.now())),
        };
        self.shared().update(|status| status.leader.clone_from(&leader));
        self.shared().publish(Change::Leader(leader));
    }
}
