//! The rules of a group as a pure state machine.
//!
//! **Unstable**: for a driver or a simulation of one's own. A minor release may change the types in
//! here. What [`peer`](super) itself exports is stable.
//!
//! A [`Group`] handles events with their time, and returns actions: datagrams to send and changes
//! to report. It reads no clock, draws randomness only from its seed, and opens no socket:
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
//! assert_eq!(now, Instant::from_origin(Duration::from_secs(102)), "two intervals: no other member");
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
