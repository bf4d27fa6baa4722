//! What the creates of electors rest on: the server history on which an election was last read, and
//! the electors that know it.

use std::collections::HashSet;
use std::sync::Mutex;

use tokio::time::Instant;

use crate::lock::{LockError, LockErrorKind, Nonce, Revision};
use crate::util::locked;

/// The maximum number of electors that are distinguished. Beyond it, another one counts as unknown
/// again, and reads once more.
const MAX_ELECTORS: usize = 4096;

/// The history on which any elector of this lock last read an election.
#[derive(Debug, Default)]
pub(super) struct Basis(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    history: Option<String>,
    /// Whether the history has changed.
    changed: bool,
    /// The electors that have been refused since, and so have read again.
    refused: HashSet<u64>,
    /// An entry of before the server's start, and until when its holder may lead, or another one
    /// whose writes are lost.
    held: Option<(Revision, Instant)>,
}

impl Basis {
    pub fn was_read_on(&self, history: Option<String>, held: Option<(Revision, Instant)>) {
        let mut state = locked(&self.0);
        if state.history.is_some() && state.history != history {
            state.changed = true;
            state.refused.clear();
        }
        state.history = history;
        state.held = held;
    }

    /// Returns the history that the create of an elector relies on.
    ///
    /// # Errors
    /// If the elector may rely on an earlier history, whose end another elector of this lock has
    /// seen: it has to read again. Or if the entry that it replaces may still be that of a leader.
    pub fn rests_on(
        &self,
        campaign: Nonce,
        expected: Option<Revision>,
    ) -> Result<Option<String>, LockError> {
        let mut state = locked(&self.0);
        let may_be_old = state.changed && !state.refused.contains(&campaign.0);
        if may_be_old {
            if state.refused.len() >= MAX_ELECTORS
                && let Some(other) = state.refused.iter().next().copied()
            {
                state.refused.remove(&other);
            }
            state.refused.insert(campaign.0);
            let what = "the server was started anew, or another one took over, since the last read";
            return Err(LockError::new(LockErrorKind::Conflict, what));
        }
        match state.held {
            Some((held, until)) if Some(held) == expected && Instant::now() < until => {
                let what = "the server was started anew, and may lack writes: a lease after its start is waited for";
                Err(LockError::new(LockErrorKind::Unavailable, what))
            }
            _ => Ok(state.history.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_create_relies_on_a_read_by_its_own_elector() {
        let [first, second] = [Nonce(1), Nonce(2)];
        let basis = Basis::default();
        let rests = |campaign| basis.rests_on(campaign, None).ok().flatten();
        basis.was_read_on(Some("a/1".to_owned()), None);
        assert_eq!(rests(first).as_deref(), Some("a/1"));
        // Another elector reads, and finds that another server has taken over.
        basis.was_read_on(Some("a/2".to_owned()), None);
        assert_eq!(rests(first), None);
        assert_eq!(rests(first).as_deref(), Some("a/2"), "it has read again");
        assert_eq!(rests(second), None);
        basis.was_read_on(Some("a/3".to_owned()), None);
        assert_eq!(rests(first), None);
    }

    #[test]
    fn each_of_any_number_of_electors_is_refused_once() {
        let basis = Basis::default();
        basis.was_read_on(Some("a/1".to_owned()), None);
        basis.was_read_on(Some("a/2".to_owned()), None);
        for nonce in (0..).take(MAX_ELECTORS * 2).map(Nonce) {
            assert!(basis.rests_on(nonce, None).is_err());
            assert!(basis.rests_on(nonce, None).is_ok());
        }
        assert!(locked(&basis.0).refused.len() <= MAX_ELECTORS);
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_of_before_the_start_is_replaced_after_a_lease_alone() {
        let basis = Basis::default();
        let until = Instant::now() + Duration::from_secs(5);
        basis.was_read_on(Some("a/1".to_owned()), Some((Revision(7), until)));
        let kind = |expected| basis.rests_on(Nonce(1), expected).map_err(|error| error.kind());
        assert_eq!(kind(Some(Revision(7))), Err(LockErrorKind::Unavailable));
        assert!(kind(Some(Revision(8))).is_ok() && kind(None).is_ok());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(kind(Some(Revision(7))).is_ok());
    }
}
