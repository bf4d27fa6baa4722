//! Explores every schedule of a small election around the production state machine of `incumbent`.
//!
//! Two or three [`Elector`](incumbent::protocol::Elector)s, as they run in production, one entry on
//! a model of the lock, and between them whatever may happen: each order of what falls in one tick,
//! requests and answers lost, late or twice, crashes, restarts, pauses of any length, deletes by an
//! admin, resignations, stops, work that will not stop. `stateright` visits the states breadth
//! first and looks at the promises in each: at most one leads by its own right (its clock against
//! its deadline, until its work has stopped), tokens grow, terms begin and end in turn, and nothing
//! is given up before the work has stopped. Where the election keeps a checkpoint, no write of a
//! former term is stored over that of a later one, and what was acknowledged is never lost, is part
//! of what each later term begins with, and is of one history.
//!
//! # What represents what
//! - **Time** passes in ticks, two to six of them a lease with its margin for drift, so no margin
//!   hides in a rounding. Whatever is due between two ticks happens at the later one. All clocks
//!   run at one rate: drift is left to the simulation.
//! - **Chance**: all that the machine draws comes as early as it may, and [`Config::late`] lets
//!   anything come later. Only the jitter of retries is one draw out of many. Standbys poll each
//!   tick rather than each few seconds, which is the more eager.
//! - **Faults** are bounded in number ([`Config::faults`]), not in time: unless there is a bound on
//!   the depth or the horizon the exploration ends because nothing new can happen, however long the
//!   election continues.
//! - **States** that differ in names and dates only are one: instants count from now and are cut
//!   off where the machine does not distinguish them any more; revisions, tokens, the numbers of
//!   writes and the nonces of processes are replaced by their rank (the machine only compares
//!   them); candidates that are set up alike may change places; what is only reported to people is
//!   left out. None of this adds a behaviour or takes one away, which [`confirm`] puts to the test.
//! - **Hints** are whole ([`Config::hints`]) or there are none, and any may get lost at no cost.
//! - A response that is not awaited any more is not delivered, as the driver drops its future.
//!
//! A fingerprint has 64 bits, so two states may by chance be taken for one: with 10 million of them
//! the odds of any such pair are one in 400,000.

mod checkpoint;
mod config;
mod confirm;
mod key;
mod lock;
mod presets;
mod process;
mod report;
mod sentinel;
mod state;
mod transitions;

use std::sync::Arc;

use stateright::{Model, Property};

pub use config::{Config, Fault};
pub use confirm::confirm;
pub use presets::{checkpoints, large, small};
pub use report::{Bounds, Outcome, explore};
pub use transitions::{Move, Sights};

use process::Breach;
use state::State;

/// An election, every schedule of which is to be explored.
#[derive(Debug, Clone)]
pub(crate) struct Election {
    config: Arc<Config>,
    sights: Arc<Sights>,
}

impl Model for Election {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        transitions::transitions(state, actions);
    }

    fn next_state(&self, last: &State, step: Move) -> Option<State> {
        let mut state = last.clone();
        state.make(step, &self.sights, &mut None);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn not(state: &State, breach: Breach) -> bool {
            state.breach != Some(breach)
        }
        vec![
            Property::always("at most one leads", |_, state: &State| state.leaders() <= 1),
            Property::always("tokens grow", |_, state| not(state, Breach::Token)),
            Property::always("terms begin and end in turn", |_, state| not(state, Breach::Order)),
            Property::always("the work stops before the entry is given up", |_, state| {
                not(state, Breach::Early)
            }),
            Property::always("no former term writes the checkpoint", |_, state| {
                not(state, Breach::Former)
            }),
            Property::always("no save that was acknowledged is lost", |_, state| {
                not(state, Breach::Lost)
            }),
            Property::always("a term begins with what was acknowledged", |_, state| {
                not(state, Breach::Older)
            }),
            Property::always("saves are of one history", |_, state| not(state, Breach::Histories)),
            Property::sometimes("there is a leader", |_, state: &State| state.leaders() == 1),
        ]
    }
}
