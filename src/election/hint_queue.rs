//! Hints that wait for a busy driver: a few are kept, further ones are merged.

use std::sync::Mutex;

use super::inbox::{Inbox, Input};
use crate::lock::{Coverage, Hint, StepDownNotice};
use crate::util::locked;

/// How many hints may wait before they are replaced by what they come to.
const WAITING: usize = 64;
/// How many notices are kept beyond that.
const MAX_STEP_DOWNS: usize = 16;

#[derive(Default)]
pub(crate) struct HintQueue(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// Hints that wait in the inbox.
    waiting: usize,
    /// Of every hint since there were too many. The inbox then has one [`Input::HintsMissed`].
    #[allow(clippy::box_collection)]
    // a word for each election that misses nothing, instead of three
    missed: Option<Box<Vec<Missed>>>,
}

/// What the hints of one lock came to.
struct Missed {
    lock: usize,
    /// The last coverage.
    coverage: Option<Coverage>,
    notices: Vec<StepDownNotice>,
}

impl HintQueue {
    /// Queues a hint, and puts into the inbox what the driver needs to fetch it.
    pub fn put(&self, lock: usize, hint: Hint, inbox: &Inbox) {
        // Sent with the lock held, so that the inbox has them in the order in which they were
        // counted.
        let mut queue = locked(&self.0);
        if let Some(input) = queue.input(lock, hint) {
            inbox.send(input);
        }
    }

    /// A hint is taken from the inbox.
    pub fn took(&self) {
        let mut queue = locked(&self.0);
        queue.waiting = queue.waiting.saturating_sub(1);
    }

    /// The merged hints of each lock, in an order in which they may be handled.
    pub fn take_missed(&self) -> impl Iterator<Item = (usize, Hint)> + use<> {
        let missed = locked(&self.0).missed.take().unwrap_or_default();
        missed.into_iter().flat_map(|Missed { lock, coverage, notices }| {
            let conceded = notices.into_iter().map(Hint::SteppedDown);
            let hints = coverage.map(Hint::Coverage).into_iter().chain(conceded);
            hints.chain([Hint::Recheck]).map(move |hint| (lock, hint))
        })
    }
}

impl Queue {
    /// What to put into the inbox for a hint, if anything.
    fn input(&mut self, lock: usize, hint: Hint) -> Option<Input> {
        let input = match self.missed {
            None if self.waiting < WAITING => {
                self.waiting += 1;
                return Some(Input::Hint { lock, hint: Box::new(hint) });
            }
            None => Some(Input::HintsMissed),
            Some(_) => None, // it waits already, and nothing overtakes it
        };
        let missed = self.missed.get_or_insert_default();
        let at = missed.iter().position(|missed| missed.lock == lock).unwrap_or_else(|| {
            missed.push(Missed { lock, coverage: None, notices: Vec::new() });
            missed.len() - 1
        });
        match (missed.get_mut(at), hint) {
            (Some(missed), Hint::Coverage(coverage)) => missed.coverage = Some(coverage),
            (Some(missed), Hint::SteppedDown(notice)) => {
                if missed.notices.len() == MAX_STEP_DOWNS {
                    missed.notices.remove(0);
                }
                missed.notices.push(notice);
            }
            _ => {} // a recheck covers it
        }
        input
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::backends::memory::MemoryLock;
    use crate::election::shared::Shared;
    use crate::lock::{Content, Entry, Mark, Nonce, Record, Revision, Token, WriteId};
    use crate::time::clock::{BootClock, Clock};

    fn shared() -> Arc<Shared> {
        let (clock, lock) = (Arc::new(BootClock), Arc::new(MemoryLock::new()));
        Shared::new("e".into(), ("c".into(), Nonce(1)), clock, lock)
    }

    #[test]
    fn a_leader_is_not_woken_by_its_own_renewals() {
        let shared = shared();
        let sink = shared.hint_sink(0);
        let is_passed_on = |nonce, token| {
            let write = WriteId { nonce: Nonce(nonce), number: 2 };
            let (lease, ttl) = (Duration::from_secs(5), Duration::from_secs(5));
            let mark = Some(Mark::new(write, lease, token));
            let entry = Entry { identity: "c".into(), mark, ttl, advertisement: None };
            let record = Record { revision: Revision(2), content: Content::Held(entry) };
            sink.send(Hint::Stored { record, previous: None, age: None });
            shared.inbox.try_recv().is_some()
        };
        assert!(is_passed_on(1, Some(Token(1))), "it does not lead");
        shared.leads_until.set(Some(BootClock.now() + Duration::from_secs(60)));
        assert!(!is_passed_on(1, Some(Token(1))));
        assert!(is_passed_on(1, None), "a create");
        assert!(is_passed_on(2, Some(Token(1))), "another candidate");
    }

    #[test]
    fn an_overflow_is_told_once_and_nothing_overtakes_it() {
        let shared = shared();
        let sink = shared.hint_sink(1);
        for _ in 0..WAITING {
            sink.send(Hint::Recheck);
        }
        sink.send(Hint::Coverage(Coverage::Full));
        let (token, revision) = (Token(1), Revision(1));
        let left = std::time::Duration::ZERO;
        sink.send(Hint::SteppedDown(StepDownNotice { by: Nonce(1), token, revision, left }));
        for _ in 0..WAITING {
            assert!(matches!(shared.inbox.try_recv(), Some(Input::Hint { lock: 1, .. })));
            shared.hints.took();
        }
        sink.send(Hint::Coverage(Coverage::None)); // later than what is still to be fetched
        assert!(matches!(shared.inbox.try_recv(), Some(Input::HintsMissed)));
        assert!(shared.inbox.try_recv().is_none());
        let missed: Vec<_> = shared.hints.take_missed().collect();
        assert!(
            matches!(
                missed[..],
                [
                    (1, Hint::Coverage(Coverage::None)),
                    (1, Hint::SteppedDown(_)),
                    (1, Hint::Recheck),
                ]
            ),
            "{missed:?}"
        );
        sink.send(Hint::Recheck);
        assert!(matches!(shared.inbox.try_recv(), Some(Input::Hint { .. })));
    }
}
