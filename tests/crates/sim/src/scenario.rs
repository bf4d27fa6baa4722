//! What a scenario consists of.

use std::time::Duration;

use crate::candidate::CandidateSetup;
use crate::choria::Pace;
use crate::faults::Fault;
use crate::quorum::QuorumSetup;
use crate::server::{Retention, Server};
use crate::sets::SetSetup;

#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    /// Leases are no longer than this.
    pub bucket_ttl: Duration,
    pub retention: Retention,
    /// Whether a write may have a TTL of its own.
    pub per_write_ttl: bool,
    /// Whether the bucket is older than its TTL when the world begins.
    pub old_bucket: bool,
    /// Whether acknowledged writes survive a failover, since a replica has them.
    pub synchronous: bool,
    /// Whether a sentinel beside each candidate releases what it held when it died.
    pub sentinels: bool,
    /// Whether each term claims a checkpoint, and its work saves it.
    pub checkpoint: bool,
    /// Two of Choria's candidates take part as well.
    pub chorias: Option<Pace>,
    /// So many of client-go's candidates take part as well.
    pub client_gos: usize,
    /// So many of vimeo/leaderelection's candidates take part as well.
    pub vimeos: usize,
    pub candidates: Vec<CandidateSetup>,
    /// In the place of these, the members of a set.
    pub set: Option<SetSetup>,
    /// Voters in these processes take the place of the server.
    pub quorum: Option<QuorumSetup>,
    /// Where the processes take part in other elections too: the seed of what faults of a process
    /// draw, which is the same in each election.
    pub further_elections: Option<u64>,
    /// When, in milliseconds, and what.
    pub faults: Vec<(u32, Fault)>,
}

impl Scenario {
    /// Nothing but these candidates on a bucket that is older than its TTL, and no faults.
    pub fn new(seed: u64, bucket_ttl: Duration, candidates: Vec<CandidateSetup>) -> Self {
        Self {
            seed,
            bucket_ttl,
            retention: Retention::LeavesMarkers,
            per_write_ttl: true,
            old_bucket: true,
            synchronous: false,
            sentinels: false,
            checkpoint: false,
            chorias: None,
            client_gos: 0,
            vimeos: 0,
            candidates,
            set: None,
            quorum: None,
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
        let mut server = Server::new(self.bucket_ttl, self.retention, age);
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
        self.moves()
            || self.checkpoint
            || self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Denied { .. }))
    }

    /// Whether the lock loses writes that it has acknowledged.
    pub fn forgets(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Forget { .. }))
    }
}

/// How long faults continue.
pub const STORM: Duration = Duration::from_secs(60);
