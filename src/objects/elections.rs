//! The elections whose objects the lock knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::UpdateVersion;

use super::election;

/// An object as last seen.
pub(super) type Known = election::Known<UpdateVersion>;
/// One election.
pub(super) type Election = election::Election<UpdateVersion>;

/// The elections of one bucket.
#[derive(Debug, Default)]
pub(super) struct Elections(Mutex<HashMap<Arc<str>, Arc<Election>>>);

impl Elections {
    pub(super) fn get(&self, name: &str) -> Arc<Election> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(election) = all.get(name) {
            return Arc::clone(election);
        }
        let election = Arc::<Election>::default();
        all.insert(Arc::from(name), Arc::clone(&election));
        election
    }
}
