//! The answers of an election's candidates to a roll call.

use std::cmp::Reverse;

use incumbent::CandidateInfo;
use incumbent::lock::{CoolDownLeft, Role};
use serde_json::{Value, json};

use super::moment::Moment;
use crate::elections::Holder;
use crate::time_format;

/// The candidates that answered a roll call: the leader first, then the standbys in the order of
/// succession.
#[derive(Debug, Clone)]
pub struct Candidates {
    pub read: Moment,
    list: Vec<CandidateInfo>,
}

impl Candidates {
    pub fn new(read: Moment, mut list: Vec<CandidateInfo>) -> Self {
        // The order in which a leader that hands over picks its successor.
        list.sort_by_cached_key(|info| {
            (!is_leader(info), info.standing, Reverse((info.priority, info.nonce.0)))
        });
        Self { read, list }
    }

    pub fn list(&self) -> &[CandidateInfo] {
        &self.list
    }

    /// What this leader states of itself.
    pub fn of(&self, leader: &Holder) -> Option<&CandidateInfo> {
        self.list.iter().find(|info| is_leader(info) && *info.identity == *leader.leader)
    }

    pub fn json(&self) -> Value {
        self.list.iter().map(candidate_json).collect()
    }
}

fn is_leader(info: &CandidateInfo) -> bool {
    matches!(info.role, Role::Leader | Role::Draining)
}

/// When a candidate started.
pub fn started(info: &CandidateInfo) -> Option<String> {
    time_format::from_unix_ms(info.since_unix_ms).map(time_format::rfc3339)
}

/// The fields of `election members -o json`.
pub fn candidate_json(info: &CandidateInfo) -> Value {
    json!({
        "identity": info.identity,
        "nonce": info.nonce.to_string(),
        "role": info.role.as_str(),
        "standing": info.standing.as_str(),
        "site": info.site,
        "priority": info.priority,
        "since": started(info),
        "version": info.version,
        "leader": info.leader,
        "token": info.token.map(|token| token.0),
        "cool_down": info.cool_down.as_ref().map(cool_down_json),
    })
}

/// What is left of the cool-down of a holder.
pub fn cool_down_json(left: &CoolDownLeft) -> Value {
    json!({"left_ms": left.left_ms, "reason": left.reason})
}
