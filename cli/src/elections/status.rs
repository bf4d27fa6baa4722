//! Who holds an election, whatever lock tells.

use std::sync::Arc;
use std::time::Duration;

use incumbent::Advertisement;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::text;
use crate::{output, time_format};

/// How coarse the times of the older Kubernetes objects are.
const COARSENESS: Duration = Duration::from_secs(1);

/// The last write to an election.
#[derive(Debug, Clone)]
pub struct ElectionStatus {
    pub election: String,
    pub revision: u64,
    /// None where the lock does not say.
    pub written: Option<OffsetDateTime>,
    pub state: LeaderStatus,
}

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderStatus {
    Held(Holder),
    /// Nobody leads, and why.
    Vacant(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub leader: String,
    /// None where the leader is not of this library.
    pub token: Option<u64>,
    pub since: Option<OffsetDateTime>,
    /// How long others wait for it when it does not renew, where no server ends its term.
    pub lease: Option<Duration>,
    /// Where it can be reached, if it says so.
    pub advertisement: Option<Arc<Advertisement>>,
    /// How often it has written, where that is told.
    pub writes: Option<u64>,
    /// Of a leader for life.
    pub pod: Option<PodInfo>,
}

/// What there is to know of the pod of a leader for life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    pub uid: String,
    /// As `kubectl` shows it.
    pub phase: String,
    pub gone: bool,
    /// The UID of the lock.
    pub lock: String,
}

impl Holder {
    /// Whether it is the same term; one without a token lasts as long as its leader.
    pub fn is_same_term(&self, other: &Self) -> bool {
        match (&self.pod, &other.pod) {
            // The version of a lock, which is the token, changes with whatever is written to it.
            (Some(a), Some(b)) => (&a.uid, &a.lock) == (&b.uid, &b.lock),
            _ => self.leader == other.leader && self.token == other.token,
        }
    }
}

impl ElectionStatus {
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            LeaderStatus::Held(holder) => Some(holder),
            LeaderStatus::Vacant(_) => None,
        }
    }

    /// Whether the holder has not renewed for a lease, by our clock, and nobody has written that it is gone.
    pub fn is_overdue(&self) -> bool {
        let lease = self.holder().and_then(|holder| holder.lease);
        let age = self.written.map(time_format::age);
        lease.zip(age).is_some_and(|(lease, age)| age > lease.saturating_add(COARSENESS))
    }

    pub fn json(&self) -> Value {
        let holder = self.holder();
        let pod = holder.and_then(|holder| holder.pod.as_ref());
        let cause = match &self.state {
            LeaderStatus::Held(_) => None,
            LeaderStatus::Vacant(cause) => Some(cause),
        };
        let said = holder.and_then(|holder| holder.advertisement.as_deref());
        let mut told = json!({
            "election": self.election,
            "leader": holder.map(|holder| &holder.leader),
            "token": holder.and_then(|holder| holder.token),
            "since": holder.and_then(|holder| holder.since).map(time_format::rfc3339),
            "renewed": holder.filter(|_| pod.is_none()).and(self.written).map(time_format::rfc3339),
            "overdue": self.is_overdue(),
            "address": said.map(Advertisement::address),
            "metadata": said.map(Advertisement::metadata),
            "vacant": cause,
            "revision": self.revision,
        });
        if let (Some(pod), Some(told)) = (pod, told.as_object_mut()) {
            told.insert("pod".to_owned(), json!({"uid": pod.uid, "phase": pod.phase}));
        }
        told
    }
}

/// How a leader is shown.
pub fn shown(holder: &Holder) -> String {
    let leader = output::bold(text::printable(&holder.leader));
    match &holder.pod {
        Some(pod) => {
            let (uid, phase) = (text::printable(&pod.uid), text::printable(&pod.phase));
            format!("pod {leader} ({phase}, UID {uid})")
        }
        None => leader,
    }
}
