//! The leader as the one endpoint of a balancer of tower.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use tower::discover::Change;

use super::Leaders;
use crate::lock::{Advertisement, Token};
use crate::protocol::Leader;
use crate::util::changes::Changes;

/// What tells the leaders of [`Leaders::discover`] apart: who, in which term, and where.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaderKey {
    /// Who leads.
    pub identity: Arc<str>,
    /// The token of the term.
    pub token: Option<Token>,
    /// Where the leader can be reached.
    pub advertisement: Option<Arc<Advertisement>>,
}

impl From<&Leader> for LeaderKey {
    fn from(leader: &Leader) -> Self {
        let Leader { identity, token, advertisement, .. } = leader.clone();
        Self { identity, token, advertisement }
    }
}

impl Leaders {
    /// The leader as a [`tower::discover::Discover`] of one service, or none.
    ///
    /// `service_of` returns the service of a leader; `None` leaves that leader out, as one without
    /// a valid address. The service of a former leader is removed when its term is over by the
    /// clock of this process, and when the observer has stopped.
    pub fn discover<S: Send + 'static>(
        self,
        mut service_of: impl FnMut(&Leader) -> Option<S> + Send + 'static,
    ) -> Changes<Result<Change<LeaderKey, S>, Infallible>> {
        let mut present: Option<LeaderKey> = None;
        let leaders = self.chain(stream::once(ready(None))); // none is known to lead then
        Changes::new(leaders.flat_map(move |leader| {
            let removed = present.take().map(Change::Remove);
            let inserted = leader.and_then(|leader| {
                let service = service_of(&leader)?;
                let key = present.insert(LeaderKey::from(&leader));
                Some(Change::Insert(key.clone(), service))
            });
            stream::iter([removed, inserted].into_iter().flatten().map(Ok))
        }))
    }
}
