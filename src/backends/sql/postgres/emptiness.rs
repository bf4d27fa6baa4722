//! Elections without a row: on which history of the server they had none, and which campaigns know of it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::backends::sql::error::RequestError;
use crate::lock::{LockErrorKind, Nonce};

/// How many campaigns are told apart. Of more than these, all are taken for one that is not known.
const MOST: usize = 4096;

/// The history on which an election had no row, when that was last seen by any campaign of this lock.
#[derive(Debug, Default)]
pub(super) struct Emptiness(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    history: Option<String>,
    /// Whether it was another one before.
    changed: bool,
    /// The campaigns that have been refused since, and so have looked again.
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

    /// The history that a first write of a campaign rests on.
    ///
    /// # Errors
    /// Where it may rest on an earlier one, which another campaign of this lock has seen end: it has to look again.
    pub fn rests_on(&self, campaign: Nonce) -> Result<Option<String>, RequestError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may_be_old = state.changed && !state.refused.contains(&campaign.0);
        if may_be_old {
            if state.refused.len() < MOST {
                state.refused.insert(campaign.0);
            }
            let what = "another server has taken over since it was found empty";
            return Err(RequestError::new(LockErrorKind::Conflict, what));
        }
        Ok(state.history.clone())
    }
}

/// Campaigns by their nonces.
#[derive(Debug, Default)]
pub(super) struct Nonces(Mutex<HashSet<u64>>);

impl Nonces {
    pub fn add(&self, campaign: Nonce) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MOST {
            all.insert(campaign.0);
        }
    }

    /// Whether it is one of these, or may be.
    pub fn may_have(&self, campaign: Nonce) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.len() >= MOST || all.contains(&campaign.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_write_rests_on_a_look_of_its_own_campaign() {
        let [first, second] = [Nonce(1), Nonce(2)];
        let empty = Emptiness::default();
        let rests = |campaign| empty.rests_on(campaign).ok().flatten();
        empty.was_seen_on(Some("a/1".to_owned()));
        assert_eq!(rests(first).as_deref(), Some("a/1"));
        // Another campaign looks, and finds that another server has taken over.
        empty.was_seen_on(Some("a/2".to_owned()));
        assert_eq!(rests(first), None);
        assert_eq!(rests(first).as_deref(), Some("a/2"), "it has looked again");
        assert_eq!(rests(second), None);
        empty.was_seen_on(Some("a/3".to_owned()));
        assert_eq!(rests(first), None);
    }
}
