//! The value of an election's key, as JSON that a person can read in `etcdctl get`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::codec::mark::{DecodedMark, EncodedMark, identity};
use crate::lock::codec::parse_hex;
use crate::lock::{Content, Entry, Release, Revision, Write};
use crate::time::timing::whole_millis;

/// The version of the format.
const CURRENT: u32 = 1;
/// No revision of an entry is as great: etcd's own, which they follow, never come near, and one
/// that another program made up must leave room for those that follow.
const MAX_REVISION: u64 = 1 << 62;
/// The most bytes of a value that are read.
const MAX_VALUE_LEN: usize = 64 * 1024;

/// The cluster that a response came from, and its term of Raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Origin {
    pub cluster_id: u64,
    pub raft_term: u64,
}

/// A value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Value {
    incumbent: u32,
    /// The least revision of this write, which counts by that of etcd if that is greater. It is in
    /// the value since etcd's own revisions decrease when a snapshot is restored.
    pub revision: Revision,
    /// The cluster that it was written in, and the term of Raft that its writer knew of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cluster: String,
    #[serde(default)]
    raft_term: u64,
    /// When it was written, by the clock of its writer: for people.
    #[serde(default)]
    written_ms: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    identity: String,
    #[serde(flatten)]
    mark: EncodedMark,
}

impl Value {
    pub fn held(write: &Write) -> Self {
        let mark = EncodedMark::held(&write.mark, write.advertisement.as_deref());
        Self::of(write.identity.to_string(), mark)
    }

    pub fn released(release: &Release) -> Self {
        let Release { by, left, cause, to, pause, .. } = *release;
        Self::of(String::new(), EncodedMark::released(by, left, cause, to, pause))
    }

    fn of(identity: String, mark: EncodedMark) -> Self {
        let (revision, cluster) = (Revision(0), String::new());
        Self { incumbent: CURRENT, revision, cluster, raft_term: 0, written_ms: 0, identity, mark }
    }

    /// The value of the write with at least this revision, at this time since the Unix epoch.
    /// `origin`: of the last response.
    pub fn with(self, revision: Revision, time: Duration, origin: Origin) -> Self {
        let written_ms = whole_millis(time);
        let Origin { cluster_id, raft_term } = origin;
        // 0: no cluster has responded yet.
        let cluster = Some(cluster_id).filter(|id| *id != 0);
        let cluster = cluster.map_or_else(String::new, |id| format!("{id:016x}"));
        Self { revision, written_ms, cluster, raft_term, ..self }
    }

    /// Whether it may have replaced later values, as one of a restored snapshot has. `origin`: of
    /// the response that shows it. A cluster that continues never has a smaller term.
    pub fn is_set_back(&self, origin: Origin) -> bool {
        let cluster = parse_hex(&self.cluster).unwrap_or(origin.cluster_id);
        cluster != origin.cluster_id || self.raft_term > origin.raft_term
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // has string keys only
    }

    /// Decodes what anybody may have written, and its meaning; `None` if it is no value of this
    /// format.
    pub fn decode(value: &[u8]) -> Option<(Self, Content)> {
        let value = Some(value).filter(|value| value.len() <= MAX_VALUE_LEN)?;
        let value: Self = serde_json::from_slice(value).ok()?;
        let is_ours = value.incumbent == CURRENT && value.has_valid_revision();
        let content = value.content().filter(|_| is_ours)?;
        Some((value, content))
    }

    /// Whether [`decode`](Self::decode) accepts the revision.
    pub fn has_valid_revision(&self) -> bool {
        self.revision.0 < MAX_REVISION
    }

    /// Its meaning; `None` if the mark is malformed.
    pub fn content(&self) -> Option<Content> {
        Some(match self.mark.decode()? {
            DecodedMark::Released(tombstone) => Content::Vacant(tombstone),
            DecodedMark::Held(mark, advertisement) => Content::Held(Entry {
                identity: identity(&self.identity),
                ttl: mark.lease,
                mark: Some(mark),
                advertisement,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Mark, Nonce, Token, Tombstone, WriteId};

    #[test]
    fn a_person_can_read_a_value() {
        let id = WriteId { nonce: Nonce(0xab), number: 7 };
        let write = Write {
            expected: None,
            identity: "c1.example.net".into(),
            mark: Mark::new(id, Duration::from_secs(5), Some(Token(56))),
            ttl: Duration::from_secs(5),
            advertisement: Some(std::sync::Arc::new("10.0.0.3:1".into())),
            timeout: Duration::ZERO,
        };
        let origin = Origin { cluster_id: 0xcd, raft_term: 3 };
        let value = Value::held(&write).with(Revision(57), Duration::from_millis(1234), origin);
        let json = r#"{"incumbent":1,"revision":57,"cluster":"00000000000000cd","raft_term":3,"written_ms":1234,"identity":"c1.example.net","nonce":"00000000000000ab","write":7,"lease_ms":5000,"token":56,"since_ms":0,"advertisement":{"address":"10.0.0.3:1"}}"#;
        assert_eq!(String::from_utf8(value.encode()).expect("text"), json);
        let (read, content) = Value::decode(json.as_bytes()).expect("a value");
        assert_eq!(read.revision, Revision(57));
        for (cluster_id, raft_term, is_set_back) in
            [(0xcd, 3, false), (0xcd, 4, false), (0xcd, 2, true), (0xcd, 0, true), (0xce, 4, true)]
        {
            let origin = Origin { cluster_id, raft_term };
            assert_eq!(read.is_set_back(origin), is_set_back, "{origin:?}");
        }
        let unknown = Value::held(&write).with(Revision(57), Duration::ZERO, Origin::default());
        assert!(!unknown.is_set_back(origin), "written before any response");
        let Content::Held(entry) = content else { panic!("{read:?}") };
        assert_eq!((entry.mark, entry.advertisement), (Some(write.mark), write.advertisement));

        let released =
            Release { cause: "resigned", by: Nonce(0xab), ..Release::check(Duration::ZERO) };
        let json = r#"{"incumbent":1,"revision":0,"raft_term":0,"written_ms":0,"released_by":"00000000000000ab","left_ms":0,"cause":"resigned"}"#;
        assert_eq!(String::from_utf8(Value::released(&released).encode()).expect("text"), json);
        let read = Value::decode(json.as_bytes());
        let Some((_, Content::Vacant(Tombstone::Released { by, .. }))) = read else {
            panic!("{read:?}")
        };
        assert_eq!(by, Nonce(0xab));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for foreign in [
            &b""[..],
            b"c1",
            b"{}",
            br#"{"incumbent":2,"revision":57,"released_by":"00000000000000ab","left_ms":0,"cause":""}"#,
            br#"{"incumbent":1,"revision":57,"released_by":"ab","left_ms":0,"cause":""}"#,
            br#"{"incumbent":1,"revision":4611686018427387904,"released_by":"00000000000000ab","left_ms":0,"cause":""}"#,
            &[b'['; MAX_VALUE_LEN + 1],
        ] {
            assert!(Value::decode(foreign).is_none(), "{}", String::from_utf8_lossy(foreign));
        }
    }
}
