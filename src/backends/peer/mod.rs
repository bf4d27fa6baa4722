//! A group of peers that elect a leader among themselves, without a server.
//!
//! **A group guarantees that there is a leader, not that there is only one**: two partitions have
//! two leaders, and after a lost message a group has two leaders for a moment. So a [`Peer`] has no
//! token and no [`Leadership`](crate::Leadership), and its `is_leader` is only a belief.
//!
//! The protocol is that of democracy 3.1 for Node.js, on UDP, and members of both form one group:
//! each member sends a hello each second, a member that is silent for 3 s is removed, and without a
//! leader the heaviest remaining member is elected.
//!
//! ```no_run
//! use incumbent::peer::{Change, Peer};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let peer = Peer::builder()
//!     .bind(([10, 0, 0, 3], 12345))
//!     .peer(([10, 0, 0, 4], 12345))
//!     .weight(10.0)
//!     .start()?;
//! let mut changes = peer.changes();
//! while let Some(change) = changes.next().await {
//!     match change {
//!         Change::Elected => println!("this member leads"),
//!         Change::Resigned => println!("this member lost the leadership"),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Security
//! Without a [key](PeerBuilder::key) messages are not signed: any process that can send to a
//! member's port can elect and remove leaders. Restrict the port to a network of members, or give
//! all members a key. Messages are never encrypted.

mod builder;
mod driver;
mod handle;
#[cfg(feature = "kubernetes")]
mod kubernetes_service;
pub mod protocol;
pub mod quorum;
mod quorum_lock;
mod quorum_peer;
mod seal;
mod shared;
mod sockets;
mod source;
mod start_error;

pub use builder::PeerBuilder;
pub use handle::{Changes, EventError, Peer};
#[cfg(feature = "kubernetes")]
pub use kubernetes_service::KubernetesService;
pub use protocol::{Change, Member};
pub use quorum_lock::QuorumLock;
pub use quorum_peer::{QuorumBuilder, QuorumPeer, QuorumStartError};
pub use seal::RefusedDatagrams;
pub use source::{DnsSource, PeerSource, SourceError};
pub use start_error::{BindError, PeerStartError};
