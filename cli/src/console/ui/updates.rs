//! What the page is sent: everything at first, then what has changed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use axum::response::sse::Event;
use serde_json::{Map, Value, json};
use tokio::time::{Duration, Instant};

use crate::console::model::{ElectionView, Model, Moment, TAIL, Transition};
use crate::output::text::plain_json;
use crate::output::time_format;

/// What a page offers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page {
    /// Whether it may change elections.
    pub changes: bool,
    /// Whether there is a recording.
    pub recording: bool,
}

/// The lock, and what the page does with it.
#[derive(Debug)]
pub struct About {
    /// The lock; empty until it was opened.
    pub lock: String,
    /// The elections that were selected by name.
    pub names: Vec<String>,
    pub page: Page,
    /// Why the lock cannot be read, if it cannot.
    pub failing: Option<String>,
}

/// How often the sets are sent at most: each of them is summed up over all elections.
const SETS_EVERY: Duration = Duration::from_secs(1);

/// The most shards without a leader that are named.
const SHARDS: usize = 20;

/// Fields that change with time or with each renewal.
const VOLATILE: [&str; 6] =
    ["renewed", "overdue", "revision", "deadline", "remaining_ms", "leaderless_ms"];

/// What has been sent of an election.
struct Sent {
    /// Of the fields that a renewal leaves as they are.
    hash: u64,
    deadline: Option<Instant>,
}

/// What has been sent, and what is to be sent.
#[derive(Default)]
pub struct Updates {
    sent: HashMap<String, Sent>,
    changed: BTreeSet<String>,
    /// The latest ones, at most as many as a model keeps.
    transitions: VecDeque<Value>,
    /// The sets that were sent last.
    sets: Option<Value>,
    sets_at: Option<Instant>,
    are_sets_due: bool,
    /// Whether anything has been sent, if only that there are no elections.
    has_begun: bool,
}

impl Updates {
    /// One election may have changed.
    pub fn note(&mut self, name: &str) {
        if !self.changed.contains(name) {
            self.changed.insert(name.to_owned());
        }
    }

    /// All elections may have changed, and some may be gone.
    pub fn note_all(&mut self, model: &Model) {
        model.elections().for_each(|known| self.note(known.name()));
        self.changed
            .extend(self.sent.keys().filter(|name| model.election(name).is_none()).cloned());
    }

    /// These changes of leadership were observed.
    pub fn note_transitions(&mut self, transitions: &[Transition]) {
        for transition in transitions.iter().filter(|transition| !transition.found) {
            self.note(&transition.election);
            if self.transitions.len() == TAIL {
                self.transitions.pop_front();
            }
            self.transitions.push_back(transition.json());
        }
    }

    /// The changes since the last time, as an event; `None` if there are none.
    pub fn changes(&mut self, model: &Model, now: Moment) -> Option<Event> {
        let (mut elections, mut renewed, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for name in std::mem::take(&mut self.changed) {
            let Some(known) = model.election(&name) else {
                self.sent.remove(&name);
                gone.push(name);
                continue;
            };
            let (fields, hash) = fields(known, now);
            let deadline = known.deadline().map(|end| end.at);
            match self.sent.insert(name, Sent { hash, deadline }) {
                Some(sent) if sent.hash == hash && sent.deadline == deadline => {}
                Some(sent) if sent.hash == hash => {
                    renewed.push(json!([known.name(), fields["remaining_ms"]]));
                }
                _ => elections.push(fields),
            }
        }
        self.are_sets_due |= !elections.is_empty() || !gone.is_empty();
        let sets = self.changed_sets(model, now);
        let transitions = std::mem::take(&mut self.transitions);
        let is_empty =
            elections.is_empty() && renewed.is_empty() && gone.is_empty() && transitions.is_empty();
        if is_empty && sets.is_none() && self.has_begun {
            return None;
        }
        self.has_begun = true;
        let mut changes = json!({
            "time": time_format::rfc3339(now.wall),
            "elections": elections,
            "renewed": renewed,
            "gone": gone,
            "transitions": transitions,
        });
        changes["sets"] = sets.unwrap_or(Value::Null);
        Some(event("changes", changes))
    }

    /// The sets, if they are others than those that were sent last.
    fn changed_sets(&mut self, model: &Model, now: Moment) -> Option<Value> {
        if !self.are_sets_due || !self.is_time_for_sets(now) {
            return None;
        }
        self.are_sets_due = false;
        self.sets_at = Some(now.at);
        let sets = sets(model);
        if self.sets.as_ref() == Some(&sets) {
            return None;
        }
        self.sets = Some(sets.clone());
        Some(sets)
    }

    fn is_time_for_sets(&self, now: Moment) -> bool {
        self.sets_at.is_none_or(|last| now.at >= last + SETS_EVERY)
    }

    /// Whether something waits to be sent.
    pub fn is_due(&self, now: Moment) -> bool {
        !self.has_begun
            || !self.changed.is_empty()
            || !self.transitions.is_empty()
            || self.are_sets_due && self.is_time_for_sets(now)
    }
}

/// Everything, as an event.
pub fn snapshot(about: &About, model: Option<&Model>, now: Moment) -> Event {
    let mut everything = json!({
        "lock": about.lock,
        "names": about.names,
        "failing": about.failing,
        "changes": about.page.changes,
        "recording": about.page.recording,
        "time": time_format::rfc3339(now.wall),
        "is_read": model.is_some(),
    });
    if let Some(model) = model {
        everything["elections"] = model.elections().map(|known| fields(known, now).0).collect();
        everything["transitions"] = model.transitions().map(Transition::json).collect();
        everything["sets"] = sets(model);
    }
    event("snapshot", everything)
}

/// That the lock cannot be read, or can be again.
pub fn failing(reason: Option<&str>) -> Event {
    event("failing", json!({ "reason": reason }))
}

/// The sets, with as many shards without a leader as a page names.
fn sets(model: &Model) -> Value {
    let sets = model.sets().into_iter().map(|mut set| {
        let leaderless = set.leaderless.len();
        set.leaderless.truncate(SHARDS);
        let mut fields = set.json();
        fields["leaderless_count"] = leaderless.into();
        fields
    });
    sets.collect()
}

/// The fields of an election, and a hash of those that a renewal leaves as they are.
fn fields(known: &ElectionView, now: Moment) -> (Value, u64) {
    let fields = known.json(now);
    let mut hasher = DefaultHasher::new();
    let lasting = fields.as_object().into_iter().flat_map(Map::iter);
    for (name, value) in lasting.filter(|(name, _)| !VOLATILE.contains(&name.as_str())) {
        (name, value).hash(&mut hasher);
    }
    (fields, hasher.finish())
}

/// A server-sent event. JSON has no line breaks.
fn event(name: &str, data: Value) -> Event {
    Event::default().event(name).data(plain_json(as_text(data).to_string()))
}

/// With tokens and revisions as text: a number of a page is exact up to 2^53 only.
pub fn as_text(mut data: Value) -> Value {
    let mut waiting = vec![&mut data];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Array(all) => waiting.extend(all),
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::Number(number) if name == "token" || name == "revision" => {
                            *value = Value::String(number.to_string());
                        }
                        _ => waiting.push(value),
                    }
                }
            }
            _ => {}
        }
    }
    data
}
