//! A connection that ends with the term of its leader.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{Leaders, is_same_term};
use crate::protocol::Leader;

/// The term of a leader, as an observer sees it.
#[derive(Debug)]
pub struct FollowedTerm {
    leaders: Leaders,
    leader: Leader,
    is_over: bool,
}

impl FollowedTerm {
    /// `leaders`: returned this leader last.
    pub(super) fn new(leaders: Leaders, leader: Leader) -> Self {
        Self { leaders, leader, is_over: false }
    }

    /// The leader, as it was at the beginning.
    pub fn leader(&self) -> &Leader {
        &self.leader
    }

    /// Waits until the term is over: another leader, another token or a vacancy was observed, or
    /// the leader was not seen to renew within its lease. Cancel safe.
    pub async fn over(&mut self) {
        poll_fn(|cx| self.poll_over(cx)).await;
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_over {
            let next = ready!(Pin::new(&mut self.leaders).poll_next(cx));
            self.is_over = !is_same_term(next.flatten().as_ref(), Some(&self.leader));
        }
        Poll::Ready(())
    }
}

/// A connection to a leader. Once the term is over, it fails with
/// [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) as it is read or written, and what it
/// has not sent yet is dropped.
///
/// It is for one task: of two that have its halves, only one is woken at the end of the term.
#[derive(Debug)]
pub struct LeaderStream {
    stream: TcpStream,
    term: FollowedTerm,
}

impl LeaderStream {
    pub(super) fn new(stream: TcpStream, term: FollowedTerm) -> Self {
        Self { stream, term }
    }

    /// The connection without its end, for what waits for that itself.
    pub fn into_parts(self) -> (TcpStream, FollowedTerm) {
        (self.stream, self.term)
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.term.poll_over(cx).is_pending() {
            return Ok(());
        }
        let _ = self.stream.set_zero_linger(); // an error: it is closed already
        let line = format!("the term of {} is over", self.term.leader.identity);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, line))
    }
}

impl AsyncRead for LeaderStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LeaderStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for LeaderStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
