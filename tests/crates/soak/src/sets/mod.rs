//! A set under faults: its members are killed, stopped, paused, partitioned and added, and what
//! they have worked on is checked.

mod fleet;
mod ledger;
mod member;
mod plot;
mod run;
mod store;
mod ticks;

pub use ledger::{Gap, Ledger};
pub use member::{Member, be_member};
pub use run::{SetPlan, SetReport, soak_set};
pub use store::StoreKind;
pub use ticks::{Line, TickLog, monotonic_ns};
