//! State shared by the clones of a lock.

use super::api::Objects;
use super::events::Recorder;
use super::known::ObjectState;
use super::record::RecordLocation;
use super::timing::LeaseTiming;
use crate::util::per_key::PerKey;

#[derive(Debug)]
pub(super) struct ResourceLockState {
    pub(super) objects: Objects,
    pub(super) location: RecordLocation,
    pub(super) api_version: &'static str,
    pub(super) timing: LeaseTiming,
    /// The object of every election; `None`: each object is named after its election.
    pub(super) object: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) elections: PerKey<ObjectState>,
    pub(super) recorder: Option<Recorder>,
}

impl ResourceLockState {
    /// Returns the name of the object that carries an election.
    pub(super) fn object_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.object.as_deref().unwrap_or(name)
    }

    /// Returns the same configuration without any known object.
    pub(super) fn clone_config(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            location: self.location,
            api_version: self.api_version,
            timing: self.timing,
            object: self.object.clone(),
            identity: self.identity.clone(),
            elections: PerKey::default(),
            recorder: self.recorder.as_ref().map(Recorder::clone_config),
        }
    }
}
