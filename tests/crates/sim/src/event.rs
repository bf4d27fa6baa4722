//! The events of a simulated world, and their order.

use incumbent::lock::{Hint, Request};
use incumbent::protocol::{Event, Response};

use crate::choria;
use crate::clientgo;
use crate::moves;
use crate::objects::{self, Asked, Reply};
use crate::scenario::Fault;
use crate::sentinel;
use crate::server::Time;

/// An event at a later instant.
#[derive(Debug, Clone)]
pub(super) enum SimEvent {
    Start {
        who: usize,
    },
    Wake {
        who: usize,
        life: u32,
        wake: u64,
    },
    /// Something within the process.
    Inside {
        who: usize,
        life: u32,
        event: Event,
    },
    /// A hint arrives.
    Hint {
        who: usize,
        life: u32,
        hint: Hint,
    },
    /// A request arrives at the server.
    Request {
        who: usize,
        life: u32,
        id: u64,
        request: Request,
    },
    /// The answer to a request arrives, or its timeout.
    Response {
        who: usize,
        life: u32,
        id: u64,
        answer: Response,
        from_server: bool,
    },
    Expire,
    /// The bucket is there again.
    Remade,
    Fault(Fault),
    Choria {
        which: usize,
        life: u32,
        step: choria::Step,
    },
    ClientGo {
        which: usize,
        life: u32,
        step: clientgo::Step,
    },
    /// A request of the lock arrives at the store.
    Asked {
        who: usize,
        life: u32,
        id: u64,
        attempt: u32,
        asked: Asked,
    },
    /// The store's reply arrives.
    Replied {
        who: usize,
        life: u32,
        id: u64,
        attempt: u32,
        reply: Reply,
    },
    /// The time is over for which a store wanted to be left alone.
    AskAgain {
        who: usize,
        life: u32,
        id: u64,
        attempt: u32,
    },
    /// An administrator repairs an unreadable object.
    Mended {
        restored: bool,
    },
    Vimeo {
        which: usize,
        life: u32,
        step: objects::Step,
    },
    /// Something happens to a sentinel.
    Sentinel {
        at: usize,
        life: u32,
        step: sentinel::Step,
    },
    /// Something happens to a candidate's moves.
    Moves {
        who: usize,
        life: u32,
        step: moves::Step,
    },
    Calm,
}

/// The same, and when: what comes first is the greatest.
pub(super) struct Scheduled<E = SimEvent> {
    pub at: Time,
    pub order: u64,
    pub what: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
