//! The claim of the checkpoint: between the start of a term for the machine, and for everybody
//! else.

use std::future::Future;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Fuse, FutureExt as _};

use crate::election::claimed_checkpoint::{CheckpointError, ClaimedCheckpoint};
use crate::lock::Token;
use crate::time::clock::Instant;

pub(super) type ClaimOutcome = Result<Box<ClaimedCheckpoint>, CheckpointError>;

/// The claim of a term that has begun for the machine alone. The entry is renewed meanwhile.
pub(super) struct Claim {
    pub token: Token,
    /// Of the term.
    pub deadline: Instant,
    outcome: Fuse<BoxFuture<'static, ClaimOutcome>>,
}

impl Claim {
    pub fn new(
        token: Token,
        deadline: Instant,
        outcome: impl Future<Output = ClaimOutcome> + Send + 'static,
    ) -> Self {
        Self { token, deadline, outcome: outcome.boxed().fuse() }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ClaimOutcome> {
        self.outcome.poll_unpin(cx)
    }
}
