//! The messages of etcd's gRPC API that an election needs, with the field numbers of etcd's
//! `rpc.proto` and `kv.proto`.
//!
//! They are written by hand because a generator needs the program `protoc` on every machine that
//! compiles this crate. A `oneof` is a list of optional fields here: the bytes are the same.

use prost::Message;

use super::codec::Origin;

/// The start of every response.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

impl Header {
    pub fn origin(self) -> Origin {
        Origin { cluster_id: self.cluster_id, raft_term: self.raft_term }
    }
}

/// A response that has a [`Header`].
pub(super) trait Answer: Message + Default + 'static {
    fn header(&self) -> Option<&Header>;
}

macro_rules! answers {
    ($($answer:ty),+) => {
        $(impl Answer for $answer {
            fn header(&self) -> Option<&Header> {
                self.header.as_ref()
            }
        })+
    };
}

answers!(Range, Txn, Status, Members, Authenticated);

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The revision of the first write since the key was created.
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// The number of writes since the key was created.
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
    /// The lease that deletes the key; 0: none.
    #[prost(int64, tag = "6")]
    pub lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Empty: the key alone.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub range: Option<Range>,
}

/// A condition of a transaction, of the field of each key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0: it equals the value. 2: it is less.
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub mod_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub value: Option<Vec<u8>>,
    #[prost(int64, optional, tag = "8")]
    pub lease: Option<i64>,
    #[prost(bytes = "vec", tag = "64")]
    pub range_end: Vec<u8>,
}

impl Compare {
    const LESS: i32 = 2;
    const CREATE: i32 = 1;
    const MOD: i32 = 2;
    const VALUE: i32 = 3;
    const LEASE: i32 = 4;

    /// No key of the range belongs to a lease.
    pub fn unleased(from: Vec<u8>, to: Vec<u8>) -> Self {
        Self { target: Self::LEASE, key: from, lease: Some(0), range_end: to, ..Self::default() }
    }

    /// Each key of the range was created by this revision, or an earlier one.
    pub fn created_until(from: Vec<u8>, to: Vec<u8>, revision: i64) -> Self {
        let create_revision = Some(revision.saturating_add(1));
        let (result, target) = (Self::LESS, Self::CREATE);
        Self { result, target, key: from, range_end: to, create_revision, ..Self::default() }
    }

    /// The key was last written by this revision; 0: it does not exist.
    pub fn written_by(key: &[u8], revision: i64) -> Self {
        let (key, mod_revision) = (key.to_vec(), Some(revision));
        Self { target: Self::MOD, key, mod_revision, ..Self::default() }
    }

    /// The key has this value.
    pub fn has_value(key: &[u8], value: &[u8]) -> Self {
        let (key, value) = (key.to_vec(), Some(value.to_vec()));
        Self { target: Self::VALUE, key, value, ..Self::default() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Txn {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0: put, 1: deleted.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Authenticated {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(string, tag = "2")]
    pub token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

/// The status of the member that answers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(string, tag = "2")]
    pub version: String,
    /// The member that leads; 0: none is known.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MembersRequest {
    #[prost(bool, tag = "1")]
    pub linearizable: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Members {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that etcd's own client sends: `oneof` fields are on the wire even if they are 0.
    #[test]
    fn a_zero_in_a_condition_is_on_the_wire() {
        let absent = Compare::written_by(b"k", 0).encode_to_vec();
        assert_eq!(absent, [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
        let unleased = Compare::unleased(b"a".to_vec(), b"b".to_vec()).encode_to_vec();
        assert_eq!(unleased, [0x10, 4, 0x1a, 1, b'a', 0x40, 0, 0x82, 4, 1, b'b']);
        let created = Compare::created_until(b"a".to_vec(), b"b".to_vec(), 6).encode_to_vec();
        assert_eq!(created, [8, 2, 0x10, 1, 0x1a, 1, b'a', 0x28, 7, 0x82, 4, 1, b'b']);
    }
}
