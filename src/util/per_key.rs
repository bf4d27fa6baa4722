//! What a lock keeps for each election.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::util::locked;

/// One `T` per election, created at its first use, and kept while candidates take part: one that
/// forgot what it has seen would believe an older state. The names come from the program, and not
/// from the lock, so there are no more of them than it asks for: who lists the elections of a lock
/// [peeks](Self::peek).
#[derive(Debug)]
pub(crate) struct PerKey<T>(Mutex<HashMap<Arc<str>, Arc<T>>>);

impl<T: Default> PerKey<T> {
    pub(crate) fn get(&self, name: &str) -> Arc<T> {
        let mut all = locked(&self.0);
        if let Some(one) = all.get(name) {
            return Arc::clone(one);
        }
        let one = Arc::<T>::default();
        all.insert(Arc::from(name), Arc::clone(&one));
        one
    }

    /// The one of an election, else a new one that is not kept.
    #[allow(dead_code, reason = "some locks use it")]
    pub(crate) fn peek(&self, name: &str) -> Arc<T> {
        locked(&self.0).get(name).cloned().unwrap_or_default()
    }
}

impl<T> PerKey<T> {
    pub(crate) fn remove(&self, name: &str) {
        locked(&self.0).remove(name);
    }
}

impl<T> Default for PerKey<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
