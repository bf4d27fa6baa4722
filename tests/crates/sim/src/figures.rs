//! What was seen in schedules, so that nothing can pass by not happening.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use crate::server::Time;

/// Counters that are added up over schedules.
macro_rules! counters {
    ($(#[$of:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$of])*
        #[derive(Debug, Default, Clone, Copy)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    /// What sentinels did.
    Releases {
        /// Entries that were released.
        stored,
        /// Entries that were released after a release that was refused.
        after_conflict,
        /// Releases that were refused.
        conflicts,
        /// Releases that were refused, as the entry was of the term no more.
        late,
        /// Releases that were refused, as another candidate led.
        beside_leader,
        /// Entries that were not of the term any more when they were read.
        not_held,
        /// Writes of a dead process that were refused, as its entry had been released.
        late_writes,
        /// Attempts that were given up.
        failed,
    }
}

counters! {
    /// What leaders did with the checkpoint.
    Checkpoints {
        /// Terms that claimed it.
        claims,
        /// Terms that were given up without.
        unclaimed,
        /// Saves that were acknowledged.
        saves,
        /// Writes of terms that were told of a later one.
        superseded,
        /// Writes of former terms that were refused.
        late,
    }
}

counters! {
    /// Moves.
    Moved {
        /// Terms that were handed over.
        handovers,
        /// Terms that were handed over though nobody had ordered it.
        voluntary,
        /// Handovers after which the named successor led next.
        succeeded,
        /// Creates that had a pause to carry on.
        carried,
        /// Handovers that a pause, or the age of the term, kept from happening.
        refused,
    }
}

/// What the members of a set did.
#[derive(Debug, Default, Clone, Copy)]
pub struct SetFigures {
    /// Terms that were handed over.
    pub handovers: u64,
    /// Requests for a shard, and how many of them were accepted.
    pub asked: u64,
    pub accepted: u64,
    /// Terms that were given back, as the member led as much as it may.
    pub given_back: u64,
    /// Handovers after the last fault, and the least that would have done.
    pub moves: u64,
    pub least: u64,
    /// How long it took until the load was even, from when each shard was led.
    pub even_after: Duration,
}

impl AddAssign for SetFigures {
    fn add_assign(&mut self, other: Self) {
        self.handovers += other.handovers;
        self.asked += other.asked;
        self.accepted += other.accepted;
        self.given_back += other.given_back;
        self.moves += other.moves;
        self.least += other.least;
        self.even_after = self.even_after.max(other.even_after);
    }
}

/// What was seen in a schedule, or in several.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// Terms of ours during the storm.
    pub terms: u64,
    /// Terms of candidates that are not of this library during the storm.
    pub peer_terms: u64,
    /// Drains that ended with the work, rather than with the term.
    pub drains: u64,
    /// Moves during the storm.
    pub moved: Moved,
    pub checkpoints: Checkpoints,
    pub sets: SetFigures,
    pub releases: Releases,
    /// How long the world continued.
    pub simulated: Duration,
    /// How long after the last fault there was a leader.
    pub recovered: Option<Duration>,
    pub violation: Option<Violation>,
}

impl AddAssign<&Report> for Report {
    fn add_assign(&mut self, other: &Self) {
        self.terms += other.terms;
        self.peer_terms += other.peer_terms;
        self.drains += other.drains;
        self.moved += other.moved;
        self.checkpoints += other.checkpoints;
        self.sets += other.sets;
        self.releases += other.releases;
        self.simulated += other.simulated;
        self.recovered = self.recovered.max(other.recovered);
    }
}

/// What must not happen, and did.
#[derive(Debug, Clone)]
pub struct Violation {
    pub what: String,
    pub at: Time,
    /// The events before it, one per line, if requested.
    pub history: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nat {:.6} s: {}", self.history, self.at.as_secs_f64(), self.what)
    }
}

impl fmt::Display for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} releases, {} of them after a conflict; {} refused, {} of them too late, {} beside a \
             leader; {} times not held, {} given up; {} late writes of dead processes refused",
            self.stored,
            self.after_conflict,
            self.conflicts,
            self.late,
            self.beside_leader,
            self.not_held,
            self.failed,
            self.late_writes
        )
    }
}

impl fmt::Display for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, unclaimed, saves, superseded, late } = self;
        write!(
            f,
            "{claims} claims, {unclaimed} given up; {saves} saves, {superseded} superseded; {late} \
             writes of former terms refused"
        )
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handovers, voluntary, succeeded, carried, refused } = self;
        write!(
            f,
            "{handovers} handovers, {voluntary} of them voluntary, {succeeded} to the one that led \
             next; {refused} refused since it was too soon or paused; {carried} pauses carried on"
        )
    }
}

impl fmt::Display for SetFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handovers, asked, accepted, given_back, moves, least, even_after } = self;
        write!(
            f,
            "{handovers} handovers in storms, {asked} requests, {accepted} accepted; {given_back} \
             terms given back; {moves} moves after the last faults where {least} are the least; \
             even after {:.1} s at most",
            even_after.as_secs_f64()
        )
    }
}
