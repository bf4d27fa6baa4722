//! Requests in flight to the locks of an election.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::lock::{self, HintSink, Lock, LockError, LockErrorKind, Request, Subscription};
use crate::protocol::{LockFailure, Response};
use crate::time::clock::Instant;
use crate::util::text::{error_chain, escape_line};

/// How long a step-down notice, which has no response, may take to be sent.
const STEP_DOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a candidate acquires nothing that was started before the lock stated this.
const CHORIA_UNEXPECTED: &str = "the bucket states that Choria's candidates take part, and this candidate was started without that: set with_choria() (--with-choria, ?with-choria), or restart it";

/// A lock, and the request in flight to it.
pub(crate) struct LockRequests {
    pub lock: Arc<dyn Lock>,
    /// The request under way.
    request: Option<BoxFuture<'static, Settled>>,
    subscription: Subscription,
    wants_all_hints: bool,
}

/// A request that has its response.
pub(crate) struct Settled {
    pub id: u64,
    pub sent: Instant,
    /// Whether it was a renewal.
    pub renews: bool,
    pub response: Response,
}

impl LockRequests {
    pub fn new(lock: Arc<dyn Lock>, name: &str, sink: HintSink) -> Self {
        Self {
            request: None,
            subscription: lock.subscribe(name, sink),
            wants_all_hints: false,
            lock,
        }
    }

    /// Has all hints sent from now on, or a few where the lock can send few.
    pub fn want_all_hints(&mut self, wanted: bool) {
        if std::mem::replace(&mut self.wants_all_hints, wanted) != wanted {
            self.subscription.want_all(wanted);
        }
    }

    /// Begins a request, in the place of one that is under way. A create is refused where the lock
    /// has Choria's candidates, by what is known now, and this one keeps no time for them.
    pub fn ask(
        &mut self,
        id: u64,
        sent: Instant,
        name: Arc<str>,
        request: Request,
        with_choria: bool,
    ) {
        let renews = matches!(&request, Request::Write(write) if write.mark.token.is_some());
        let creates = !renews && matches!(request, Request::Write(_));
        let refused = creates && !with_choria && self.lock.timing().with_choria;
        let lock = Arc::clone(&self.lock);
        self.request = Some(Box::pin(async move {
            let response = match refused {
                true => Response::Written(Err(LockFailure::new(
                    LockErrorKind::Misconfigured,
                    CHORIA_UNEXPECTED,
                ))),
                false => perform(&*lock, &name, request).await,
            };
            Settled { id, sent, renews, response }
        }));
    }
}

/// A response to a request in flight, and to which lock that was.
pub(crate) fn poll_response(
    locks: &mut [LockRequests],
    cx: &mut Context<'_>,
) -> Poll<(usize, Settled)> {
    for (index, lock) in locks.iter_mut().enumerate() {
        if let Some(request) = &mut lock.request
            && let Poll::Ready(settled) = request.as_mut().poll(cx)
        {
            lock.request = None;
            return Poll::Ready((index, settled));
        }
    }
    Poll::Pending
}

/// Sends a request, and returns its response.
pub(crate) async fn perform(lock: &dyn Lock, name: &str, request: Request) -> Response {
    match request {
        Request::Read { timeout } => {
            Response::Read(within(timeout, lock.read(name, timeout)).await)
        }
        Request::Write(write) => {
            Response::Written(within(write.timeout, lock.write(name, write)).await)
        }
        Request::Release(check) if check.is_check() => {
            let checked = lock.check_release(name, check.timeout);
            Response::Released(within(check.timeout, checked).await)
        }
        Request::Release(release) => {
            Response::Released(within(release.timeout, lock.release(name, release)).await)
        }
        Request::NotifyStepDown(notice) => {
            Response::Notified(within(STEP_DOWN_TIMEOUT, lock.notify_step_down(name, notice)).await)
        }
    }
}

/// As [`lock::within`], with the error as the machine takes it.
pub(crate) async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockFailure> {
    lock::within(timeout, request).await.map_err(|error| failure(&error))
}

/// The most bytes of an error that are reported.
const MAX_ERROR_LEN: usize = 1_024;

fn failure(error: &LockError) -> LockFailure {
    let message = error_chain(error);
    LockFailure::new(error.kind(), escape_line(&message, MAX_ERROR_LEN))
}
