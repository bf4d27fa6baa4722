//! The begin and the end of a term, as the driver performs them.

use std::num::NonZeroU64;
use std::sync::Arc;

use tracing::{Instrument, error, info};

use super::Driver;
use super::term_end::TermEnd;
use crate::election::change::Change;
use crate::election::inbox::Input;
use crate::election::leadership::Leadership;
use crate::election::term::Term;
use crate::election::term_span::TermSpan;
use crate::lock::Token;
use crate::protocol::{Cause, State};
use crate::time::clock::Instant;

impl Driver {
    pub(super) fn begin(&mut self, token: Token, deadline: Instant) {
        let number = self.term.and_then(|term| term.checked_add(1)).unwrap_or(NonZeroU64::MIN);
        self.term = Some(number);
        let shared = Arc::clone(self.shared());
        let grace = self.machine.least_grace();
        let takeover = self.vacant_since.take().map(|since| self.now().saturating_since(since));
        let after = self.machine.previous_term();
        let span = TermSpan::open((&shared.name, &shared.identity), token, takeover, after);
        let term = Term::new(shared.term_owner(), token, number, deadline, grace, span);
        term.set_lock_failure(shared.status.borrow().lock_failure.clone());
        if let Some(tokens) = self.machine.tokens() {
            term.set_tokens(tokens); // before anybody holds it
        }
        self.telemetry().won(takeover, after);
        term.span().in_scope(|| info!(%token, "became leader"));
        if let Some(part) = &mut self.set_part {
            part.begin();
        }
        shared.leads_until.set(Some(deadline));
        // Held before anybody else may hold and drop it.
        let won = self.callbacks.as_ref().and_then(|callbacks| callbacks.won.clone());
        let leadership = won.as_ref().and_then(|_| Leadership::of(&term));
        shared.update(|status| {
            status.state = State::Leader;
            status.term = Some(Arc::clone(&term));
        });
        if let Some(callback) = won
            && let Some(leadership) = leadership
        {
            let term_span = term.span();
            let work = async move {
                // A runtime may come to it late.
                if term.over().is_none() {
                    term.run_to_the_last(callback(leadership)).await;
                }
            };
            self.tasks().work = Some(tokio::spawn(work.instrument(term_span)));
        }
        shared.publish(Change::Won { token });
    }

    pub(super) fn end(&mut self, cause: Cause, by: Instant) {
        let shared = Arc::clone(self.shared());
        shared.leads_until.set(None);
        let mut term = None;
        shared.update(|status| {
            status.state = State::Candidate;
            term = status.term.take();
        });
        self.drain_is_over();
        if let Some(part) = &mut self.set_part {
            part.end();
        }
        let Some(term) = term else {
            error!("a term ended that had not begun: please report this");
            return self.shared().inbox.send(Input::Stop);
        };
        let loss = term.announce_end(cause, by);
        self.telemetry().lost(&loss.cause);
        let end = TermEnd {
            shared,
            term,
            loss,
            work: self.tasks().work.take(),
            on_lost: self.callbacks.as_ref().and_then(|callbacks| callbacks.lost.clone()),
            grace: self.machine.settings().timing.grace(),
            loss_published: false,
        };
        self.tasks().ending = Some(Box::pin(end.run()));
    }
}
