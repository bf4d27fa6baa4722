//! The elections whose objects the lock knows.

use object_store::UpdateVersion;

use super::election;
use crate::by_name::ByName;

/// An object as last seen.
pub(super) type Known = election::Known<UpdateVersion>;
/// One election.
pub(super) type Election = election::Election<UpdateVersion>;
/// Those of one bucket.
pub(super) type Elections = ByName<Election>;
