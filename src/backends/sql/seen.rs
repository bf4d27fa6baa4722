//! The newest revisions that this process has seen. An older one shows that a backup was restored,
//! also after any time, so none is forgotten. There is one for each election that the program asked
//! for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(super) struct NewestRevisions(Mutex<HashMap<String, u64>>);

impl NewestRevisions {
    /// Returns the greatest revision of an election that was seen; zero before the first.
    pub fn newest(&self, name: &str) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(name).copied().unwrap_or_default()
    }

    pub fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Records a revision, and returns the greatest one that was seen.
    pub fn see(&self, name: &str, revision: u64) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = all.entry(name.to_owned()).or_default();
        *newest = revision.max(*newest);
        *newest
    }
}
