//! The rules of an election as a pure state machine.
//!
//! An [`Elector`] takes what happened and when, and returns what to do. It reads no clock, draws no
//! randomness but from its seed, performs no I/O and knows nothing of async, so the same code runs
//! in production, in a simulation and under a model checker.
//!
//! **Unstable**: for a driver or a simulation of one's own. A minor release may change the
//! [`Elector`], its settings, events and actions. What the root of the crate exports too is stable.
//!
//! ```
//! use std::time::Duration;
//! use incumbent::clock::Instant;
//! use incumbent::lock::{Capabilities, Nonce, Reading, Revision};
//! use incumbent::protocol::{Action, Response, Elector, Event, Settings, Timing, TimingOptions};
//!
//! let lock = Capabilities {
//!     min_lease: Duration::from_secs(1),
//!     max_lease: Duration::from_secs(5),
//!     can_read: true,
//!     empty_is_proof: false,
//!     expires_entries: true,
//!     reads_are_durable: true,
//!     max_identity_len: 100,
//! };
//! let timing = lock.timing(TimingOptions::default())?;
//! let mut elector = Elector::new(Settings::new("c1", Nonce(1), timing), lock);
//! let mut now = Instant::from_origin(Duration::from_secs(100));
//!
//! // The election is empty, and the lock vouches that no write was stored for a lease: the first create leads at once.
//! elector.handle(now, Event::Start);
//! loop {
//!     match elector.poll_action() {
//!         Some(Action::Request { id, request }) => {
//!             let response = match request {
//!                 incumbent::lock::Request::Read { .. } => Response::Read(Ok(Reading::Empty { proof: true })),
//!                 incumbent::lock::Request::Write(_) => Response::Written(Ok(Revision(20))),
//!                 other => unreachable!("{other:?}"),
//!             };
//!             elector.handle(now, Event::Response { id, response });
//!         }
//!         Some(Action::Begin { token, .. }) => {
//!             assert_eq!(token.0, 20);
//!             break;
//!         }
//!         Some(_) => {}
//!         None => {
//!             now = elector.next_wake().expect("an elector always waits for something");
//!             elector.handle(now, Event::Wake);
//!         }
//!     }
//! }
//! # Ok::<(), incumbent::protocol::TimingError>(())
//! ```

mod acquire;
mod backoff;
mod checkpoint;
mod context;
mod cool_down;
mod crash_release;
mod drain;
mod elector;
#[cfg(feature = "_model")]
mod fingerprint;
mod health;
mod holding;
mod lock_health;
mod moves;
mod multi;
mod observations;
mod sampling;
pub mod set;
mod standby;
mod stepping_down;
mod types;

#[cfg(feature = "kubernetes")]
pub(crate) use crate::time::timing::DRIFT_DIVISOR;
pub use crate::time::timing::{
    COMMON_MIN_LEASE, MAX_LEASE, MIN_LEASE, MIN_RENEWAL, Timing, TimingError, TimingOptions,
};
#[cfg(feature = "_history")]
pub(crate) use backoff::delay_of;
pub use backoff::{Backoff, BackoffPolicy};
pub use checkpoint::{CheckpointProgress, CheckpointRequest, CheckpointResponse, CheckpointWriter};
pub use crash_release::{CRASHED, CrashOutcome, CrashRelease, CrashStep, RegisteredTerm};
pub use drain::Drain;
pub use elector::Elector;
#[cfg(feature = "_model")]
#[doc(hidden)]
pub use fingerprint::FingerprintSink;
pub use health::Health;
pub use moves::{Chosen, Found, Moves, Refusal};
pub(crate) use multi::MemberSettings;
pub use multi::MultiElector;
pub(crate) use observations::PreviousTerm;
pub use types::{
    Action, Cause, CoolDown, Event, Leader, LockFailure, Rank, Response, Settings, State,
    WaitReason,
};
