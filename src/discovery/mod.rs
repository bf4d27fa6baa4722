//! The leader, for those who send it requests: as a stream, and as connections that end with its
//! term.
//!
//! All of it judges by the clock of this process: a leader that was not seen to renew within its
//! lease is none any more, also if nothing arrives that says so, as while the lock cannot be
//! reached. An observer knows the end of a term a little later than the leader itself, whose
//! deadline is that of its writes: the server that is asked checks its own
//! [`Leadership`](crate::Leadership), or fences what it writes with the token.

#[cfg(feature = "tower")]
mod connector;
#[cfg(feature = "tower")]
mod discover;
#[cfg(feature = "tower")]
mod stream;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};

#[cfg(feature = "tower")]
pub use self::connector::{ConnectError, LeaderConnector};
#[cfg(feature = "tower")]
pub use self::discover::LeaderKey;
#[cfg(feature = "tower")]
pub use self::stream::{FollowedTerm, LeaderStream};
use crate::election::{Observer, StatusWatch};
use crate::protocol::Leader;

/// The fresh leader, now and each time it changes: a stream of
/// [`fresh_leader`](Observer::fresh_leader).
///
/// `None`: no leader is known, or it was not seen to renew within its lease. Level-triggered: a
/// slow reader gets the newest leader. Renewals are no changes. It sends no requests of its own,
/// and ends once the observer stops.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use incumbent::memory::MemoryLock;
/// use incumbent::discovery::Leaders;
/// # let lock = MemoryLock::new();
/// # let election = incumbent::new_election("my_app", lock.clone()).advertise("10.0.0.1:80").start()?;
///
/// let mut leaders = Leaders::new(incumbent::observe("my_app", lock)?);
/// while let Some(leader) = leaders.next().await {
///     match leader {
///         Some(leader) => {
///             println!("{} at {:?}", leader.identity, leader.advertisement);
/// #           break;
///         }
///         None => println!("no leader, or no recent sign of one"),
///     }
/// }
/// # election.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Leaders(BoxStream<'static, Option<Leader>>);

impl Leaders {
    /// The leaders that this observer sees.
    pub fn new(observer: Observer) -> Self {
        let follower = Follower { watch: observer.watch(), observer, last: None };
        let next = async |mut follower: Follower| Some((follower.next().await?, follower));
        Self(unfold(follower, next).fuse().boxed())
    }

    /// The leader at once in the first call, and in later ones when it differs from the last one
    /// returned; `None` once the observer has stopped. Cancel safe.
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        self.0.next().await
    }
}

impl Stream for Leaders {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(cx)
    }
}

partial_debug!(Leaders, self);

/// Looks for another leader than the last one.
struct Follower {
    observer: Observer,
    watch: StatusWatch,
    /// What was returned last.
    last: Option<Option<Leader>>,
}

impl Follower {
    async fn next(&mut self) -> Option<Option<Leader>> {
        loop {
            let leader = self.observer.fresh_leader();
            if self.last.as_ref().is_none_or(|last| !is_same(last.as_ref(), leader.as_ref())) {
                self.last = Some(leader.clone());
                return Some(leader);
            }
            self.watch.changed().await.then_some(())?;
        }
    }
}

/// Whether they differ by nothing but a renewal.
fn is_same(one: Option<&Leader>, other: Option<&Leader>) -> bool {
    let advertised = |leader: &Leader| leader.advertisement.clone();
    is_same_term(one, other) && one.map(advertised) == other.map(advertised)
}

/// Whether both are the leader of one term, wherever it can be reached.
fn is_same_term(one: Option<&Leader>, other: Option<&Leader>) -> bool {
    let term = |leader: &Leader| (Arc::clone(&leader.identity), leader.token, leader.since_unix_ms);
    one.map(term) == other.map(term)
}
