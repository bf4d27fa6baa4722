//! What callers hold of an election: handles, the leadership of a term, a step of its work.

pub(crate) mod change;
pub(crate) mod checkpoint;
pub(crate) mod claimed_checkpoint;
pub(crate) mod hand_over;
pub(crate) mod handle;
pub(crate) mod hint_queue;
pub(crate) mod inbox;
pub(crate) mod leadership;
pub(crate) mod loss;
pub(crate) mod observer;
pub(crate) mod shared;
pub(crate) mod step;
pub(crate) mod term;
pub(crate) mod term_span;
pub(crate) mod watch;

pub use change::Change;
pub use checkpoint::Checkpoint;
pub use claimed_checkpoint::{CheckpointError, CheckpointErrorKind};
pub use hand_over::HandOverError;
pub use handle::{Election, Stopped};
pub use leadership::Leadership;
pub use loss::{DrainNotice, Loss};
pub use observer::Observer;
pub use step::Step;
pub use watch::{Status, StatusWatch, Wait};
