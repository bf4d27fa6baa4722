//! The lock: transactions on one key per election.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::client::Client;
use super::codec::{Origin, Value};
use super::foreign;
use super::messages::{Compare, KeyValue, PutRequest, RangeRequest, RequestOp, Txn, TxnRequest};
use crate::backends::hint_hub::{HintHub, guard};
use crate::backends::seen;
use crate::lock::checkpoint::check_no_checkpoint;
use crate::lock::{
    Capabilities, CheckpointStore, Content, ElectionNames, HintSink, Lock, LockAdmin, LockError,
    LockErrorKind, Reading, Release, Revision, Subscription, Write, check_plain_name,
};
use crate::time::timer::deadline_after;
use crate::util::per_key::PerKey;
use crate::util::since_unix_epoch;

/// What a write replaces: the revision of etcd that wrote it, and the value. The revision alone
/// may recur, once a snapshot was restored. Both together recur if no write followed: only the era
/// of the cluster shows then that later writes were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    revision: i64,
    value: Arc<[u8]>,
    era: u64,
}

/// A key as last seen.
pub(super) type Known = seen::Known<Version>;
/// State of one election.
pub(super) type Election = seen::SeenRevisions<Version>;

/// The maximum length of an election's name in bytes.
const MAX_NAME_LEN: usize = 1024;
/// The most keys that one response holds.
const PAGE: i64 = 500;
/// The most names that are listed.
const MAX_NAMES: usize = 1_000_000;

/// What a write does to an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Acquire,
    Renew,
    Release,
}

/// The lock in a cluster of etcd: see [`Etcd::lock`](super::Etcd::lock).
///
/// Cheap to clone. Clones share connections and one watch.
#[derive(Clone)]
pub struct EtcdLock {
    pub(super) inner: Arc<LockState>,
}

pub(super) struct LockState {
    pub client: Client,
    /// The prefix of all keys, with a slash at its end.
    pub prefix: String,
    max_lease: Duration,
    pub elections: PerKey<Election>,
    pub hub: HintHub<()>,
}

impl EtcdLock {
    pub(super) fn new(client: Client, prefix: &str, max_lease: Duration) -> Self {
        let inner = LockState {
            client,
            prefix: format!("{prefix}/"),
            max_lease,
            elections: PerKey::default(),
            hub: HintHub::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl Version {
    pub fn of(kv: &KeyValue, era: u64) -> Self {
        Self { revision: kv.mod_revision, value: kv.value.as_slice().into(), era }
    }

    /// Whether a key still has it.
    fn is_in(&self, kv: &KeyValue) -> bool {
        self.revision == kv.mod_revision && *self.value == *kv.value
    }
}

/// The revision of an entry: that of etcd that wrote it, or the one in the value, if that is
/// greater.
///
/// That of etcd grows with every write to the cluster, so a token is greater than those of all
/// earlier terms, also of one whose key was deleted and which the winner has not seen. The one in
/// the value is greater only where etcd's own was set back by a restored snapshot.
fn counted(in_value: Revision, of_etcd: i64) -> Revision {
    in_value.max(Revision(of_etcd.unsigned_abs()))
}

/// The end of the range of all keys with a prefix.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0] // all keys from there on
}

/// A read of one key.
pub(super) fn read_of(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

/// A write of one key.
pub(super) fn put_op(key: Vec<u8>, value: Vec<u8>) -> RequestOp {
    RequestOp { range: None, put: Some(PutRequest { key, value }) }
}

fn range_op(range: RangeRequest) -> RequestOp {
    RequestOp { range: Some(range), put: None }
}

impl LockState {
    pub fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    /// Describes the key of an election, as in `the key elections/my_app of etcd at h:2379`.
    pub fn describe(&self, name: &str) -> String {
        format!("the key {}{name} of etcd at {}", self.prefix, self.client.place())
    }

    /// The keys below that of an election, where the candidates of etcd's own elections are. The
    /// first of them is the [placeholder](foreign::PLACEHOLDER) of this election.
    pub fn below(&self, name: &str) -> (Vec<u8>, Vec<u8>) {
        let from = format!("{}{name}/", self.prefix).into_bytes();
        let to = after(&from);
        (from, to)
    }

    /// The value of a key with the revision that it counts by, and its meaning; `None` if it is no
    /// entry of an election.
    pub fn decode(kv: &KeyValue) -> Option<(Value, Content)> {
        let (mut value, content) = Value::decode(&kv.value).filter(|_| kv.lease == 0)?;
        value.revision = counted(value.revision, kv.mod_revision);
        Some((value, content))
    }

    fn found(
        &self,
        name: &str,
        election: &Election,
        before: &seen::Before<Version>,
        kv: &KeyValue,
        (origin, era): (Origin, u64),
    ) -> Result<Known, LockError> {
        let Some((value, content)) = Self::decode(kv) else {
            let what = match kv.lease {
                0 => {
                    "is not the entry of an election, or of a later version: upgrade, use another \
                     name, or delete it if no candidate uses it"
                }
                _ => "belongs to a lease, so another program wrote it: use another name",
            };
            let message = format!("{} {what}", self.describe(name));
            return Err(LockError::new(LockErrorKind::Misconfigured, message));
        };
        let number = value.revision.0.saturating_sub(1);
        let longest = self.max_lease;
        let content = match value.is_set_back(origin) {
            true => seen::set_back(content, longest),
            false => content,
        };
        Ok(election.found(before, Version::of(kv, era), number, content, longest))
    }

    async fn read(
        &self,
        name: &str,
        election: &Election,
        timeout: Duration,
    ) -> Result<Reading, LockError> {
        let found = self.fetch(name, election, deadline_after(timeout)).await;
        let found = found.map_err(|error| error.of_request("reading", name))?;
        Ok(Reading::without_proof(found.map(|known| known.record())))
    }

    async fn fetch(
        &self,
        name: &str,
        election: &Election,
        by: Instant,
    ) -> Result<Option<Known>, LockError> {
        let before = election.before();
        let (answer, era) = self.client.range(read_of(self.key(name)), by).await?;
        match answer.kvs.first() {
            Some(kv) => {
                let origin = self.client.origin_of(answer.header);
                self.found(name, election, &before, kv, (origin, era)).map(Some)
            }
            None => {
                election.forget(&before);
                Ok(None)
            }
        }
    }

    /// Reads a range of keys, page by page, until `take` returns `false`. With their values: etcd
    /// leaves out the lease of a key where it is asked for keys only. Returns the revision of the
    /// first page: every key of then that is still there was read.
    pub async fn scan(
        &self,
        mut from: Vec<u8>,
        to: Vec<u8>,
        by: Instant,
        mut take: impl FnMut(&KeyValue) -> bool,
    ) -> Result<i64, LockError> {
        let mut began_at = None;
        loop {
            let page = RangeRequest { range_end: to.clone(), limit: PAGE, ..read_of(from) };
            let (page, _) = self.client.range(page, by).await?;
            let began_at = *began_at.get_or_insert(page.header.unwrap_or_default().revision);
            let Some(last) = page.kvs.last().filter(|_| page.kvs.iter().all(&mut take)) else {
                return Ok(began_at);
            };
            if !page.more {
                return Ok(began_at);
            }
            from = last.key.clone();
            from.push(0);
        }
    }

    /// Writes a value over the expected one, or over nothing.
    async fn put(
        &self,
        name: &str,
        expected: Option<Revision>,
        value: Value,
        purpose: Purpose,
        by: Instant,
    ) -> Result<Revision, LockError> {
        let election = self.elections.get(name);
        let fetch = self.fetch(name, &election, by);
        let known = election.replaced(expected, fetch, || self.conflict(name)).await?;
        // Greater than all revisions that this process has seen, of the cluster too, also if that
        // was set back.
        let number = election.next_number(known.as_ref(), self.client.revision());
        let least = Revision(number.saturating_add(1));
        let value = value.with(least, since_unix_epoch(), self.client.origin());
        if !value.has_valid_revision() {
            let message =
                format!("{} has reached the last revision: use another name", self.describe(name));
            return Err(LockError::new(LockErrorKind::Misconfigured, message));
        }
        let key = self.key(name);
        let replaced = known.as_ref().map(|known| &known.version);
        let replaced_revision = replaced.map_or(0, |version| version.revision);
        let mut compare = vec![Compare::written_by(&key, replaced_revision)];
        compare.extend(replaced.map(|version| Compare::has_value(&key, &version.value)));
        let mut failure = vec![range_op(read_of(key.clone()))];
        if purpose == Purpose::Acquire {
            let (placeholder, _) = self.below(name);
            compare.push(Compare::has_value(&placeholder, foreign::PLACEHOLDER));
            failure.push(range_op(read_of(placeholder)));
        }
        let stored: Arc<[u8]> = value.encode().into();
        let success = vec![put_op(key, stored.to_vec())];
        let request = TxnRequest { compare, success, failure };
        let before = election.before();
        // When what it replaces was read.
        let current = self.client.seen().era;
        let read_in = replaced.map_or(current, |version| version.era);
        // A restored entry may not be the last one: it is read again. A renewal replaces its
        // holder's own entry, which nobody else writes over within its lease.
        if purpose != Purpose::Renew && read_in != current {
            return Err(self.conflict(name));
        }
        let (mut answer, mut era) = self.client.txn(request.clone(), by).await?;
        if foreign::lacks_placeholder(&answer) {
            self.place(name, by).await?;
            (answer, era) = self.client.txn(request, by).await?;
        }
        if !answer.succeeded {
            return Err(self.not_written(name, &election, &before, replaced, (&answer, era)));
        }
        // The whole transaction has one revision.
        let revision_of_etcd = answer.header.map_or(0, |header| header.revision);
        let revision = counted(least, revision_of_etcd);
        let number = revision.0.saturating_sub(1);
        let version = Version { revision: revision_of_etcd, value: stored, era };
        let Some(content) = value.content() else {
            let message = format!("{}: its new entry has no meaning", self.describe(name));
            return Err(LockError::new(LockErrorKind::Misconfigured, message));
        };
        if purpose == Purpose::Acquire && read_in != era {
            // It acquires nothing: a read finds the entry of an unknown holder.
            let content = seen::set_back(content, self.max_lease);
            election.learn(Known { version, number, revision, content });
            return Err(self.conflict(name));
        }
        election.learn(Known { version, number, revision, content });
        Ok(revision)
    }

    /// Writes the placeholder of an election that has none, unless a candidate of etcd's is there,
    /// which leads as long as it likes. So where there is one, all candidates of etcd's are
    /// younger, and wait for it.
    ///
    /// # Errors
    /// [`Misconfigured`](LockErrorKind::Misconfigured): a candidate is there.
    async fn place(&self, name: &str, by: Instant) -> Result<(), LockError> {
        let (from, to) = self.below(name);
        let create_if = |condition| TxnRequest {
            compare: vec![Compare::written_by(&from, 0), condition],
            success: vec![put_op(from.clone(), foreign::PLACEHOLDER.to_vec())],
            failure: Vec::new(),
        };
        let unleased = create_if(Compare::unleased(from.clone(), to.clone()));
        if self.client.txn(unleased, by).await?.0.succeeded {
            return Ok(());
        }
        // It is there by now, or there are keys of leases: those of nested names do not matter.
        let mut refusal = None;
        let scan = self.scan(from.clone(), to.clone(), by, |kv| {
            refusal = foreign::refusal(name, &from, kv);
            refusal.is_none()
        });
        let read_at = scan.await?;
        if let Some(message) = refusal {
            return Err(LockError::new(LockErrorKind::Misconfigured, message));
        }
        // Every key that is there by then was read. It is sent at once, on the same connection: no
        // cluster is restored in between, with other keys of those revisions.
        let unchanged = create_if(Compare::created_until(from.clone(), to, read_at));
        self.client.txn(unchanged, by).await.map(drop)
    }

    /// Why a transaction wrote nothing, by what it read instead.
    fn not_written(
        &self,
        name: &str,
        election: &Election,
        before: &seen::Before<Version>,
        replaced: Option<&Version>,
        (answer, era): (&Txn, u64),
    ) -> LockError {
        let first = answer.responses.first().and_then(|response| response.range.as_ref());
        let present = first.and_then(|range| range.kvs.first());
        if let Some(kv) = present.filter(|kv| !replaced.is_some_and(|replaced| replaced.is_in(kv)))
        {
            // An entry that cannot be read is reported by the read that follows.
            let origin = self.client.origin_of(answer.header);
            let _ = self.found(name, election, before, kv, (origin, era));
            return self.conflict(name);
        }
        // All that is left of the condition is the placeholder.
        let is_taken = foreign::is_placeholder_taken(answer);
        if is_taken && present.is_some() == replaced.is_some() {
            let what = "is of another program: delete it, or use another name";
            let message = format!("{} {what}", self.describe(&format!("{name}/")));
            return LockError::new(LockErrorKind::Misconfigured, message);
        }
        self.conflict(name)
    }

    fn conflict(&self, name: &str) -> LockError {
        let message = format!("{} was written by another client", self.describe(name));
        LockError::new(LockErrorKind::Conflict, message)
    }
}

#[async_trait]
impl Lock for EtcdLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::of_records(self.inner.max_lease)
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        check_plain_name(name, MAX_NAME_LEN)?;
        if name.ends_with('/') {
            return Err("the name of an election must not end with a slash".to_owned());
        }
        check_no_checkpoint(name)
    }

    async fn read(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, &self.inner.elections.get(name), timeout).await
    }

    async fn write(&self, name: &str, write: Write) -> Result<Revision, LockError> {
        let by = deadline_after(write.timeout);
        let purpose = if write.mark.token.is_none() { Purpose::Acquire } else { Purpose::Renew };
        let put = self.inner.put(name, write.expected, Value::held(&write), purpose, by);
        put.await.map_err(|error| error.of_request("write", name))
    }

    async fn release(&self, name: &str, release: Release) -> Result<(), LockError> {
        let by = deadline_after(release.timeout);
        let expected = Some(release.expected);
        let put = self.inner.put(name, expected, Value::released(&release), Purpose::Release, by);
        put.await.map(drop).map_err(|error| error.of_request("release", name))
    }

    /// A transaction under a condition that no key fulfils: the cluster checks the permissions of
    /// all its conditions and branches. Where there is no placeholder, the first acquisition also
    /// writes it, and reads all keys below.
    async fn check_release(&self, name: &str, timeout: Duration) -> Result<(), LockError> {
        let failed = |error: LockError| error.of_request("check of the release", name);
        let (key, by) = (self.inner.key(name), deadline_after(timeout));
        let (placeholder, to) = self.inner.below(name);
        let found = self.inner.client.range(read_of(placeholder.clone()), by).await;
        let (found, _) = found.map_err(failed)?;
        let mut compare = vec![Compare::written_by(&key, i64::MAX)];
        let mut success = vec![put_op(key, Vec::new())];
        if !found.kvs.iter().any(foreign::is_placeholder) {
            compare.push(Compare::unleased(placeholder.clone(), to));
            success.push(put_op(placeholder, Vec::new()));
        }
        let request = TxnRequest { compare, success, failure: Vec::new() };
        match self.inner.client.txn(request, by).await.map_err(failed)?.0.succeeded {
            false => Ok(()),
            true => {
                let what = "the server ignores the condition of a transaction";
                Err(LockError::new(LockErrorKind::Misconfigured, what))
            }
        }
    }

    fn checkpoints(&self) -> Option<&dyn CheckpointStore> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    fn subscribe(&self, name: &str, sink: HintSink) -> Subscription {
        guard::subscribe(&self.inner, name, sink)
    }
}

#[async_trait]
impl ElectionNames for EtcdLock {
    fn lock(&self) -> &dyn Lock {
        self
    }

    async fn peek(&self, name: &str, timeout: Duration) -> Result<Reading, LockError> {
        self.inner.read(name, &self.inner.elections.peek(name), timeout).await
    }

    async fn election_names(&self, timeout: Duration) -> Result<Vec<String>, LockError> {
        let by = deadline_after(timeout);
        let prefix = &self.inner.prefix;
        let (from, to) = (prefix.clone().into_bytes(), after(prefix.as_bytes()));
        let mut names = Vec::new();
        let scan = self.inner.scan(from, to, by, |kv| {
            let key = std::str::from_utf8(&kv.key).ok();
            let name = key.and_then(|key| key.strip_prefix(prefix.as_str()));
            let name = name.filter(|name| self.check_name(name).is_ok());
            names.extend(name.filter(|_| LockState::decode(kv).is_some()).map(str::to_owned));
            names.len() < MAX_NAMES
        });
        scan.await.map_err(|error| error.of_request("listing", "elections"))?;
        Ok(names)
    }
}

partial_debug!(EtcdLock, self, at: self.inner.client.place(), prefix: self.inner.prefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_by_the_greater_revision() {
        for (value, of_etcd, counts) in [(57, 60, 60), (57, 57, 57), (57, 9, 57)] {
            assert_eq!(counted(Revision(value), of_etcd), Revision(counts));
        }
    }

    #[test]
    fn a_range_holds_the_keys_with_its_prefix() {
        assert_eq!(after(b"elections/"), b"elections0");
        assert_eq!(after(b"a\xff"), b"b");
        assert_eq!(after(b"\xff"), b"\0");
    }
}
