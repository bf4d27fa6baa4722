//! Sentinels: a crashed leader is replaced in milliseconds.
//!
//! A sentinel is a process beside the leader's, with a connection to the lock of its own:
//! `incumbent sentinel`. Each term is registered with it over a Unix socket. When the process is
//! dead, the sentinel releases its entries with the same conditional delete that a leader uses that
//! stops, and another candidate leads at once. If the sentinel fails in any way, the lease decides
//! as without one.
//!
//! **A program that registers declares that its work dies with its process.** Work that lives
//! elsewhere does not: a child process that outlives it, a remote call in flight, a container that
//! it started. Wrap the program, as in `incumbent sentinel -- PROGRAM`, to have its children killed
//! first; the fencing [`Token`](crate::Token) is for the rest.
//!
//! ```no_run
//! # async fn f(lock: impl incumbent::lock::Lock) -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::new_election;
//! use incumbent::sentinel::Sentinel;
//!
//! let sentinel = Sentinel::at("/run/user/1000/incumbent/socket");
//! let election = new_election("my_app", lock).sentinel(sentinel).start()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod registration;
mod start_time;
mod wire;

#[doc(hidden)]
pub use super::crash_release::{check_registered, check_release, release_crashed};
#[doc(hidden)]
pub use address::connect;
pub use address::{ENVIRONMENT, Sentinel};
pub(crate) use registration::Registrations;
#[doc(hidden)]
pub use start_time::start_time;
#[doc(hidden)]
pub use wire::{HEARTBEAT, SentinelMessage, SentinelReply, VERSION, encode, read_message};
