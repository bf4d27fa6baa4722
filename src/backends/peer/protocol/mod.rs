//! The rules of a group as a pure state machine.
//!
//! A [`Group`] takes what happened and when, and answers what to send and to tell. It reads no clock, draws no randomness
//! but from its seed, and opens no socket:
//!
//! ```
//! use std::time::Duration;
//! use incumbent::clock::Instant;
//! use incumbent::peer::protocol::{Action, Event, Group, Settings};
//!
//! let mut group = Group::new(Settings::new("c1", 10.0));
//! let mut now = Instant::from_origin(Duration::from_secs(100));
//! group.handle(now, Event::Start);
//! while !group.leads() {
//!     now = group.next_wake().expect("a hello is due");
//!     group.handle(now, Event::Wake);
//! }
//! assert_eq!(now, Instant::from_origin(Duration::from_secs(102)), "two intervals: nobody else is there");
//! ```

mod chunks;
mod group;
mod member;
mod types;
mod wire;

pub use group::Group;
pub(crate) use group::check_event;
pub use member::Member;
pub use types::{Action, Change, Event, Settings};
