//! Candidates of etcd's own elections, as of `etcdctl elect` and Go's `concurrency.Election`.
//!
//! Such a candidate creates a key below that of the election, which belongs to its lease, and leads
//! once no key below it is older. Nothing of ours bounds how long it leads. So nobody acquires an
//! election beside one that may lead, and whoever acquires an election leaves a key there for which
//! those that come later wait.

use super::messages::{KeyValue, Range, Txn};
use crate::util::text::escape_line;

/// The value of a placeholder, which etcd's own programs show as that of the leader.
///
/// A placeholder is the key of the election with a slash at its end. It is there from the first
/// acquisition on, and belongs to no lease, so a candidate of etcd's that comes later waits until
/// it is deleted.
pub(super) const PLACEHOLDER: &[u8] = b"incumbent: candidates of etcd's own elections wait here";

/// A candidate of etcd's own elections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignCandidate {
    /// What it is, and what to do, in one line.
    pub message: String,
    /// Whether it waits for as long as it runs, because the election here was acquired before.
    pub waits: bool,
}

impl ForeignCandidate {
    fn new(name: &str, key: &[u8], waits: bool) -> Self {
        let key = String::from_utf8_lossy(key);
        let key = escape_line(&key, 200);
        let what = if waits { "cannot lead beside" } else { "would lead beside" };
        let message = format!(
            "{key} is a candidate of etcd's own election, which {what} {name}: stop it, or use another name"
        );
        Self { message, waits }
    }
}

/// The revision that created the placeholder, if it is the first of these keys.
fn placeholder(from: &[u8], kvs: &[KeyValue]) -> Option<i64> {
    let first = kvs.first().filter(|kv| kv.key == from && kv.lease == 0)?;
    Some(first.create_revision)
}

/// Whether a key is of a candidate that may lead.
fn may_lead(kv: &KeyValue, placeholder: Option<i64>) -> bool {
    kv.lease != 0 && placeholder.is_none_or(|placeholder| kv.create_revision < placeholder)
}

/// The keys below that of the election, which a transaction has read because it wrote nothing.
fn keys_below(answer: &Txn) -> Option<&Range> {
    let mut ranges = answer.responses.iter().filter_map(|response| response.range.as_ref());
    ranges.nth(1).filter(|_| !answer.succeeded)
}

/// The revision that created the placeholder, if candidates of etcd's are there and all of them
/// wait for it. `from`: the key of the placeholder.
pub(super) fn all_wait(from: &[u8], answer: &Txn) -> Option<i64> {
    let below = keys_below(answer).filter(|below| !below.more)?;
    let placeholder = placeholder(from, &below.kvs)?;
    let is_there = below.kvs.iter().any(|kv| kv.lease != 0);
    let all_wait = !below.kvs.iter().any(|kv| may_lead(kv, Some(placeholder)));
    (is_there && all_wait).then_some(placeholder)
}

/// Why a transaction has acquired nothing, if nothing but the keys below that of the election
/// prevented it; `None` if by now none of them does.
pub(super) fn refusal(name: &str, from: &[u8], answer: &Txn) -> Option<String> {
    let below = keys_below(answer).filter(|_| all_wait(from, answer).is_none())?;
    let placeholder = placeholder(from, &below.kvs);
    // The condition is of all keys, and those that were read may not show it.
    let foreign = below.kvs.iter().find(|kv| may_lead(kv, placeholder));
    let key = foreign.map_or(from, |kv| &kv.key);
    Some(ForeignCandidate::new(name, key, false).message)
}

/// Looks for candidates in keys, which come in their order.
#[derive(Default)]
pub(super) struct Search {
    /// The placeholders above the present key, and the revisions that created them.
    placeholders: Vec<(Vec<u8>, i64)>,
    found: Option<ForeignCandidate>,
}

impl Search {
    /// Looks at the next key. Returns whether to continue, as one that may lead is reported rather
    /// than one that waits. `prefix`: of the names.
    pub fn look(&mut self, prefix: &str, kv: &KeyValue) -> bool {
        while self.placeholders.pop_if(|(above, _)| !kv.key.starts_with(above)).is_some() {}
        let Some(slash) = kv.key.iter().rposition(|byte| *byte == b'/') else { return true };
        if kv.lease == 0 {
            if slash + 1 == kv.key.len() {
                self.placeholders.push((kv.key.clone(), kv.create_revision));
            }
            return true;
        }
        let (parent, _) = kv.key.split_at(slash + 1);
        let above = self.placeholders.last().filter(|(above, _)| above == parent);
        let waits = !may_lead(kv, above.map(|(_, revision)| *revision));
        if !waits || self.found.is_none() {
            let parent = String::from_utf8_lossy(parent);
            let name = parent.strip_prefix(prefix).unwrap_or(&parent).trim_end_matches('/');
            self.found = Some(ForeignCandidate::new(&escape_line(name, 200), &kv.key, waits));
        }
        waits
    }

    pub fn found(self) -> Option<ForeignCandidate> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::etcd::messages::ResponseOp;

    fn kv(key: &str, create_revision: i64, lease: i64) -> KeyValue {
        KeyValue { key: key.into(), create_revision, lease, ..KeyValue::default() }
    }

    fn refused(kvs: &[KeyValue], more: bool) -> Txn {
        let range = |kvs: &[KeyValue], more| ResponseOp {
            range: Some(Range { kvs: kvs.to_vec(), more, ..Range::default() }),
        };
        Txn { responses: vec![range(&[], false), range(kvs, more)], ..Txn::default() }
    }

    #[test]
    fn a_candidate_waits_if_it_is_younger_than_the_placeholder() {
        let (young, old) = (kv("e/a/7", 20, 7), kv("e/a/8", 5, 8));
        let (placed, nested) = (kv("e/a/", 10, 0), kv("e/a/b", 2, 0));
        let of = |kvs: &[&KeyValue], more| {
            let kvs: Vec<_> = kvs.iter().map(|kv| (*kv).clone()).collect();
            let answer = refused(&kvs, more);
            (all_wait(b"e/a/", &answer), refusal("a", b"e/a/", &answer))
        };
        let says = |key: &str| Some(ForeignCandidate::new("a", key.as_bytes(), false).message);
        assert_eq!(of(&[&placed, &young, &nested], false), (Some(10), None));
        assert_eq!(of(&[&placed, &young, &old], false), (None, says("e/a/8")));
        assert_eq!(of(&[&young], false), (None, says("e/a/7")));
        assert_eq!(of(&[&placed, &young], true), (None, says("e/a/")), "more may be there");
        let leased = kv("e/a/", 10, 9);
        assert_eq!(of(&[&leased, &young], false), (None, says("e/a/")), "no placeholder");
        let written = Txn { succeeded: true, ..refused(&[placed, young], false) };
        assert_eq!(all_wait(b"e/a/", &written), None);
    }

    #[test]
    fn one_that_may_lead_is_found_before_one_that_waits() {
        let keys = [
            kv("e/a", 10, 0),
            kv("e/a/", 10, 0),
            kv("e/a/b/", 30, 0),
            kv("e/a/b/6", 20, 6),
            kv("e/a/x", 11, 7),
            kv("e/c/9", 40, 9),
        ];
        let found = |keys: &[KeyValue]| {
            let mut search = Search::default();
            let _ = keys.iter().all(|kv| search.look("e/", kv));
            search.found().map(|found| (found.waits, found.message))
        };
        let of = |name: &str, key: &str, waits| {
            Some((waits, ForeignCandidate::new(name, key.as_bytes(), waits).message))
        };
        assert_eq!(found(&keys), of("a/b", "e/a/b/6", false));
        assert_eq!(found(&[&keys[..3], &keys[4..5]].concat()), of("a", "e/a/x", true));
        assert_eq!(found(&[&keys[..2], &keys[4..]].concat()), of("c", "e/c/9", false));
        assert_eq!(found(&keys[..3]), None);
    }
}
