//! The metrics of a proxy, and a stream that counts its bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
    pub fn count<S>(&self, leader: S) -> Counted<S> {
        Counted { leader, to: self.to_leader.clone(), from: self.from_leader.clone() }
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

/// A connection to a leader whose bytes are counted.
pub struct Counted<S> {
    pub leader: S,
    to: Counter,
    from: Counter,
}

impl<S> Counted<S> {
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.to.increment(*bytes as u64);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.leader).poll_read(cx, buffer);
        self.from.increment((buffer.filled().len() - before) as u64);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.leader).poll_write(cx, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.leader).poll_write_vectored(cx, parts);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.leader.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.leader).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.leader).poll_shutdown(cx)
    }
}
