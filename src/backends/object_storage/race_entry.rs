//! The message that vimeo/leaderelection keeps in its object, with an additional field of this
//! library.
//!
//! It is `leaderelection.storagepb.RaceEntry`, in protobuf's wire format. Go's reader and this one
//! skip fields that they do not know, so the additional field does not disturb Go's candidates.
//! They write a message without it, so it never outlives the write that it belongs to.

use prost::Message;

/// The message. Its `mark` has a number far from those that the message may use later.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RaceEntry {
    /// Increases with every write, including renewals.
    #[prost(uint64, tag = "1")]
    pub(super) election_number: u64,
    #[prost(string, tag = "2")]
    pub(super) leader_id: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) host_port: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub(super) term_expiry: Option<Timestamp>,
    #[prost(string, optional, tag = "15210")]
    pub(super) mark: Option<String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output of Go's `proto.Marshal` for vimeo's `storagepb.RaceEntry` 0.2.2.
    const OF_GO: &[u8] =
        b"\x08\x07\x12\x02g1\x1a\x0a10.0.0.1:1\x22\x09\x08\x80\x80\xbe\xd0\x06\x10\xe8\x07";
    /// Its `connection_parameters`, which end it.
    const PARAMETERS: &[u8] = b"*\x02{}";

    fn read(bytes: &[u8]) -> Option<RaceEntry> {
        RaceEntry::decode(bytes).ok()
    }

    #[test]
    fn messages_of_go_are_read_and_written_alike() {
        let entry = read(&[OF_GO, PARAMETERS].concat()).unwrap();
        assert_eq!((entry.election_number, &*entry.leader_id), (7, "g1"));
        assert_eq!(entry.host_port, ["10.0.0.1:1"]);
        assert_eq!(entry.term_expiry, Some(Timestamp { seconds: 1_779_400_704, nanos: 1000 }));
        assert_eq!(entry.encode_to_vec(), OF_GO);
    }

    #[test]
    fn malformed_messages_are_refused() {
        assert_eq!(read(b""), Some(RaceEntry::default()));
        let malformed: [&[u8]; 6] =
            [b"\x08", b"\x12\x7fx", b"\x12\x01\xff", b"\x00\x00", b"{\"holder\": 1}", &[0xff; 11]];
        for bytes in malformed {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_written_message_is_read_unchanged(
            election_number: u64,
            leader_id in "\\PC{0,20}",
            host_port in prop::collection::vec("\\PC{0,20}", 0..3),
            seconds: i64,
            nanos in 0..1_000_000_000_i32,
            mark in prop::option::of("\\PC{0,200}"),
        ) {
            let term_expiry = Some(Timestamp { seconds, nanos });
            let entry = RaceEntry { election_number, leader_id, host_port, term_expiry, mark };
            prop_assert_eq!(read(&entry.encode_to_vec()), Some(entry));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
