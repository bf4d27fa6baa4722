//! Presence entries: how members know each other where the lock carries no roll calls.
//!
//! Each member holds an entry of its own, `NAME.member-HASH`, with the lease of the shards: an
//! ordinary election in which nobody else stands. It advertises how much the member leads, how
//! ready it is, and which shards it asks for. It costs each member a write per renewal, and a
//! listing and a read per member and lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::builder::{ElectionBuilder, StartError};
use crate::election::handle::Election;
use crate::lock::{
    Advertisement, CandidateInfo, Content, Entry, Lock, LockError, MemberLoad, Nonce, Reading,
    Revision, Standing, TakeRequest,
};
use crate::protocol::set::member_hash;
use crate::time::clock::{Clock, Instant};

/// How long a listing and a read may take.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// The most members whose entries are read.
const MAX_MEMBERS: usize = 1_000;
/// The most shards that one entry asks for: an advertisement has little room.
const MAX_TAKES: usize = 16;
/// What stands for an address.
const ADDRESS: &str = "member";

/// The name of the presence entry of a member.
pub(super) fn name_of(set: &str, identity: &str) -> String {
    format!("{}{:016x}", prefix_of(set), member_hash(identity))
}

fn prefix_of(set: &str) -> String {
    format!("{set}.member-")
}

/// A shard that a member asks for, and the candidate that is to lead it.
pub(super) type Wanted = (u32, Nonce);

/// What a member states of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub load: MemberLoad,
    pub standing: Standing,
    pub takes: Vec<Wanted>,
}

impl Statement {
    fn to_advertisement(&self) -> Advertisement {
        let MemberLoad { shards, load, weight, max, resizing } = self.load;
        let takes = self.takes.iter().take(MAX_TAKES);
        let takes: Vec<_> = takes.map(|(shard, by)| format!("{shard}:{by}")).collect();
        Advertisement::new(ADDRESS)
            .with("load", format!("{load}/{shards}*{weight}"))
            .with("max", max.map(|max| max.to_string()).unwrap_or_default())
            .with("resizing", resizing.unwrap_or(0).to_string())
            .with("standing", self.standing.as_str())
            .with("takes", takes.join(","))
    }

    /// What anybody may have written; `None` if it is none.
    fn read(advertisement: &Advertisement) -> Option<Self> {
        let pair = |key| advertisement.metadata().get(key).map(String::as_str);
        let (load, rest) = pair("load")?.split_once('/')?;
        let (shards, weight) = rest.split_once('*')?;
        let load = MemberLoad {
            shards: shards.parse().ok()?,
            load: load.parse().ok()?,
            weight: weight.parse().ok()?,
            max: pair("max").and_then(|max| max.parse().ok()),
            resizing: pair("resizing").and_then(|n| n.parse().ok()).filter(|shards| *shards > 0),
        };
        let standing = match pair("standing")? {
            "ready" => Standing::Ready,
            "aside" => Standing::Aside,
            _ => Standing::Sick,
        };
        let take = |take: &str| {
            let (shard, by) = take.split_once(':')?;
            Some((shard.parse().ok()?, Nonce(u64::from_str_radix(by, 16).ok()?)))
        };
        let takes = pair("takes").unwrap_or_default().split(',').filter_map(take).take(MAX_TAKES);
        Some(Self { load, standing, takes: takes.collect() })
    }
}

/// A member that is there.
#[derive(Debug)]
pub(super) struct Present {
    pub identity: Arc<str>,
    pub statement: Statement,
}

impl Present {
    /// The same as an answer to a roll call.
    pub fn info(&self) -> CandidateInfo {
        CandidateInfo {
            load: Some(self.statement.load),
            standing: self.statement.standing,
            ..CandidateInfo::new(Arc::clone(&self.identity), Nonce(0))
        }
    }

    /// What it asks for, each with the load that it would have by then.
    pub fn requests(&self) -> impl Iterator<Item = (u32, TakeRequest)> + '_ {
        let MemberLoad { load, .. } = self.statement.load;
        (0..).zip(&self.statement.takes).map(move |(before, (shard, by))| {
            let load = MemberLoad { load: load.saturating_add(before), ..self.statement.load };
            (*shard, TakeRequest { by: *by, identity: Arc::clone(&self.identity), load })
        })
    }
}

/// What the entry of `election`, held by `identity`, states of a member of `set`, as an answer to a
/// roll call: where a lock carries none, members know each other by such entries.
///
/// `None` if it is no such entry. No evidence: anybody may have written it.
#[doc(hidden)]
pub fn present_member(
    set: &str,
    election: &str,
    identity: &str,
    advertisement: &Advertisement,
) -> Option<CandidateInfo> {
    election.strip_prefix(&prefix_of(set))?;
    let statement = Statement::read(advertisement)?;
    Some(Present { identity: identity.into(), statement }.info())
}

/// The presence of a member, if the lock needs one.
pub(super) enum MaybePresence {
    /// The lock carries roll calls, as far as is known.
    NotNeeded(Box<ElectionBuilder>),
    /// It carries none.
    Held(Presence),
    /// The entry cannot be held: the member knows only those that lead something.
    Impossible,
}

/// The presence of this member, and what it knows of that of others.
pub(super) struct Presence {
    election: Election,
    stated: Statement,
    view: Arc<View>,
}

/// What is needed to read the entries.
pub(super) struct View {
    set: Arc<str>,
    own: String,
    lock: Arc<dyn Lock>,
    clock: Arc<dyn Clock>,
    /// When each entry was seen first at its revision: not every lock frees what is not renewed.
    seen: Mutex<BTreeMap<String, (Revision, Instant)>>,
}

impl Presence {
    /// Begins to hold the entry.
    pub fn begin(
        election: ElectionBuilder,
        stated: Statement,
        (set, lock, clock): (Arc<str>, Arc<dyn Lock>, Arc<dyn Clock>),
    ) -> Result<Self, StartError> {
        let election = election.advertise(stated.to_advertisement()).start()?;
        let own = election.name().to_owned();
        let view = Arc::new(View { set, own, lock, clock, seen: Mutex::default() });
        Ok(Self { election, stated, view })
    }

    /// States this from the next renewal on.
    pub fn state(&mut self, statement: Statement) {
        if statement != self.stated {
            // An error: the statement is too long, and the one before stays.
            let _ = self.election.advertise(statement.to_advertisement());
            self.stated = statement;
        }
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    pub async fn stop(&self) {
        self.election.stop().await;
    }
}

impl View {
    /// The other members that are there.
    pub async fn read(&self) -> Result<Vec<Present>, LockError> {
        let prefix = prefix_of(&self.set);
        let names = self.lock.names(READ_WITHIN).await?;
        let names = names.into_iter().filter(|name| name.starts_with(&prefix) && *name != self.own);
        let names: Vec<_> = names.take(MAX_MEMBERS).collect();
        let mut present = Vec::new();
        for name in &names {
            if let Reading::Found(record) = self.lock.read(name, READ_WITHIN).await?
                && let Content::Held(entry) = record.content
                && self.is_fresh(name, record.revision, entry.ttl)
                && let Some(found) = present_of(entry)
            {
                present.push(found);
            }
        }
        self.seen().retain(|name, _| names.contains(name));
        Ok(present)
    }

    /// Whether it was written within its lease, as far as this member has seen.
    fn is_fresh(&self, name: &str, revision: Revision, lease: Duration) -> bool {
        let now = self.clock.now();
        let mut seen = self.seen();
        match seen.get(name) {
            Some((same, since)) if *same == revision => now < *since + lease,
            _ => {
                seen.insert(name.to_owned(), (revision, now));
                true
            }
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Revision, Instant)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn present_of(entry: Entry) -> Option<Present> {
    let statement = Statement::read(entry.advertisement.as_deref()?)?;
    Some(Present { identity: entry.identity, statement })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_read_as_it_was_written() {
        let load = MemberLoad { shards: 64, load: 7, weight: 2, max: Some(0), resizing: Some(128) };
        let takes = vec![(3, Nonce(1)), (63, Nonce(u64::MAX))];
        let statement = Statement { load, standing: Standing::Aside, takes };
        assert_eq!(Statement::read(&statement.to_advertisement()), Some(statement.clone()));
        let present = Present { identity: "m1".into(), statement };
        let loads: Vec<_> = present.requests().map(|(shard, r)| (shard, r.load.load)).collect();
        assert_eq!(loads, [(3, 7), (63, 8)], "each counts those before it");
    }

    #[test]
    fn what_no_member_wrote_is_no_statement() {
        let with =
            |load: &str| Advertisement::new("x").with("load", load).with("standing", "ready");
        for load in ["", "7", "7/64", "7/*2", "-1/64*1", "7/64*2*3", "99999999999/1*1"] {
            assert_eq!(Statement::read(&with(load)), None, "{load:?}");
        }
        let odd = with("1/2*3").with("takes", ",,x:1,5:,7:zz,8:0a");
        assert_eq!(Statement::read(&odd).map(|read| read.takes), Some(vec![(8, Nonce(10))]));
    }

    #[test]
    fn many_requests_fit_into_an_advertisement() {
        let load = MemberLoad { load: u32::MAX, ..MemberLoad::new(u32::MAX, 1_000) };
        let takes = (0..100).map(|n| (u32::MAX - n, Nonce(u64::MAX))).collect();
        let statement = Statement { load, standing: Standing::Ready, takes };
        assert_eq!(statement.to_advertisement().check(), Ok(()));
    }
}
