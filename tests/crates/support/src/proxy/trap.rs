//! What waits for one kind of request.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::request::Request;
use crate::poll::LIMIT;

/// What happens to a request that walks into a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    LoseRequest,
    LoseReply,
}

/// A trap as the connections see it.
pub(crate) struct Rule {
    effect: Effect,
    armed: AtomicBool,
    matches: Box<dyn Fn(&Request) -> bool + Send + Sync>,
    sprung: UnboundedSender<Request>,
}

impl Rule {
    pub(crate) fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the request walks into it, which then takes no other.
    pub(crate) fn takes(&self, request: &Request) -> bool {
        let answered = self.effect == Effect::LoseRequest || request.reply.is_some();
        self.armed.load(Ordering::SeqCst)
            && answered
            && (self.matches)(request)
            && self.armed.swap(false, Ordering::SeqCst)
    }

    /// Tells that what it was set for has happened.
    pub(crate) fn spring(&self, request: Request) {
        let _ = self.sprung.send(request);
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("effect", &self.effect).finish_non_exhaustive()
    }
}

/// The traps that are set.
#[derive(Debug, Default)]
pub(crate) struct Traps(Mutex<Vec<Arc<Rule>>>);

impl Traps {
    /// The first trap that the request walks into.
    pub(crate) fn taking(&self, request: &Request) -> Option<Arc<Rule>> {
        let rules = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rules.into_iter().find(|rule| rule.takes(request))
    }

    pub(crate) fn set(
        self: &Arc<Self>,
        effect: Effect,
        matches: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Trap {
        let (sprung, events) = unbounded_channel();
        let rule = Arc::new(Rule {
            effect,
            armed: AtomicBool::new(true),
            matches: Box::new(matches),
            sprung,
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(rule.clone());
        Trap { rule, events, traps: Arc::downgrade(self) }
    }
}

/// A trap that was set on a [`Proxy`](crate::Proxy). Dropping it takes it away.
#[derive(Debug)]
#[must_use = "dropping a trap takes it away"]
pub struct Trap {
    rule: Arc<Rule>,
    events: UnboundedReceiver<Request>,
    traps: Weak<Traps>,
}

impl Trap {
    /// Waits until it has done what it was set for (swallowed the request, or its reply),
    /// and gives the request.
    ///
    /// # Panics
    ///
    /// After two minutes without any.
    pub async fn sprung(&mut self) -> Request {
        match timeout(LIMIT, self.events.recv()).await {
            Ok(Some(request)) => request,
            Ok(None) => unreachable!("the trap itself keeps the sender"),
            Err(_) => {
                panic!("waited {LIMIT:?} for a request to walk into the trap {:?}", self.rule)
            }
        }
    }

    /// The next request that it has caught already, if there is one.
    pub fn caught(&mut self) -> Option<Request> {
        self.events.try_recv().ok()
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.rule.armed.store(false, Ordering::SeqCst);
        if let Some(traps) = self.traps.upgrade() {
            let mut rules = traps.0.lock().unwrap_or_else(PoisonError::into_inner);
            rules.retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        }
    }
}
