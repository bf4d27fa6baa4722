//! Streams of changes.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// A stream of changes, as of an election's [`Change`](crate::Change)s. It ends with its source.
pub struct Changes<C>(BoxStream<'static, C>);

impl<C> Changes<C> {
    pub(crate) fn new(changes: impl Stream<Item = C> + Send + 'static) -> Self {
        Self(changes.fuse().boxed())
    }

    /// What a channel carries; `None`: it is closed. `missed`: says that this many were dropped.
    pub(crate) fn of(receiver: Option<Receiver<C>>, missed: fn(u64) -> C) -> Self
    where
        C: Clone + Send + 'static,
    {
        Self::new(stream::unfold(receiver, move |receiver| async move {
            let mut receiver = receiver?;
            let change = match receiver.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(dropped)) => missed(dropped),
                Err(RecvError::Closed) => return None,
            };
            Some((change, Some(receiver)))
        }))
    }

    /// The next change; `None` when it has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<C> {
        self.0.next().await
    }
}

impl<C> Stream for Changes<C> {
    type Item = C;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<C>> {
        self.0.poll_next_unpin(cx)
    }
}

partial_debug!(Changes<C>, self);
