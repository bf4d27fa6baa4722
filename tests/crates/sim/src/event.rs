//! The events of a simulated world.

use incumbent::lock::{Hint, Request};
use incumbent::protocol::{Event, Response};

use crate::moves;
use crate::objects::{Asked, Reply};
use crate::peers;
use crate::scenario::Fault;
use crate::sentinel;

/// An event at a later instant.
#[derive(Debug, Clone)]
pub(super) enum SimEvent {
    /// A process starts.
    Start { process: usize },
    /// Something happens to a candidate, in this process of it.
    In { who: usize, life: u32, what: Inner },
    /// A request arrives at the server.
    Request { who: usize, life: u32, id: u64, request: Request },
    /// What is stored under this key may have outlived its life.
    Expire { key: usize },
    /// The bucket is there again.
    Remade,
    /// Something goes wrong.
    Fault(Fault),
    /// Something happens to a candidate of another program.
    Peer { which: usize, life: u32, step: peers::Step },
    /// A request of the lock arrives at the store.
    Asked { who: usize, life: u32, id: u64, attempt: u32, asked: Asked },
    /// An administrator repairs an unreadable object.
    Mended { restored: bool },
    /// Something happens to a sentinel.
    Sentinel { at: usize, life: u32, step: sentinel::Step },
    /// All faults cease.
    Calm,
}

/// What happens to a candidate, in its process: later if that is paused.
#[derive(Debug, Clone)]
pub(super) enum Inner {
    Wake {
        wake: u64,
    },
    /// Something within the process.
    Own(Event),
    /// A hint arrives.
    Hint(Hint),
    /// The answer to a request arrives, or its timeout.
    Response {
        id: u64,
        answer: Response,
        from_server: bool,
    },
    /// The store's reply arrives.
    Replied {
        id: u64,
        attempt: u32,
        reply: Reply,
    },
    /// The time is over for which a store wanted to be left alone.
    AskAgain {
        id: u64,
        attempt: u32,
    },
    /// Something happens to its moves.
    Moves(moves::Step),
    /// Its member has the term given back.
    GivesBack,
    /// The member itself is woken.
    MemberWake {
        wake: u64,
    },
    /// The member takes in what has changed.
    MemberAdvances,
}
