//! The elections for all browsers: what is known, and what each of them is sent.

use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::updates::{self, About, Page, Updates};
use crate::console::model::{Answer, Command, Model, Moment, Observation};
use crate::error::{CliError, Code};
use crate::lock::elections::ElectionRecord;

/// How often changes are sent at most.
pub const SEND_EVERY: Duration = Duration::from_millis(200);
/// The most browsers. Each has a connection for as long as it looks.
const VIEWERS: usize = 32;
/// How many events a slow browser may be behind before it is sent everything again.
const BEHIND: usize = 64;
/// How many requests to the lock wait.
const WAITING: usize = 16;

/// What is known of the elections.
pub struct HubState {
    about: About,
    /// `None` before the first read.
    model: Option<Model>,
    updates: Updates,
    /// Everything, as it was sent last, for those who come before anything else is sent.
    snapshot: Option<(Event, Instant)>,
}

/// What the server and the reader share.
pub struct Shared {
    known: Mutex<HubState>,
    events: broadcast::Sender<Event>,
    /// How many browsers look.
    pub viewers: watch::Sender<usize>,
}

/// A request to the lock, and where its answer goes.
pub struct Request {
    pub election: String,
    pub asked: Command,
    pub answer: oneshot::Sender<Result<Answer, CliError>>,
}

/// The elections, for the server.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// The events of a browser. The lock is read for as long as this exists.
pub struct Viewer {
    shared: Arc<Shared>,
    events: broadcast::Receiver<Event>,
    /// What the browser is sent first.
    first: Option<Event>,
}

impl Hub {
    /// Returns what the reader needs, too.
    pub fn new(names: Vec<String>, page: Page) -> (Self, Arc<Shared>, mpsc::Receiver<Request>) {
        let about = About { lock: String::new(), names, page, failing: None };
        let known = HubState { about, model: None, updates: Updates::default(), snapshot: None };
        let shared = Arc::new(Shared {
            known: Mutex::new(known),
            events: broadcast::Sender::new(BEHIND),
            viewers: watch::Sender::new(0),
        });
        let (requests, asked) = mpsc::channel(WAITING);
        (Self { shared: Arc::clone(&shared), requests }, shared, asked)
    }

    /// The events of one more browser; `None` if there are too many.
    pub fn viewer(&self) -> Option<Viewer> {
        let shared = Arc::clone(&self.shared);
        let is_admitted = shared.viewers.send_if_modified(|count| {
            let is_admitted = *count < VIEWERS;
            *count += usize::from(is_admitted);
            is_admitted
        });
        let (first, events) = is_admitted.then(|| shared.subscribe())?;
        Some(Viewer { shared, events, first: Some(first) })
    }

    /// Whether the page may change elections.
    pub fn allows_changes(&self) -> bool {
        self.shared.known.lock().about.page.changes
    }

    /// Whether the page shows this election.
    pub fn shows(&self, election: &str) -> bool {
        let names = &self.shared.known.lock().about.names;
        names.is_empty() || names.iter().any(|name| name == election)
    }

    /// Sends a request to the lock.
    pub async fn ask(&self, election: String, asked: Command) -> Result<Answer, CliError> {
        let (answer, answered) = oneshot::channel();
        self.requests.try_send(Request { election, asked, answer }).map_err(|_| busy())?;
        answered.await.unwrap_or_else(|_| {
            let message = "no response, as the lock fails: see the page whether it was done";
            Err(CliError::new(Code::Unreachable, message))
        })
    }
}

pub(super) fn busy() -> CliError {
    CliError::new(Code::Unreachable, "too many requests at once: try again in a second")
}

impl Viewer {
    /// The next events. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                let (first, events) = self.shared.subscribe();
                self.events = events;
                Some(first)
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.shared.viewers.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Shared {
    /// Everything known, and the events from then on.
    fn subscribe(&self) -> (Event, broadcast::Receiver<Event>) {
        let mut known = self.known.lock();
        let now = Moment::now();
        // Many who come at once are sent the same.
        if let Some((snapshot, made)) = &known.snapshot
            && now.at < *made + SEND_EVERY
        {
            return (snapshot.clone(), self.events.subscribe());
        }
        self.send(&mut known, now); // to those before, so that nothing is sent twice
        let snapshot = updates::snapshot(&known.about, known.model.as_ref(), now);
        known.snapshot = Some((snapshot.clone(), now.at));
        (snapshot, self.events.subscribe())
    }

    /// Sends what has changed.
    fn send(&self, known: &mut HubState, now: Moment) {
        let HubState { model: Some(model), updates, .. } = known else { return };
        if let Some(event) = updates.changes(model, now) {
            self.broadcast(known, event);
        }
    }

    fn broadcast(&self, known: &mut HubState, event: Event) {
        known.snapshot = None;
        let _ = self.events.send(event); // an error: nobody looks
    }

    /// That the reader lives, although nothing has changed.
    pub fn beat(&self) {
        let _ = self.events.send(Event::default().comment("alive"));
    }

    /// Forgets the elections: what happens from now on is not seen.
    pub fn reset(&self) {
        let mut known = self.known.lock();
        known.model = None;
        known.updates = Updates::default();
        known.about.failing = None;
        self.send_everything(&mut known);
    }

    /// The lock is open. What was known is shown until it is read.
    pub fn opened(&self, lock: String) {
        let mut known = self.known.lock();
        if known.about.lock != lock {
            known.about.lock = lock;
            self.send_everything(&mut known);
        }
    }

    fn send_everything(&self, known: &mut HubState) {
        let everything = updates::snapshot(&known.about, known.model.as_ref(), Moment::now());
        self.broadcast(known, everything);
    }

    /// Takes an observation. `first` is the model until something was read: then it replaces the
    /// one of an earlier reader.
    pub fn observe(&self, first: &mut Option<Model>, observed: Observation) {
        let mut known = self.known.lock();
        if known.about.failing.take().is_some() {
            self.broadcast(&mut known, updates::failing(None));
        }
        let HubState { model, updates, .. } = &mut *known;
        if first.is_some() {
            *model = first.take(); // browsers are sent how it differs from the one before
        }
        let Some(model) = model else { return };
        let written = match &observed {
            Observation::Written(ElectionRecord { election, .. })
            | Observation::One { election, .. } => Some(election.clone()),
            Observation::All(..) | Observation::Unchanged(_) => None,
        };
        let is_all = matches!(observed, Observation::All(..));
        let transitions = model.observe(observed, Moment::now());
        match written {
            Some(name) => updates.note(&name),
            None if is_all => updates.note_all(model),
            None => {}
        }
        updates.note_transitions(&transitions);
    }

    /// Takes the answers to a roll call.
    pub fn take_roll(&self, election: &str, answer: &Result<Answer, CliError>) {
        if let Ok(Answer::Roll(roll)) = answer
            && let HubState { model: Some(model), updates, .. } = &mut *self.known.lock()
        {
            model.take_roll(election, roll.clone(), Moment::now());
            updates.note(election);
        }
    }

    /// Ends the terms of holders that have not renewed in time, and sends what has changed.
    pub fn tick(&self, now: Moment) {
        let mut known = self.known.lock();
        if let HubState { model: Some(model), updates, .. } = &mut *known {
            updates.note_transitions(&model.expire(now));
        }
        if known.updates.is_due(now) {
            self.send(&mut known, now);
        }
    }

    /// Sends the browsers that the lock cannot be read.
    pub fn fail(&self, failure: &CliError) {
        let reason = failure.to_string();
        let mut known = self.known.lock();
        if known.about.failing.as_ref() != Some(&reason) {
            self.broadcast(&mut known, updates::failing(Some(&reason)));
            known.about.failing = Some(reason);
        }
    }
}
