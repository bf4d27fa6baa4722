//! What the clones of a lock share.

use super::api::Objects;
use super::events::Recorder;
use super::known::ObjectState;
use super::record::RecordLocation;
use super::timing::LeaseTiming;
use crate::util::per_key::PerKey;

#[derive(Debug)]
pub(super) struct ResourceLockState {
    pub(super) objects: Objects,
    pub(super) place: RecordLocation,
    pub(super) api_version: &'static str,
    pub(super) timing: LeaseTiming,
    /// The object of every election, where it is not named after the election.
    pub(super) object: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) elections: PerKey<ObjectState>,
    pub(super) recorder: Option<Recorder>,
}

impl ResourceLockState {
    /// The object that carries an election.
    pub(super) fn object_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.object.as_deref().unwrap_or(name)
    }

    /// The same description, with nothing known yet.
    pub(super) fn another(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            place: self.place,
            api_version: self.api_version,
            timing: self.timing,
            object: self.object.clone(),
            identity: self.identity.clone(),
            elections: PerKey::default(),
            recorder: self.recorder.as_ref().map(Recorder::another),
        }
    }
}
