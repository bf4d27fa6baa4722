//! Elections without a row: the server history on which they had none, and the electors that know
//! it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::lock::{LockError, LockErrorKind, Nonce};

/// The maximum number of electors that are distinguished. Beyond it, every elector counts as an
/// unknown one.
const MAX_ELECTORS: usize = 4096;

/// The history on which an election had no row when any elector of this lock last read it.
#[derive(Debug, Default)]
pub(super) struct Emptiness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    history: Option<String>,
    /// Whether the history has changed.
    changed: bool,
    /// The electors that have been refused since, and so have read again.
    refused: HashSet<u64>,
}

impl Emptiness {
    pub fn was_seen_on(&self, history: Option<String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.history.is_some() && state.history != history {
            state.changed = true;
            state.refused.clear();
        }
        state.history = history;
    }

    /// Returns the history that the first write of an elector relies on.
    ///
    /// # Errors
    /// If the elector may rely on an earlier history, whose end another elector of this lock has
    /// seen: it has to read again.
    pub fn rests_on(&self, campaign: Nonce) -> Result<Option<String>, LockError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may_be_old = state.changed && !state.refused.contains(&campaign.0);
        if may_be_old {
            if state.refused.len() < MAX_ELECTORS {
                state.refused.insert(campaign.0);
            }
            let what =
                "the server was started anew, or another one took over, since it was found empty";
            return Err(LockError::new(LockErrorKind::Conflict, what));
        }
        Ok(state.history.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_write_relies_on_a_read_by_its_own_elector() {
        let [first, second] = [Nonce(1), Nonce(2)];
        let empty = Emptiness::default();
        let rests = |campaign| empty.rests_on(campaign).ok().flatten();
        empty.was_seen_on(Some("a/1".to_owned()));
        assert_eq!(rests(first).as_deref(), Some("a/1"));
        // Another elector reads, and finds that another server has taken over.
        empty.was_seen_on(Some("a/2".to_owned()));
        assert_eq!(rests(first), None);
        assert_eq!(rests(first).as_deref(), Some("a/2"), "it has read again");
        assert_eq!(rests(second), None);
        empty.was_seen_on(Some("a/3".to_owned()));
        assert_eq!(rests(first), None);
    }
}
