//! Answers that come late, to several campaigns that have one lock.

use std::time::Duration;

use super::known::{Election, Known};
use super::vimeo_timing::VimeoTiming;
use crate::lock::{Content, Entry, Mark, Nonce, Revision, WriteId};

const LEASE: Duration = Duration::from_secs(15);
const TERMS: VimeoTiming = VimeoTiming { longest: LEASE, skew: Duration::ZERO };

/// A write, by its number, which is its version too.
fn held(number: u64) -> Content {
    let write = WriteId { nonce: Nonce(1), number };
    let mark = Mark { write, lease: LEASE, token: None, since_unix_ms: 0 };
    Content::Held(Entry { identity: "a".into(), mark: Some(mark), ttl: LEASE, advertisement: None })
}

fn wrote(election: &Election<u64>, number: u64) {
    let revision = Revision(number + 1);
    election.wrote(Known { version: number, number, revision, content: held(number) });
}

/// A read is under way while another campaign of the process writes: its answer is of before.
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
fn what_was_put_back_since_is_told_from_an_old_answer() {
    let election = Election::default();
    wrote(&election, 10);
    wrote(&election, 11);
    let before = election.before();
    let found = election.found(&before, 10, 10, held(10), TERMS);
    assert!(found.revision > Revision(12));
    let Content::Held(entry) = found.content else { panic!("{found:?}") };
    assert_eq!(entry.mark, None);
}
