//! Signed datagrams: members that share a key accept each other's datagrams only.
//!
//! A signed datagram is `magic | tag | kind | start | number | body`. `start` is a number that its
//! sender drew at random at its start; `number` counts the datagrams of that start. The tag is an
//! HMAC over all the rest. So a recorded datagram cannot be replayed while its sender is known. A
//! start that is not known, because either side started recently, must first repeat a number that
//! only this member can have drawn, recently: earlier recordings cannot contain it. Clocks of
//! different machines are never compared.
//!
//! A datagram ends in ASCII: democracy's decoder carries half a character over into the next
//! datagram.

mod guard;
mod key;
mod refusals;
mod window;

pub(super) use guard::{Guard, OVERHEAD, Opened, is_signed};
pub(super) use key::{Key, keys, read_file};
pub use refusals::RefusedDatagrams;
pub(super) use refusals::{Reason, Refusals};
