//! Streams of changes.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, Stream, StreamExt};

/// A stream of changes, as of an election's [`Change`](crate::Change)s. It ends with its source.
pub struct Changes<C>(BoxStream<'static, C>);

impl<C> Changes<C> {
    pub(crate) fn new(changes: impl Stream<Item = C> + Send + 'static) -> Self {
        Self(changes.boxed())
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
