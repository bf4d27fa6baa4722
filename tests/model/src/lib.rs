//! Explores every schedule of a small election around the production state machine of `incumbent`.

mod config;
mod key;
mod lock;
mod moves;
mod process;
mod report;
mod state;

use std::sync::Arc;

use stateright::{Model, Property};

pub use config::{Config, Fault};
pub use moves::{Move, Sights};
pub use report::{Bounds, Outcome, explore};

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
        moves::moves(state, actions);
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
            Property::sometimes("somebody leads", |_, state: &State| state.leaders() == 1),
        ]
    }
}
