//! Tests of late responses to several electors that share one lock.

use std::time::Duration;

use super::known::{Election, Known};
use super::vimeo_timing::VimeoTiming;
use crate::lock::{Content, Entry, Mark, Nonce, Revision, WriteId};

const LEASE: Duration = Duration::from_secs(15);
const TERMS: VimeoTiming = VimeoTiming { longest: LEASE, skew: Duration::ZERO };

/// The content of a write with this number, which is also its version.
fn held(number: u64) -> Content {
    let write = WriteId { nonce: Nonce(1), number };
    let mark = Mark::new(write, LEASE, None);
    Content::Held(Entry { identity: "a".into(), mark: Some(mark), ttl: LEASE, advertisement: None })
}

fn wrote(election: &Election<u64>, number: u64) {
    let revision = Revision(number + 1);
    election.wrote(Known { version: number, number, revision, content: held(number) });
}

/// A read is in flight while another elector of the process writes: its response is from before.
#[test]
fn an_answer_from_before_a_write_does_not_set_it_back() {
    let election = Election::default();
    wrote(&election, 10);
    let before = election.before();
    wrote(&election, 11);
    let found = election.found(&before, 10, 10, held(10), TERMS);
    assert_eq!(found.record().revision, Revision(11));
    assert_eq!(election.known().map(|known| known.revision), Some(Revision(12)));
    assert_eq!(election.newest(), Some(Revision(12)));
}

#[test]
fn a_restored_object_is_distinguished_from_a_late_response() {
    let election = Election::default();
    wrote(&election, 10);
    wrote(&election, 11);
    let before = election.before();
    let found = election.found(&before, 10, 10, held(10), TERMS);
    assert!(found.revision > Revision(12));
    let Content::Held(entry) = found.content else { panic!("{found:?}") };
    assert_eq!(entry.mark, None);
}
