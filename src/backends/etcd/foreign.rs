//! Candidates of etcd's own elections, as of `etcdctl elect` and Go's `concurrency.Election`.
//!
//! Such a candidate creates a key below that of the election, which belongs to its lease, and leads
//! once no key below it is older. Nothing of ours bounds how long it leads. So an election is
//! acquired only while a key of ours is there, the placeholder, which is older than all of theirs:
//! it is created while there is none of them, and they wait for it.

use super::messages::{KeyValue, Range, Txn};
use crate::util::text::escape_line;

/// The value of a placeholder, which etcd's own programs show as that of the leader.
///
/// A placeholder is the key of the election with a slash at its end. It is there from the first
/// acquisition on, and belongs to no lease, so a candidate of etcd's, which comes later, waits
/// until it is deleted.
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

/// The placeholder as a transaction has read it, because it acquired nothing.
fn placeholder(answer: &Txn) -> Option<&Range> {
    let mut ranges = answer.responses.iter().filter_map(|response| response.range.as_ref());
    ranges.nth(1).filter(|_| !answer.succeeded)
}

/// Whether a transaction has acquired nothing, and found no placeholder.
pub(super) fn lacks_placeholder(answer: &Txn) -> bool {
    placeholder(answer).is_some_and(|range| range.kvs.is_empty())
}

/// Whether a transaction has acquired nothing, and found another program's key in its place.
pub(super) fn is_placeholder_taken(answer: &Txn) -> bool {
    let mut found = placeholder(answer).into_iter().flat_map(|range| &range.kvs);
    found.any(|kv| !is_placeholder(kv))
}

/// Whether a key with a slash at its end is a placeholder: another program may have written it.
pub(super) fn is_placeholder(kv: &KeyValue) -> bool {
    kv.value == PLACEHOLDER
}

/// Why there can be no placeholder, if a key below that of the election is of a candidate. One
/// farther below is of another election. `from`: the key of the placeholder.
pub(super) fn refusal(name: &str, from: &[u8], kv: &KeyValue) -> Option<String> {
    let rest = kv.key.strip_prefix(from).filter(|rest| !rest.contains(&b'/'));
    rest.filter(|_| kv.lease != 0).map(|_| ForeignCandidate::new(name, &kv.key, false).message)
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
            if slash + 1 == kv.key.len() && is_placeholder(kv) {
                self.placeholders.push((kv.key.clone(), kv.create_revision));
            }
            return true;
        }
        let (parent, _) = kv.key.split_at(slash + 1);
        let above = self.placeholders.last().filter(|(above, _)| above == parent);
        let waits = above.is_some_and(|(_, revision)| kv.create_revision > *revision);
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

    fn kv(key: &str, create_revision: i64, lease: i64) -> KeyValue {
        KeyValue { key: key.into(), create_revision, lease, ..KeyValue::default() }
    }

    fn placeholder(key: &str, create_revision: i64) -> KeyValue {
        KeyValue { value: PLACEHOLDER.to_vec(), ..kv(key, create_revision, 0) }
    }

    #[test]
    fn a_candidate_is_a_leased_key_directly_below_the_election() {
        for (key, lease, is_one) in [
            ("e/a/7", 7, true),
            ("e/a/", 7, true),
            ("e/a/7", 0, false),
            ("e/a/b/7", 7, false),
            ("e/ab/7", 7, false),
        ] {
            let refusal = refusal("a", b"e/a/", &kv(key, 1, lease));
            assert_eq!(refusal.is_some(), is_one, "{key} {lease}: {refusal:?}");
        }
    }

    #[test]
    fn one_that_may_lead_is_found_before_one_that_waits() {
        let keys = [
            kv("e/a", 10, 0),
            placeholder("e/a/", 10),
            placeholder("e/a/b/", 30),
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
        // No election waits for the key of another program.
        let theirs = [kv("e/d/", 10, 0), kv("e/d/5", 20, 5)];
        assert_eq!(found(&theirs), of("d", "e/d/5", false));
    }
}
