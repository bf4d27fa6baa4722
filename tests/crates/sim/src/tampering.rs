//! An administrator's tools that leave a key in a state that does not show what happened.
//!
//! A purge of a key leaves no tombstone, and a tool that puts old messages back can leave an old
//! release over a living entry. A candidate that has received the holder's last write still knows
//! better. No promise covers one that has not.

use std::time::Duration;

use incumbent::lock::{Content, Coverage, Hint, Nonce, Revision, Tombstone};
use incumbent::protocol::Response;

use crate::world::{Inner, World};

impl World {
    /// The key is purged, and its emptiness may be noticed at once.
    pub(super) fn purge(&mut self) {
        if !self.servers[0].is_up(self.time.now) {
            return;
        }
        self.excuse_the_uninformed();
        self.servers[0].last = None;
        if self.time.random.bool() {
            self.deliver_at_once(&Hint::Recheck);
        }
    }

    /// The last release is stored once more, over the entry of a leader: but not of the one who had
    /// released, whose own word it is.
    pub(super) fn replay_release(&mut self) {
        let Some(release) = self.servers[0].last_release.clone() else { return };
        let held = self.servers[0].last.as_ref().and_then(|last| holder(&last.record.content));
        let leads = self.candidates.iter().enumerate().any(|(who, it)| {
            let nonce = it.machine.as_ref().map(|machine| machine.settings().nonce);
            self.checker.is_leading(who) && nonce.is_some() && nonce == held
        });
        if !self.servers[0].is_up(self.time.now) || !leads || released_by(&release) == held {
            return;
        }
        self.excuse_the_uninformed();
        let ttl = self.servers[0].bucket_ttl;
        self.servers[0].store(self.time.now, release, ttl);
        if let Some(last) = self.servers[0].last.clone() {
            let (record, previous) = (last.record, last.previous);
            self.deliver_at_once(&Hint::Stored { record, previous, age: None });
        }
        self.stored(0);
    }

    /// No promise covers a candidate that cannot know of the last write, or gets no hint of what is
    /// done to it.
    fn excuse_the_uninformed(&mut self) {
        let window = self.time.now + self.servers[0].bucket_ttl;
        self.tampered_until = window;
        let last = self.servers[0].last_revision();
        let now = self.time.now;
        let uninformed = |it: &crate::candidate::Candidate| {
            let faults = &self.processes[it.process].faults;
            let hears = it.setup.coverage == Coverage::Full && now >= faults.cut_in_until;
            it.machine.is_some() && (!hears || faults.is_paused(now) || it.newest != last)
        };
        if self.candidates.iter().any(uninformed) {
            self.checker.excuse(window);
        }
    }

    fn deliver_at_once(&mut self, hint: &Hint) {
        for who in 0..self.candidates.len() {
            self.later(who, Duration::ZERO, Inner::Hint(hint.clone()));
        }
    }
}

/// Whether it is what a holder leaves behind.
pub fn is_release(content: &Content) -> bool {
    released_by(content).is_some()
}

fn released_by(content: &Content) -> Option<Nonce> {
    match content {
        Content::Vacant(Tombstone::Released { by, .. }) => Some(*by),
        _ => None,
    }
}

fn holder(content: &Content) -> Option<Nonce> {
    match content {
        Content::Held(entry) => entry.mark.as_ref().map(|mark| mark.write.nonce),
        Content::Vacant(_) => None,
    }
}

/// The write of a hint.
pub fn hinted_revision(hint: &Hint) -> Option<Revision> {
    match hint {
        Hint::Stored { record, .. } => Some(record.revision),
        _ => None,
    }
}

/// The own write that a response reports. What was read may have been overtaken by a hint.
pub fn answered_revision(answer: &Response) -> Option<Revision> {
    match answer {
        Response::Written(Ok(revision)) => Some(*revision),
        _ => None,
    }
}
