//! What the driver of an election receives from outside.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::oneshot;
use tokio::task::coop::poll_proceed;

use super::hand_over::HandOverError;
use crate::lock::{Advertisement, Hint, Readiness, Successor};
use crate::protocol::Rank;
use crate::util::locked;

/// Where the outcome of a handover goes: the identity of the successor.
pub(crate) type HandOverReply = oneshot::Sender<Result<Arc<str>, HandOverError>>;

/// An input of the driver.
pub(crate) enum Input {
    Hint {
        /// The lock that sent it.
        lock: usize,
        hint: Box<Hint>,
    },
    /// There were too many hints: the driver fetches what they were merged to.
    HintsMissed,
    /// Of the given term, or of whichever is current.
    Resign {
        term: Option<NonZeroU64>,
    },
    /// Of the given term, or of whichever is current.
    HandOver {
        term: Option<NonZeroU64>,
        to: Box<Successor>,
        reply: HandOverReply,
    },
    /// The member of the set that the candidate belongs to gives the shard to the member of this
    /// identity.
    Give {
        to: Arc<str>,
        reply: HandOverReply,
    },
    WorkEnded {
        term: NonZeroU64,
        panicked: bool,
    },
    /// The next write of the candidate states it.
    Advertise(Arc<Advertisement>),
    /// The result of a check.
    Checked(Result<(), Arc<str>>),
    /// The candidate stands aside from now on, or no longer does.
    StandAside(bool),
    /// How ready the member of the set is that the candidate belongs to.
    Readiness(Readiness),
    /// When the candidate acquires a vacant entry from now on.
    Rank(Rank),
    Stop,
    /// No drain is waited for any longer.
    EndDrain,
}

/// Where inputs wait for the driver. Never blocks.
///
/// Not one of tokio's channels, which takes more than 2 KiB while it is empty: most of the memory
/// of an election.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Input>,
    /// Of the driver, while it waits.
    waker: Option<Waker>,
    closed: bool,
}

impl Inbox {
    /// Once the candidate has stopped, an input changes nothing any more, and is dropped.
    pub fn send(&self, input: Input) {
        // What is dropped or woken is so without the lock: either may come back here.
        let mut queue = locked(&self.0);
        if queue.closed {
            drop(queue);
            return drop(input);
        }
        queue.waiting.push_back(input);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next input. Takes part in tokio's budget, so that a flood of inputs holds up no other
    /// task.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Input> {
        let budget = ready!(poll_proceed(cx));
        self.poll_recv(cx).map(|input| {
            budget.made_progress();
            input
        })
    }

    fn poll_recv(&self, cx: &Context<'_>) -> Poll<Input> {
        let mut queue = locked(&self.0);
        if let Some(input) = queue.take() {
            return Poll::Ready(input);
        }
        let waits = queue.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let before = if waits { None } else { queue.waker.replace(cx.waker().clone()) };
        drop(queue);
        drop(before);
        Poll::Pending
    }

    /// The next input, if there is one.
    #[cfg(test)]
    pub fn try_recv(&self) -> Option<Input> {
        locked(&self.0).take()
    }

    /// The driver takes no more inputs.
    pub fn close(&self) {
        let mut queue = locked(&self.0);
        let left = std::mem::replace(&mut *queue, Queue { closed: true, ..Queue::default() });
        drop(queue);
        drop(left);
    }
}

impl Queue {
    fn take(&mut self) -> Option<Input> {
        let input = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new(); // an election waits almost always
        }
        input
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn inputs_come_in_order_and_wake_who_waits() {
        let inbox = Inbox::default();
        let cx = Context::from_waker(Waker::noop());
        assert!(inbox.poll_recv(&cx).is_pending());
        assert!(locked(&inbox.0).waker.is_some());
        for _ in 0..20 {
            inbox.send(Input::EndDrain);
        }
        inbox.send(Input::Stop);
        assert!(locked(&inbox.0).waker.is_none());
        for _ in 0..20 {
            assert!(matches!(inbox.try_recv(), Some(Input::EndDrain)));
        }
        assert!(matches!(inbox.poll_recv(&cx), Poll::Ready(Input::Stop)));
        assert_eq!(locked(&inbox.0).waiting.capacity(), 0);
    }

    #[tokio::test]
    async fn what_is_left_or_comes_later_is_dropped_at_the_close() {
        let inbox = Inbox::default();
        let send = || {
            let (reply, answer) = oneshot::channel();
            inbox.send(Input::HandOver { term: None, to: Box::default(), reply });
            answer
        };
        let (before, after) = (send(), {
            inbox.close();
            send()
        });
        assert!(before.await.is_err() && after.await.is_err());
    }

    #[test]
    fn an_input_takes_little_memory() {
        assert!(size_of::<Input>() <= 32, "{}", size_of::<Input>());
    }
}
