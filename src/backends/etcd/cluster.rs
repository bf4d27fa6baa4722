//! The identity and the history of the cluster that responses come from.

use std::time::Duration;

use tokio::time::Instant;

use super::codec::Origin;
use super::messages::Header;

/// The cluster in use. Two clusters at the addresses of one configuration would each elect a
/// leader, so the responses of another one are refused, until every lease of the first is over.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The identifier, and when a response of this cluster arrived last.
    known: Option<(u64, Instant)>,
    lease: Duration,
    seen: Seen,
    /// Of the last response.
    origin: Origin,
    /// The greatest revision that a response has shown, in any era.
    revision: u64,
}

/// How far the cluster has come, as responses have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// How often it was set back, as by a restored snapshot. What was read in an earlier era shows
    /// nothing of this one, though it looks the same: later writes may have been lost.
    pub era: u64,
    raft_term: u64,
    revision: i64,
}

impl Seen {
    fn of(header: Header, era: u64) -> Self {
        Self { era, raft_term: header.raft_term, revision: header.revision }
    }

    /// Whether a linearizable response to a request that was sent later is of an earlier state: no
    /// cluster that continues returns one.
    pub fn is_later_than(self, header: Header) -> bool {
        // Some responses have no revision, or no term: see `Cluster::origin_of`.
        let is_later = (1..self.revision).contains(&header.revision);
        is_later || (1..self.raft_term).contains(&header.raft_term)
    }
}

impl Cluster {
    /// `lease`: the longest lease of a leader.
    pub fn new(lease: Duration) -> Self {
        let (seen, origin) = (Seen::default(), Origin::default());
        Self { known: None, lease, seen, origin, revision: 0 }
    }

    /// Whether there was a response.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// The origin of the last response.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The origin of a response. One without a term has that of the last response of its cluster: a
    /// member that received a snapshot of the leader's knows no term until it applies a write.
    pub fn origin_of(&self, header: Header) -> Origin {
        let origin = header.origin();
        let is_unknown = origin.raft_term == 0 && origin.cluster_id == self.origin.cluster_id;
        if is_unknown { self.origin } else { origin }
    }

    /// The greatest revision that a response has shown.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What has been seen, for a request that is sent now.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// Records a response, and returns the era that it belongs to. `sent`: what had been seen when
    /// the request was sent; `None`: the response may be of an earlier state, as that of a watch.
    ///
    /// # Errors
    /// The identifier of the cluster in use, if it is another one.
    pub fn answered(
        &mut self,
        header: Header,
        sent: Option<Seen>,
        now: Instant,
    ) -> Result<u64, u64> {
        let id = header.cluster_id;
        let before = self.known.filter(|(known, _)| *known != id);
        if let Some((known, last)) = before
            && now < last + self.lease * 2
        {
            return Err(known);
        }
        self.known = Some((id, now));
        self.origin = self.origin_of(header);
        self.revision = self.revision.max(header.revision.unsigned_abs());
        let is_set_back = sent.is_some_and(|sent| sent.is_later_than(header));
        // Unless another response has shown it already.
        let is_first = sent.is_none_or(|sent| sent.era == self.seen.era);
        if before.is_some() || is_set_back && is_first {
            self.seen = Seen::of(header, self.seen.era.wrapping_add(1));
        }
        if before.is_some() || is_set_back {
            return Ok(self.seen.era);
        }
        if is_first {
            self.seen.raft_term = self.seen.raft_term.max(header.raft_term);
            self.seen.revision = self.seen.revision.max(header.revision);
        }
        Ok(sent.map_or(self.seen.era, |sent| sent.era))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn header(cluster_id: u64, raft_term: u64, revision: i64) -> Header {
        Header { cluster_id, revision, raft_term }
    }

    #[test]
    fn another_cluster_is_used_after_every_lease_of_the_first() {
        let mut cluster = Cluster::new(LEASE);
        let start = Instant::now();
        let mut answered = |id, leases| {
            let header = header(id, 1, 1);
            cluster.answered(header, None, start + LEASE * leases)
        };
        assert_eq!(answered(1, 0), Ok(0));
        assert_eq!(answered(1, 1), Ok(0));
        assert_eq!(answered(2, 2), Err(1));
        assert_eq!(answered(2, 3), Ok(1), "what was read in the first one shows nothing");
        assert_eq!(answered(1, 3), Err(2));
    }

    /// By its term of Raft or by its revision, whichever is less than what was seen.
    #[test]
    fn a_cluster_that_was_set_back_is_in_another_era() {
        let now = Instant::now();
        for (term, revision) in [(2, 900), (5, 90)] {
            let mut cluster = Cluster::new(LEASE);
            assert_eq!(cluster.answered(header(1, 5, 100), None, now), Ok(0));
            let sent = cluster.seen();
            assert_eq!(cluster.answered(header(1, 5, 0), Some(sent), now), Ok(0));
            assert_eq!(cluster.answered(header(1, 0, 100), Some(sent), now), Ok(0));
            assert_eq!(cluster.answered(header(1, 4, 99), None, now), Ok(0), "a watch is late");
            assert_eq!(cluster.answered(header(1, term, revision), Some(sent), now), Ok(1));
            // The others that were on their way show nothing new.
            assert_eq!(cluster.answered(header(1, term, revision), Some(sent), now), Ok(1));
            assert_eq!(cluster.answered(header(1, 5, 101), Some(sent), now), Ok(0), "of before");
            let sent = Some(cluster.seen());
            assert_eq!(cluster.answered(header(1, term, revision), sent, now), Ok(1));
        }
    }

    /// Otherwise the release in a restored snapshot would count.
    #[test]
    fn a_response_without_a_term_has_the_last_one_of_its_cluster() {
        let mut cluster = Cluster::new(LEASE);
        let now = Instant::now();
        assert_eq!(cluster.origin_of(header(1, 0, 9)).raft_term, 0, "nothing is known");
        for (term, last) in [(3, 3), (0, 3), (4, 4)] {
            cluster.answered(header(1, term, 9), None, now).expect("the cluster in use");
            assert_eq!(cluster.origin(), header(1, last, 9).origin());
        }
        assert_eq!(cluster.origin_of(header(2, 0, 9)).raft_term, 0, "another cluster");
    }

    /// Responses come in any order: each is compared with what was seen before its request.
    #[test]
    fn a_late_response_is_no_restored_snapshot() {
        let now = Instant::now();
        let mut cluster = Cluster::new(LEASE);
        let sent = Some(cluster.seen());
        assert_eq!(cluster.answered(header(1, 3, 50), sent, now), Ok(0));
        assert_eq!(cluster.answered(header(1, 2, 40), sent, now), Ok(0));
    }
}
