//! The lock: conditional writes on one object per election.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use prost::Message;
use tokio::time::Instant;

use super::codec;
use super::race_entry::{RaceEntry, Timestamp};
use super::store::{Store, no_such_version};
use crate::backends::seen;
use crate::backends::vimeo_timing::VimeoTiming;
use crate::lock::checkpoint::check_no_checkpoint;
use crate::lock::codec::mark::EncodedMark;
use crate::lock::{
    Capabilities, CheckpointStore, ElectionNames, Lock, LockAdmin, LockError, LockErrorKind,
    Reading, Release, Revision, Write, check_not_empty,
};
use crate::time::timer::deadline_after;
use crate::time::timing::whole_millis;
use crate::util::per_key::PerKey;
use crate::util::{locked, since_unix_epoch};

/// An object as last seen.
type Known = seen::Known<UpdateVersion>;
/// State of one election.
type Election = seen::SeenRevisions<UpdateVersion>;

/// The greatest number of a write: Go's candidates count in an `int64`.
const LAST_NUMBER: u64 = i64::MAX.cast_unsigned();

/// The lock on one object per election: see [`Bucket::lock`](super::Bucket::lock).
///
/// Cheap to clone. Clones share their knowledge of the objects.
#[derive(Clone)]
pub struct ObjectStorageLock {
    pub(super) inner: Arc<LockState>,
}

pub(super) struct LockState {
    pub(super) store: Store,
    prefix: String,
    terms: VimeoTiming,
    /// The last object written before the store was known to check conditions: it exists.
    unchecked: Mutex<Option<UpdateVersion>>,
    elections: PerKey<Election>,
}

impl ObjectStorageLock {
    pub(super) fn new(store: Store, prefix: String, terms: VimeoTiming) -> Self {
        let (unchecked, elections) = (Mutex::default(), PerKey::<Election>::default());
        Self { inner: Arc::new(LockState { store, prefix, terms, unchecked, elections }) }
    }
}

impl LockState {
    fn path(&self, name: &str) -> Result<Path, String> {
        Path::parse(format!("{}{name}", self.prefix)).map_err(|error| error.to_string())
    }

    pub(super) fn path_of(&self, name: &str) -> Result<Path, LockError> {
        self.path(name).map_err(|why| LockError::new(LockErrorKind::Misconfigured, why))
    }

    async fn read(
        &self,
        name: &str,
        election: &Election,
        timeout: Duration,
    ) -> Result<Reading, LockError> {
        let path = self.path_of(name)?;
        let found = self.fetch(election, &path, deadline_after(timeout)).await?;
        Ok(Reading::without_proof(found.map(|known| known.record())))
    }

    async fn fetch(
        &self,
        election: &Election,
        path: &Path,
        by: Instant,
    ) -> Result<Option<Known>, LockError> {
        let before = election.before();
        let Some((version, body)) = self.store.get(path, by).await? else {
            election.forget(&before);
            return Ok(None);
        };
        let entry = RaceEntry::decode(&*body).map_err(|why| {
            self.unusable(path, &format!("is not the entry of an election: {why}"))
        })?;
        let content = codec::content(&entry, self.terms, SystemTime::now());
        let (number, longest) = (entry.election_number, self.terms.longest);
        Ok(Some(election.found(&before, version, number, content, longest)))
    }

    /// Writes an entry over the expected one.
    async fn put(
        &self,
        name: &str,
        expected: Option<Revision>,
        mut entry: RaceEntry,
        by: Instant,
    ) -> Result<Revision, LockError> {
        let (path, election) = (self.path_of(name)?, self.elections.get(name));
        let conflict = || {
            let message = format!("{} was written by another client", self.store.describe(&path));
            LockError::new(LockErrorKind::Conflict, message)
        };
        let fetch = self.fetch(&election, &path, by);
        let known = election.replaced(expected, fetch, conflict).await?;
        let number = election.next_number(known.as_ref(), whole_millis(since_unix_epoch()));
        if number >= LAST_NUMBER {
            return Err(
                self.unusable(&path, "has reached the last number: use another election name")
            );
        }
        entry.election_number = number;
        let content = codec::content(&entry, self.terms, SystemTime::now());
        let body = Bytes::from(entry.encode_to_vec());
        let replaced = known.as_ref().map(|known| &known.version);
        // An earlier attempt has written this object, and had no time for both checks. Checking
        // first lets slow stores finish the checks.
        if !self.store.is_known_to_check()
            && replaced.is_some()
            && *locked(&self.unchecked) == replaced.cloned()
        {
            let tried = self.check_conditions(&path, number, by).await;
            tried.map_err(|error| match error.kind() {
                LockErrorKind::Misconfigured => error,
                _ => LockError::new(LockErrorKind::Unavailable, error.to_string()),
            })?;
        }
        let version = self.store.put(&path, replaced, &body, by).await?;
        if !self.store.is_known_to_check() {
            *locked(&self.unchecked) = Some(version.clone());
            self.check_conditions(&path, number, by).await?;
        }
        let revision = Revision(number.saturating_add(1));
        election.learn(Known { version, number, revision, content });
        Ok(revision)
    }

    /// Checks that the store respects conditions: a store that ignores them would elect every
    /// candidate.
    ///
    /// The two writes name no holder. Should one of them arrive late, after another client has
    /// deleted the object, it must not restore an entry that others have seen, for the same content
    /// has the same ETag.
    async fn check_conditions(
        &self,
        path: &Path,
        number: u64,
        by: Instant,
    ) -> Result<(), LockError> {
        let left = self.terms.expiry(self.terms.longest.saturating_mul(2));
        let term_expiry = Some(Timestamp::at(SystemTime::now(), left));
        let entry = RaceEntry { election_number: number, term_expiry, ..RaceEntry::default() };
        let body = Bytes::from(entry.encode_to_vec());
        self.store.check_conditions(path, &body, by).await
    }

    fn unusable(&self, path: &Path, what: &str) -> LockError {
        let message = format!("{} {what}", self.store.describe(path));
        LockError::new(LockErrorKind::Misconfigured, message)
    }
}

#[async_trait]
impl Lock for ObjectStorageLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::of_records(self.inner.terms.longest)
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_not_empty(name)?;
        let path = self.inner.path(name)?;
        let length = path.as_ref().len();
        if path.as_ref() != format!("{}{name}", self.inner.prefix) {
            return Err("the name of an object must not begin or end with a slash".to_owned());
        }
        check_no_checkpoint(name)?;
        if length > 1024 {
            return Err(format!(
                "the name of an object is limited to 1024 bytes, and this one has {length}"
            ));
        }
        Ok(())
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, &self.inner.elections.get(name), timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let by = deadline_after(write.timeout);
        let advertisement = write.advertisement.as_deref();
        let entry = RaceEntry {
            leader_id: write.identity.to_string(),
            host_port: codec::host_port(advertisement),
            // The clock is read before the write is sent, as for the writer's own deadline.
            term_expiry: Some(Timestamp::at(SystemTime::now(), self.inner.terms.expiry(write.ttl))),
            mark: codec::mark(EncodedMark::held(&write.mark, advertisement)),
            ..RaceEntry::default()
        };
        self.inner.put(name, write.expected, entry, by).await
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let by = deadline_after(release.timeout);
        // Go's candidates do not recognize a release, but take an entry whose term is over.
        let left = self.inner.terms.expiry(release.left);
        let entry = RaceEntry {
            term_expiry: Some(Timestamp::at(SystemTime::now(), left)),
            mark: codec::mark(EncodedMark::released(
                release.by,
                release.left,
                release.cause,
                release.to,
                release.pause,
            )),
            ..RaceEntry::default()
        };
        self.inner.put(name, Some(release.expected), entry, by).await.map(drop)
    }

    /// Writes an object under a condition that no object fulfils. Where there is an entry, its
    /// writer has checked that the store respects conditions.
    async fn check_release(&self, name: &str, timeout: Duration) -> Result<(), LockError> {
        let (by, path) = (deadline_after(timeout), self.inner.path_of(name)?);
        if self.inner.store.get(&path, by).await?.is_none() {
            return Ok(());
        }
        match self.inner.store.put(&path, Some(&no_such_version()), &Bytes::new(), by).await {
            Err(error) if error.kind() == LockErrorKind::Conflict => Ok(()),
            written => written.map(drop),
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }
}

#[async_trait]
impl ElectionNames for ObjectStorageLock {
    fn lock(&self) -> &dyn Lock {
        self
    }

    async fn peek(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, &self.inner.elections.peek(name), timeout).await
    }

    /// Returns the objects of the folder, without those in its subfolders.
    async fn election_names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let by = deadline_after(timeout);
        self.inner.store.list(&self.inner.prefix, by).await
    }
}

partial_debug!(ObjectStorageLock, self, bucket: self.inner.store, prefix: self.inner.prefix);
