//! What a scenario consists of.

use std::time::Duration;

use incumbent::lock::Coverage;

use crate::candidate::CandidateSetup;
use crate::choria::Pace;
use crate::moves::MoveFault;
use crate::server::{Keeping, Server};
use crate::sets::SetSetup;

#[derive(Debug, Clone)]
pub enum Fault {
    /// The process dies, and another one starts later.
    Crash { who: usize, back_ms: u16 },
    /// The same of the one that leads; `writing`: when it has sent its next write.
    CrashLeader { back_ms: u16, writing: bool },
    /// The same of the next one that waits before it leads; `stopping`: it has begun to stop.
    CrashWinner { back_ms: u16, stopping: bool },
    /// The process is stopped, and goes on later.
    Pause { who: usize, for_ms: u16 },
    /// The same, and its clock is stopped meanwhile.
    Freeze { who: usize, for_ms: u16 },
    /// What it sends, what it should receive, or both is lost.
    Cut { who: usize, out: bool, back: bool, for_ms: u16 },
    /// The machine sleeps, and its connections are dead when it wakes.
    Suspend { who: usize, for_ms: u16 },
    /// A graceful stop; a new process starts once it has finished.
    Stop { who: usize },
    /// A graceful stop of each in turn.
    RollingRestart { every_ms: u16 },
    /// A candidate resigns, if it leads.
    Resign { who: usize },
    /// Its work ends by itself, if it leads.
    WorkEnds { who: usize, panicked: bool },
    /// The server refuses it every write for so long, or for good.
    Denied { who: usize, for_ms: Option<u16> },
    /// From now on it receives hints so.
    HintCoverage { who: usize, coverage: Coverage },
    /// It is told to look at the entry.
    Look { who: usize },
    /// An administrator deletes the entry.
    AdminDelete,
    /// Another program writes over the entry.
    AdminPut,
    /// The bucket is deleted, and another program recreates it.
    Remade { after_ms: u16 },
    /// The server is down.
    Outage { for_ms: u16 },
    /// An operator changes the bucket's TTL to so many times what it was at first, and to no less
    /// than the leases of all processes that run.
    ChangeTtl { factor: u8 },
    /// The server's wall clock is stepped.
    ClockStep { by_ms: i16 },
    /// The server forgets its last writes, which it had acknowledged.
    Forget { writes: u8 },
    /// Another server takes over, which lacks the last writes.
    Failover { loses: u8, for_ms: u16 },
    /// The synchronous replica does not answer: writes are stored and visible, and not
    /// acknowledged.
    ReplicaAway { for_ms: u16 },
    /// An object store answers 429 or 503 for a while; or 409 to every write, without a competing
    /// one.
    Busy {
        status: u16,
        /// When to retry, if it states that.
        after_ms: Option<u16>,
        for_ms: u16,
    },
    /// The key is purged, which leaves no tombstone.
    Purge,
    /// The last release is stored once more, over whatever is there.
    ReplayRelease,
    /// The leader is evicted, as an operator does.
    Evict,
    /// The object is overwritten with unreadable content, until an administrator deletes it, or
    /// puts the last content back.
    Spoil { for_ms: u16, restored: bool },
    /// The object's content of so many writes before is put back, in the place of the last one or
    /// of none.
    SetBack { by: u8 },
    /// Of a candidate that is not of this library.
    PeerCrash { which: usize },
    /// The same, after it has released what it holds.
    PeerStop { which: usize },
    /// The same is cut off.
    PeerCut { which: usize, for_ms: u16 },
    /// A sentinel is killed, and forgets everything; another one starts later.
    SentinelDown { who: usize, for_ms: u16 },
    /// It is stopped, and goes on later.
    SentinelPause { who: usize, for_ms: u16 },
    /// What it sends and what it should receive is lost.
    SentinelCut { who: usize, for_ms: u16 },
    /// Something goes wrong with a move.
    Move(MoveFault),
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    /// Leases are no longer than this.
    pub bucket_ttl: Duration,
    pub keeping: Keeping,
    /// Whether a write may have a TTL of its own.
    pub per_write_ttl: bool,
    /// Whether the bucket is older than its TTL when the world begins.
    pub old_bucket: bool,
    /// Whether acknowledged writes survive a failover, since a replica has them.
    pub synchronous: bool,
    /// Whether a sentinel beside each candidate releases what it held when it died.
    pub sentinels: bool,
    /// Two of Choria's candidates take part as well.
    pub chorias: Option<Pace>,
    /// So many of client-go's candidates take part as well.
    pub client_gos: usize,
    /// So many of vimeo/leaderelection's candidates take part as well.
    pub vimeos: usize,
    pub candidates: Vec<CandidateSetup>,
    /// In the place of these, the members of a set.
    pub set: Option<SetSetup>,
    /// Where the processes take part in other elections too: the seed of what faults of a process
    /// draw, which is the same in each election.
    pub further_elections: Option<u64>,
    /// When, in milliseconds, and what.
    pub faults: Vec<(u32, Fault)>,
}

impl Fault {
    /// Of which process it is a fault that lasts, whatever that process does.
    pub fn of_process(&self) -> Option<usize> {
        match *self {
            Self::Pause { who, .. }
            | Self::Cut { who, .. }
            | Self::Suspend { who, .. }
            | Self::Denied { who, .. }
            | Self::Move(MoveFault::Ill { who, .. }) => Some(who),
            _ => None,
        }
    }
}

impl Scenario {
    /// Nothing but these candidates on a bucket that is older than its TTL, and no faults.
    pub fn new(seed: u64, bucket_ttl: Duration, candidates: Vec<CandidateSetup>) -> Self {
        Self {
            seed,
            bucket_ttl,
            keeping: Keeping::LeavesMarkers,
            per_write_ttl: true,
            old_bucket: true,
            synchronous: false,
            sentinels: false,
            chorias: None,
            client_gos: 0,
            vimeos: 0,
            candidates,
            set: None,
            further_elections: None,
            faults: Vec::new(),
        }
    }

    /// How each process begins its candidates.
    pub(super) fn setups(&self) -> Vec<CandidateSetup> {
        self.set.as_ref().map_or_else(|| self.candidates.clone(), SetSetup::candidates)
    }

    /// The server of an election.
    pub(super) fn server(&self) -> Server {
        let age = if self.old_bucket { self.bucket_ttl * 2 } else { Duration::ZERO };
        let mut server = Server::new(self.bucket_ttl, self.keeping, age);
        server.synchronous = self.synchronous;
        // By the same lot, as no lock needs both.
        server.per_write_ttl = self.per_write_ttl;
        server.dates_foreign = self.per_write_ttl;
        server
    }

    /// The longest TTL that the bucket ever has.
    pub fn longest_ttl(&self) -> Duration {
        let factors = self.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::ChangeTtl { factor } => Some(u32::from(*factor)),
            _ => None,
        });
        self.bucket_ttl * factors.max().unwrap_or(1).max(1)
    }

    /// Whether candidates hand over.
    pub fn moves(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.moves.is_some())
    }

    /// Whether candidates may be sick, or stand aside: then they let the others go first.
    pub fn has_sick(&self) -> bool {
        self.moves() || self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Denied { .. }))
    }

    /// Whether the lock loses writes that it has acknowledged.
    pub fn forgets(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Forget { .. }))
    }
}

/// How long faults go on.
pub const STORM: Duration = Duration::from_secs(60);
