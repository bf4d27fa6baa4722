//! The callbacks of a candidate.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::FutureExt;

use super::ElectionBuilder;
use crate::election::leadership::Leadership;
use crate::election::loss::{DrainNotice, Loss};
use crate::protocol::{Leader, State};

impl ElectionBuilder {
    /// The work of a term: called when this candidate becomes leader, in a task of its own.
    ///
    /// The term lasts while the [`Leadership`] is held, so a callback that only takes note ends
    /// with `leadership.ended().await`. When the term ends, the future has the grace to return.
    /// Then it is dropped at its next await point, at the deadline at the latest, also if the
    /// candidate's task is gone. A panic ends the term like a failure of the work. It is not
    /// called for a term that is over before its task came to run.
    pub fn on_won<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Leadership) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.won = Some(Arc::new(move |leadership| callback(leadership).boxed()));
        self
    }

    /// Called once at the end of each term, after its work has stopped and before the entry is
    /// released.
    ///
    /// The candidate takes part again when the returned future is done. It is dropped if it is not
    /// done by the deadline of the lost term, or by the grace after the work stopped, whichever
    /// is later; one that blocks its thread then is not waited for any further. It is not
    /// called where the task of the candidate itself ends with its runtime.
    pub fn on_lost<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Loss) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.lost = Some(Arc::new(move |loss| callback(loss).boxed()));
        self
    }

    /// Called once when a term begins to drain: see [`drain`](Self::drain). A call that is running
    /// when the term ends is dropped. A panic is logged.
    pub fn on_drain<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(DrainNotice) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.drain = Some(Arc::new(move |notice| callback(notice).boxed()));
        self
    }

    /// Called at each write that campaigns, a create or a renewal, with the state at that moment.
    /// While a call is running, further calls are left out. A call that is running when the
    /// candidate stops is dropped. A panic ends the term like a failure of the work.
    pub fn on_campaign<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(State) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.campaign = Some(Arc::new(move |state| callback(state).boxed()));
        self
    }

    /// Called with the leader when it has changed, and with `None` when there is none any more:
    /// also when this candidate becomes leader (`is_me`), and not when it only advertises
    /// another address. One call at a time; leaders that come and go during a call are left out. A
    /// call that is running when the candidate stops is dropped. A panic is logged.
    pub fn on_new_leader<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Option<Leader>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.new_leader = Some(Arc::new(move |leader| callback(leader).boxed()));
        self
    }
}
