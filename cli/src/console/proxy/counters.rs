//! The metrics of a proxy.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{InspectReader, InspectWriter};

/// Counts the bytes that passed.
type Count = Box<dyn FnMut(&[u8]) + Send>;

/// A connection whose bytes are counted.
type Counted<S> = InspectWriter<InspectReader<S, Count>, Count>;

/// The metrics of a proxy. Without a recorder they cost nothing.
pub struct Counters {
    pub open: Gauge,
    pub opened: Counter,
    pub held: Gauge,
    pub cut: Counter,
    /// Closed as there were too many.
    pub over_limit: Counter,
    /// Closed at the end of the hold.
    pub not_connected: Counter,
    /// 1 while there is a fresh leader.
    pub has_leader: Gauge,
    gaps: Histogram,
    to_leader: Counter,
    from_leader: Counter,
}

impl Counters {
    pub fn new(election: &str) -> Self {
        let election = || [("election", election.to_owned())];
        let with = |key, value: &str| [("election", election()[0].1.clone()), (key, value.into())];
        let refused = |why| counter!("incumbent_proxy_refused_total", &with("reason", why));
        let bytes = |to| counter!("incumbent_proxy_bytes_total", &with("direction", to));
        Self {
            open: gauge!("incumbent_proxy_connections", &election()),
            opened: counter!("incumbent_proxy_connections_total", &election()),
            held: gauge!("incumbent_proxy_held", &election()),
            cut: counter!("incumbent_proxy_cut_total", &election()),
            over_limit: refused("limit"),
            not_connected: refused("hold"),
            has_leader: gauge!("incumbent_proxy_has_leader", &election()),
            gaps: histogram!("incumbent_proxy_gap_seconds", &election()),
            to_leader: bytes("to_leader"),
            from_leader: bytes("from_leader"),
        }
    }

    /// A gap between two leaders is over.
    pub fn record_gap(&self, gap: Duration) {
        self.gaps.record(gap);
    }

    /// Counts what passes this connection to a leader.
    pub fn count<S: AsyncRead + AsyncWrite>(&self, leader: S) -> Counted<S> {
        let count = |bytes: &Counter| -> Count {
            let bytes = bytes.clone();
            Box::new(move |passed| bytes.increment(passed.len() as u64))
        };
        let leader = InspectReader::new(leader, count(&self.from_leader));
        InspectWriter::new(leader, count(&self.to_leader))
    }
}

/// One more of what a gauge counts, as long as this lives.
pub struct OneMore(Gauge);

impl OneMore {
    pub fn of(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for OneMore {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
