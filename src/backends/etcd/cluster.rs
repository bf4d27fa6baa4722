//! The identity of the cluster that responses come from.

use std::time::Duration;

use tokio::time::Instant;

/// The cluster in use. Two clusters at the addresses of one configuration would each elect a
/// leader, so the responses of another one are refused, until every lease of the first is over.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The identifier, and when a response of this cluster arrived last.
    known: Option<(u64, Instant)>,
    lease: Duration,
}

impl Cluster {
    /// `lease`: the longest lease of a leader.
    pub fn new(lease: Duration) -> Self {
        Self { known: None, lease }
    }

    /// Records a response.
    ///
    /// # Errors
    /// The identifier of the cluster in use, if it is another one.
    pub fn answered(&mut self, id: u64, now: Instant) -> Result<(), u64> {
        match self.known {
            Some((known, last)) if known != id && now < last + self.lease * 2 => Err(known),
            _ => {
                self.known = Some((id, now));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cluster_is_used_once_every_lease_of_the_first_is_over() {
        let lease = Duration::from_secs(5);
        let mut cluster = Cluster::new(lease);
        let start = Instant::now();
        assert_eq!(cluster.answered(1, start), Ok(()));
        assert_eq!(cluster.answered(1, start + lease), Ok(()));
        assert_eq!(cluster.answered(2, start + lease * 2), Err(1));
        assert_eq!(cluster.answered(2, start + lease * 3), Ok(()));
        assert_eq!(cluster.answered(1, start + lease * 3), Err(2));
    }
}
