//! What the processes of a run write down.

pub mod fenced_store;
pub mod history;
pub mod journal;
