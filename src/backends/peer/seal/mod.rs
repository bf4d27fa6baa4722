//! Signed datagrams: members that share a key listen to each other only.
//!
//! A signed datagram is `magic | tag | kind | start | number | body`, and says who wrote it by a number that its sender drew at
//! its start, and which of the datagrams of that start it is. The tag is an HMAC over all the rest. So what was recorded cannot be
//! sent again while its sender is known. One that is not known yet, since either began a short time ago, is asked to repeat a
//! number that only this member can have drawn, a short time ago: what was recorded earlier cannot contain it. No clock of another
//! machine is compared.
//!
//! A datagram ends in ASCII: democracy's decoder carries half a character over into the next datagram.

mod guard;
mod key;
mod refusals;
mod window;

pub(super) use guard::{Guard, OVERHEAD, Opened, is_signed};
pub(super) use key::{Key, keys, read_file};
pub use refusals::RefusedDatagrams;
pub(super) use refusals::{Reason, Refusals};
