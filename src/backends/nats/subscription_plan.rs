//! What to subscribe to for the hints of a bucket.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::roll_call::{call_prefix, control_prefix};
use super::state::BucketState;
use super::stream::StreamFacts;
use crate::backends::hint_hub::Interest;
use crate::lock::Coverage;
use crate::protocol::set::member_hash;

/// A process that wants all hints of more elections than this receives those of the whole bucket.
const MAX_SINGLE: usize = 64;

/// How many sets of queue groups there are for the clusters and leaf nodes that do not store the
/// bucket: a bound on the deliveries where there are thousands of leaf nodes.
const REMOTE_SETS: u64 = 16;

/// The subjects to subscribe to, and the resulting coverage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubscriptionPlan {
    pub wanted: Interest,
    /// The set of queue groups that this process shares.
    set: GroupSet,
    /// The number of this process's queue group, if there are any.
    number: Option<u8>,
    /// The queue group in which hints are received that are not all wanted.
    group: Option<Arc<str>>,
    /// The prefix of subjects on which the server republishes stored messages, and former leaders
    /// send step-down notices.
    pub hints: Option<String>,
    /// The prefix of subjects on which candidates write.
    pub writes: Option<String>,
    /// The prefix of subjects of roll calls.
    pub calls: Option<String>,
    /// The prefix of subjects of requests to candidates.
    pub controls: Option<String>,
    pub coverage: Coverage,
}

/// A subject, and the queue group in which to subscribe to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Subject {
    pub subject: String,
    pub group: Option<Arc<str>>,
}

/// Returns the prefix of the subjects of hints, ending with a dot.
pub(super) fn hint_prefix(bucket: &BucketState, facts: &StreamFacts) -> String {
    let name = bucket.api.bucket();
    facts.config.republished_under(name).unwrap_or_else(|| format!("incumbent.{name}."))
}

impl SubscriptionPlan {
    /// `received`: a hint has come on this connection.
    pub fn new(
        bucket: &BucketState,
        facts: &StreamFacts,
        wanted: Interest,
        denied: &HashSet<String>,
        received: bool,
    ) -> Self {
        let name = bucket.api.bucket();
        let republishes = facts.config.republished_under(name).is_some();
        let allowed = |under: &String| !denied.contains(&subject(under, &wanted));
        let hints = Some(hint_prefix(bucket, facts)).filter(allowed);
        let full = republishes && hints.is_some();
        let writes = Some(format!("$KV.{name}.")).filter(|under| !full && allowed(under));
        let calls = Some(call_prefix(name)).filter(allowed);
        let controls = Some(control_prefix(name)).filter(allowed);
        let number = bucket.queue_group(facts).filter(|_| full);
        let own = bucket.api.connection.cluster();
        let set = GroupSet::of(own.as_deref(), facts.cluster.as_deref());
        let group = number.filter(|_| received);
        let group = group.map(|number| group_of(set, number, &wanted, &bucket.hub.names()));
        let coverage = match (full, &group) {
            (true, Some(_)) => Coverage::Sampled,
            (true, None) => Coverage::Full,
            (false, _) if writes.is_some() => Coverage::Partial,
            (false, _) => Coverage::None,
        };
        Self { wanted, set, number, group, hints, writes, calls, controls, coverage }
    }

    /// Whether the process receives all hints, and is to share those of a group.
    pub fn may_join_group(&self) -> bool {
        self.coverage == Coverage::Full && self.number.is_some()
    }

    /// What to subscribe to now.
    pub fn subjects(&self, bucket: &BucketState) -> BTreeSet<Subject> {
        let all = |under: &String| Subject { subject: subject(under, &self.wanted), group: None };
        let mut subjects: BTreeSet<_> =
            [&self.writes, &self.calls, &self.controls].into_iter().flatten().map(all).collect();
        let Some(hints) = &self.hints else { return subjects };
        let Some(group) = &self.group else {
            subjects.insert(all(hints));
            return subjects;
        };
        let whole = bucket.hub.wanted_whole(MAX_SINGLE + 1);
        if whole.len() > MAX_SINGLE {
            subjects.insert(all(hints));
            return subjects;
        }
        // The only election of this process needs no share of a group beside all its hints: what
        // the group passes to it, no standby receives.
        if !matches!(self.wanted, Interest::One(_)) || whole.is_empty() {
            subjects.insert(Subject { group: Some(Arc::clone(group)), ..all(hints) });
        }
        let single = |name| Subject { subject: format!("{hints}{name}"), group: None };
        subjects.extend(whole.into_iter().map(single));
        subjects
    }

    /// Whether all hints of an election are received on these subjects.
    pub fn is_whole(&self, subjects: &BTreeSet<Subject>, name: &str) -> bool {
        let Some(hints) = &self.hints else { return false };
        let whole = [subject(hints, &self.wanted), format!("{hints}{name}")];
        whole.into_iter().any(|subject| subjects.contains(&Subject { subject, group: None }))
    }

    /// Whether it is a subject of this plan.
    pub fn includes(&self, denied: &str) -> bool {
        self.is_under(&[&self.hints, &self.writes, &self.calls, &self.controls], denied)
    }

    /// Whether it is a subject of roll calls or requests, which an election does without.
    pub fn is_of_calls(&self, denied: &str) -> bool {
        self.is_under(&[&self.calls, &self.controls], denied)
    }

    fn is_under(&self, prefixes: &[&Option<String>], denied: &str) -> bool {
        let mut prefixes = prefixes.iter().copied().flatten();
        prefixes.any(|under| subject(under, &self.wanted) == denied)
    }

    /// Returns whether the plan already covers the elections of `wanted`, of the elections that the
    /// process now takes part in.
    pub fn covers(&self, bucket: &BucketState, wanted: &Interest) -> bool {
        let number = self.number.filter(|_| self.group.is_some());
        let group =
            number.map(|number| group_of(self.set, number, &self.wanted, &bucket.hub.names()));
        (self.wanted == Interest::All || self.wanted == *wanted) && self.group == group
    }
}

/// Processes that may receive hints instead of each other.
///
/// Servers deliver to a member of a group that is connected to the cluster of the stream, as long
/// as there is one: others behind gateways and leaf nodes would receive nothing, also where all
/// members there have lost their network. So each of these has groups of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupSet {
    /// Of the cluster that stores the bucket.
    Local,
    /// Of other clusters and leaf nodes, by the hash of their names.
    Remote(u8),
}

impl GroupSet {
    /// `own`: the cluster that the process is connected to.
    fn of(own: Option<&str>, stream: Option<&str>) -> Self {
        match own {
            Some(own) if stream != Some(own) => {
                Self::Remote(u8::try_from(member_hash(own) % REMOTE_SETS).unwrap_or_default())
            }
            _ => Self::Local,
        }
    }
}

/// The queue group of a process. All members of a group take part in the same elections: what one
/// of them receives instead of the others, it needs.
fn group_of(set: GroupSet, number: u8, wanted: &Interest, names: &[Arc<str>]) -> Arc<str> {
    let elections = match wanted {
        Interest::One(_) => String::new(),
        Interest::All => {
            let hash = names.iter().fold(0, |sum: u64, name| sum.wrapping_add(member_hash(name)));
            format!("{hash:016x}-")
        }
    };
    match set {
        GroupSet::Local => format!("incumbent-{elections}{number}").into(),
        GroupSet::Remote(set) => format!("incumbent-remote{set}-{elections}{number}").into(),
    }
}

pub(super) fn subject(under: &str, wanted: &Interest) -> String {
    match wanted {
        Interest::One(name) => format!("{under}{name}"),
        Interest::All => format!("{under}>"),
    }
}
