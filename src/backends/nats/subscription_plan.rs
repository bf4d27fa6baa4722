//! What to subscribe to for the hints of a bucket.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::roll_call::{call_prefix, control_prefix};
use super::state::BucketState;
use super::stream::StreamFacts;
use crate::backends::hint_hub::Interest;
use crate::lock::{Coverage, Revision};
use crate::protocol::set::member_hash;

/// A process that wants all hints of more elections than this receives those of the whole bucket.
const MAX_SINGLE: usize = 64;

/// How many sets of queue groups there are for the clusters and leaf nodes that do not store the
/// bucket: a bound on the deliveries where there are thousands of leaf nodes.
const REMOTE_SETS: u64 = 16;

/// A fleet is large from the hint on before which so many passed by the queue group of all.
const LARGE_RUN: u32 = 64;

/// A fleet is small again after so many sampled hints without a gap.
const SMALL_RUN: u32 = 8;

/// Whether a fleet is large, as each of its processes finds out by itself: all of them share one
/// queue group. The more they are, the more hints pass between two that one of them receives there.
/// Ten standbys or fewer practically never share their hints, fifty soon do.
#[derive(Debug, Default)]
pub(super) struct FleetSize {
    is_large: bool,
    run: u32,
    /// The newest hint that came through the queue group of all. In a burst it is handled before
    /// earlier ones that did not.
    shared: Option<Revision>,
}

impl FleetSize {
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// Notes a hint while all are received. `shared`: it came through the queue group of all.
    pub fn on_hint(&mut self, revision: Revision, shared: bool) {
        if shared {
            self.shared = self.shared.max(Some(revision));
        }
        self.run = if self.shared >= Some(revision) { 0 } else { self.run + 1 };
        if self.run >= LARGE_RUN {
            *self = Self { is_large: true, ..Self::default() };
        }
    }

    /// Notes a hint while few are received. `follows`: on the last one that came, without a gap.
    pub fn on_sampled(&mut self, follows: bool) {
        self.run = if follows { self.run + 1 } else { 0 };
        if self.run >= SMALL_RUN {
            *self = Self::default();
        }
    }
}

/// The subjects to subscribe to, and the resulting coverage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SubscriptionPlan {
    pub wanted: Interest,
    /// The set of queue groups that this process shares.
    set: GroupSet,
    /// The queue group in which hints are received that are not all wanted.
    group: Option<Arc<str>>,
    /// The number of that queue group.
    number: u8,
    /// The queue group of all processes, which shows how many they are.
    all: Option<Arc<str>>,
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
    /// Whether the queue group is that of all processes.
    pub shared: bool,
}

impl Subject {
    fn all(subject: String) -> Self {
        Self { subject, group: None, shared: false }
    }
}

/// Returns the prefix of the subjects of hints, ending with a dot.
pub(super) fn hint_prefix(bucket: &BucketState, facts: &StreamFacts) -> String {
    let name = bucket.api.bucket();
    facts.config.republished_under(name).unwrap_or_else(|| format!("incumbent.{name}."))
}

impl SubscriptionPlan {
    /// `sampled`: hints are to be shared, where the bucket has queue groups.
    pub fn new(
        bucket: &BucketState,
        facts: &StreamFacts,
        wanted: Interest,
        denied: &HashSet<String>,
        sampled: bool,
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
        let names = bucket.hub.names();
        let group = number.filter(|_| sampled);
        let group = group.map(|number| group_of(set, Some(number), &wanted, &names));
        let all = number.filter(|_| bucket.config.queue_groups.is_none());
        let all = all.map(|_| group_of(set, None, &wanted, &names));
        let coverage = match (full, &group) {
            (true, Some(_)) => Coverage::Sampled,
            (true, None) => Coverage::Full,
            (false, _) if writes.is_some() => Coverage::Partial,
            (false, _) => Coverage::None,
        };
        let number = number.unwrap_or_default();
        Self { wanted, set, group, number, all, hints, writes, calls, controls, coverage }
    }

    /// What to subscribe to now.
    pub fn subjects(&self, bucket: &BucketState) -> BTreeSet<Subject> {
        let all = |under: &String| Subject::all(subject(under, &self.wanted));
        let in_group = |group: &Arc<str>, under, shared| Subject {
            group: Some(Arc::clone(group)),
            shared,
            ..all(under)
        };
        let mut subjects: BTreeSet<_> =
            [&self.writes, &self.calls, &self.controls].into_iter().flatten().map(all).collect();
        let Some(hints) = &self.hints else { return subjects };
        let shared = self.all.as_ref().map(|group| in_group(group, hints, true));
        let Some(group) = &self.group else {
            subjects.insert(all(hints));
            subjects.extend(shared);
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
            subjects.insert(in_group(group, hints, false));
            subjects.extend(shared);
        }
        let single = |name| Subject::all(format!("{hints}{name}"));
        subjects.extend(whole.into_iter().map(single));
        subjects
    }

    /// Whether all hints of an election are received on these subjects.
    pub fn is_whole(&self, subjects: &BTreeSet<Subject>, name: &str) -> bool {
        let Some(hints) = &self.hints else { return false };
        let whole = [subject(hints, &self.wanted), format!("{hints}{name}")];
        whole.into_iter().any(|subject| subjects.contains(&Subject::all(subject)))
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
        let names = bucket.hub.names();
        let is_current = |group: &Option<Arc<str>>, number| {
            let current = || group_of(self.set, number, &self.wanted, &names);
            group.as_ref().is_none_or(|group| *group == current())
        };
        (self.wanted == Interest::All || self.wanted == *wanted)
            && is_current(&self.group, Some(self.number))
            && is_current(&self.all, None)
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

/// The queue group of a process; without a number, that of all. All members of a group take part in
/// the same elections: what one of them receives instead of the others, it needs.
fn group_of(set: GroupSet, number: Option<u8>, wanted: &Interest, names: &[Arc<str>]) -> Arc<str> {
    let number = number.map_or_else(|| "all".to_owned(), |number| number.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of `hints` after which a process of a fleet of `members` takes it for large.
    fn large(members: u32, hints: usize) -> f64 {
        let mut random = fastrand::Rng::with_seed(7);
        let mut fleet = FleetSize::default();
        let groups = 8.min(members);
        let heard = (0..hints).filter(|hint| {
            let (drawn, revision) = (random.u32(..members), Revision(*hint as u64));
            match fleet.is_large() {
                false => fleet.on_hint(revision, drawn == 0),
                true if drawn < groups + 1 => fleet.on_sampled(random.u32(..members) <= groups),
                true => {}
            }
            fleet.is_large()
        });
        heard.count() as f64 / hints as f64
    }

    /// The two subscriptions are handled in turn, and one of them has more messages.
    #[test]
    fn a_burst_makes_no_large_fleet_of_two() {
        let mut fleet = FleetSize::default();
        for hint in 0..1_000 {
            if hint < 500 {
                fleet.on_hint(Revision(hint * 2), true);
            }
            fleet.on_hint(Revision(hint), false);
            assert!(!fleet.is_large(), "{hint}");
        }
    }

    #[test]
    fn only_large_fleets_share_hints() {
        for small in [1, 2, 3, 5, 10] {
            assert!(large(small, 100_000) < 0.02, "{small}: {}", large(small, 100_000));
        }
        for members in [49, 200, 1_000] {
            assert!(large(members, 2_000) > 0.6, "{members}: {}", large(members, 2_000));
        }
    }
}
