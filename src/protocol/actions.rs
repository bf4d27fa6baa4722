//! What an elector has to do.

use std::collections::VecDeque;

use super::types::Action;

/// The actions that have not been taken yet, in their order. They take no memory while there are
/// none, as almost always.
#[derive(Debug, Clone, Default)]
pub(super) struct Actions(VecDeque<Action>);

impl Actions {
    pub fn push_back(&mut self, action: Action) {
        self.0.push_back(action);
    }

    pub fn extend(&mut self, action: Option<Action>) {
        self.0.extend(action);
    }

    pub fn pop_front(&mut self) -> Option<Action> {
        let action = self.0.pop_front();
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        action
    }
}
