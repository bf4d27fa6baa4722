//! The faults: what each needs, in which fleets the promise covers it, and how long it may last.

use std::time::Duration;

use crate::fleet::Kind;
use crate::net::Need;

/// What is done to the election, its servers, or the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The leader reaches no server and no server reaches it.
    LeaderAlone,
    /// The leader and one server on one side, all others on the other.
    LeaderWithMinority,
    /// What the leader sends arrives; what is sent to it does not.
    AnswersLost,
    /// What is sent to the leader arrives; what it sends does not.
    RequestsLost,
    /// The server that leads the stream is cut off from the other servers, not from candidates.
    StreamLeaderAlone,
    /// The same one way: messages of the others arrive, messages to them do not.
    StreamLeaderMute,
    /// The leader's link is slow.
    SlowLeader,
    /// The link of the server that leads the stream is slow.
    SlowServer,
    /// The leader's link loses packets.
    LossyLeader,
    /// The links of all servers lose packets.
    LossyServers,
    /// SIGKILL to a server, and a restart.
    Kill(Which),
    /// SIGSTOP to a server, and SIGCONT.
    Pause(Which),
    /// Each server is stopped in order and started again, one after the other.
    RollingRestart,
    /// The disk of the server that leads the stream is full.
    DiskFull,
    /// The wall clock of the server that leads the stream is stepped, forward or back.
    ClockStep {
        /// Forward, or else back.
        forward: bool,
        /// Whether the server is restarted under the other clock.
        restart: bool,
    },
    /// SIGKILL to the leader, and a new process.
    LeaderKilled,
    /// SIGKILL to the leader's sentinel and to the leader, and new processes.
    SentinelKilled,
    /// SIGKILL to the leader while its sentinel is paused, which goes on when others lead.
    SentinelPaused,
    /// SIGKILL to a standby, and a new process.
    StandbyKilled,
    /// SIGSTOP to the leader, and SIGCONT.
    LeaderPaused,
    /// SIGSTOP to all standbys but one, and SIGCONT.
    StandbysPaused,
    /// SIGTERM to the leader, and a new process.
    LeaderTerminated,
    /// An administrator moves the leader.
    LeaderMoved,
    /// The same, and SIGKILL to the leader within milliseconds of its answer.
    MovedLeaderKilled,
    /// The same, and SIGKILL to the successor.
    MovedSuccessorKilled,
    /// An administrator deletes the key.
    KeyDeleted,
    /// An administrator deletes the key while the leader reaches no server.
    KeyDeletedLeaderAlone,
    /// An administrator deletes the key while the leader is paused.
    KeyDeletedLeaderPaused,
    /// An administrator deletes the bucket, and makes it again at once.
    BucketDeleted,
    /// An administrator deletes the bucket, and a candidate that starts after a lease makes it
    /// again.
    BucketCreatedByCandidate,
    /// A candidate like Choria's leads, and an administrator deletes the key.
    ChoriaEvicted,
    /// A candidate like Choria's leads, and is killed.
    ChoriaKilled,
    /// A candidate like Choria's leads, and reaches no server.
    ChoriaAlone,
    /// The leader reaches no server, so it cannot learn what happens to its entry.
    LeaderAloneAnd(Second),
}

/// What happens while the leader reaches no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Second {
    /// SIGKILL to the server that leads the stream.
    StreamLeaderKilled,
    /// An administrator deletes the bucket, and makes it again at once.
    BucketDeleted,
    /// The wall clock of the server that leads the stream is stepped forward, so that it expires
    /// the entry early.
    ClockForward,
    /// The standbys are paused as well, so that they have not received the last renewals.
    StandbysPaused,
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    /// Any.
    Any,
    /// The one that leads the bucket's stream.
    StreamLeader,
    /// The one that leads JetStream's metadata.
    MetaLeader,
}

/// A line of the table of faults.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What is done.
    pub fault: Fault,
    /// The fleets in which the promise covers it; the first is the one to show it in.
    pub fleets: &'static [Kind],
    /// What the machine must have.
    pub needs: &'static [Need],
    /// How long it lasts at the least and at the most, in tenths of a lease.
    pub tenths: (u32, u32),
    /// Whether servers take part, so that they may have to elect leaders of their own before
    /// anything else.
    pub servers: bool,
}

impl Entry {
    /// Within how long of its healing there must be a leader: entries run out, which may take two
    /// leases where a winner waits one; servers elect theirs in 4 to 9 s, more than once if
    /// votes split, and lost packets are sent again after as long a silence as the one before.
    /// The rest is for machines that do other things as well.
    pub fn bound(&self, kind: Kind, lease: Duration) -> Duration {
        let election = Duration::from_secs(if self.servers { 60 } else { 20 });
        let foreign =
            if kind == Kind::Choria { lease * 3 / 4 + Duration::from_secs(5) } else { lease };
        lease * 2 + foreign + election
    }
}

const OURS: &[Kind] = &[Kind::Proven, Kind::Strict, Kind::Sentinel];
const ALL: &[Kind] = &[Kind::Proven, Kind::Strict, Kind::Choria, Kind::Sentinel];
const STRICT: &[Kind] = &[Kind::Strict];
const CHORIA: &[Kind] = &[Kind::Choria];
const SENTINEL: &[Kind] = &[Kind::Sentinel];

const SHORT: (u32, u32) = (2, 7);
const LONG: (u32, u32) = (13, 30);
const EITHER: (u32, u32) = (2, 30);
const AT_ONCE: (u32, u32) = (0, 0);

const fn of_network(
    name: &'static str,
    fault: Fault,
    needs: &'static [Need],
    tenths: (u32, u32),
    servers: bool,
) -> Entry {
    Entry { name, fault, fleets: ALL, needs, tenths, servers }
}

const fn of_servers(name: &'static str, fault: Fault, tenths: (u32, u32)) -> Entry {
    Entry { name, fault, fleets: ALL, needs: &[], tenths, servers: true }
}

const fn of_candidates(
    name: &'static str,
    fault: Fault,
    fleets: &'static [Kind],
    tenths: (u32, u32),
) -> Entry {
    Entry { name, fault, fleets, needs: &[], tenths, servers: false }
}

const fn of_sentinels(name: &'static str, fault: Fault, tenths: (u32, u32)) -> Entry {
    let needs = &[Need::Sentinel];
    Entry { name, fault, fleets: SENTINEL, needs, tenths, servers: false }
}

/// The clock of a server that is wrong breaks what the default cool-down assumes ("an expired entry
/// was not renewed"), so only fleets that do not believe it are attacked in this way.
const fn of_clock(name: &'static str, forward: bool, restart: bool) -> Entry {
    let fault = Fault::ClockStep { forward, restart };
    Entry { name, fault, fleets: STRICT, needs: &[Need::Clock], tenths: EITHER, servers: true }
}

/// All faults.
pub const TABLE: &[Entry] = &[
    of_network("leader alone", Fault::LeaderAlone, &[], LONG, false),
    of_network(
        "leader with a minority",
        Fault::LeaderWithMinority,
        &[Need::CutServers],
        LONG,
        true,
    ),
    of_network("answers lost", Fault::AnswersLost, &[], LONG, false),
    of_network("requests lost", Fault::RequestsLost, &[], LONG, false),
    of_network("stream leader alone", Fault::StreamLeaderAlone, &[Need::CutServers], LONG, true),
    of_network("stream leader mute", Fault::StreamLeaderMute, &[Need::CutServers], LONG, true),
    of_network("slow leader", Fault::SlowLeader, &[Need::SlowLink], LONG, false),
    of_network("slow server", Fault::SlowServer, &[Need::SlowLink], LONG, true),
    of_network("lossy leader", Fault::LossyLeader, &[Need::LossyLink], LONG, false),
    of_network("lossy servers", Fault::LossyServers, &[Need::LossyLink], LONG, true),
    of_servers("server killed", Fault::Kill(Which::Any), EITHER),
    of_servers("stream leader killed", Fault::Kill(Which::StreamLeader), EITHER),
    of_servers(
        "stream leader killed, leader alone",
        Fault::LeaderAloneAnd(Second::StreamLeaderKilled),
        LONG,
    ),
    of_servers("meta leader killed", Fault::Kill(Which::MetaLeader), EITHER),
    of_servers("server paused, short", Fault::Pause(Which::Any), SHORT),
    of_servers("server paused, long", Fault::Pause(Which::Any), LONG),
    of_servers("stream leader paused, short", Fault::Pause(Which::StreamLeader), SHORT),
    of_servers("stream leader paused, long", Fault::Pause(Which::StreamLeader), LONG),
    of_servers("meta leader paused, long", Fault::Pause(Which::MetaLeader), LONG),
    of_servers("rolling restart", Fault::RollingRestart, AT_ONCE),
    Entry { needs: &[Need::SmallDisk], ..of_servers("disk full", Fault::DiskFull, LONG) },
    of_clock("clock forward", true, false),
    of_clock("clock back", false, false),
    of_clock("clock forward, restart", true, true),
    of_clock("clock back, restart", false, true),
    Entry {
        fault: Fault::LeaderAloneAnd(Second::ClockForward),
        tenths: LONG,
        ..of_clock("clock forward, leader alone", true, false)
    },
    of_candidates("leader killed", Fault::LeaderKilled, ALL, EITHER),
    of_candidates("standby killed", Fault::StandbyKilled, ALL, EITHER),
    of_candidates("leader paused, short", Fault::LeaderPaused, ALL, SHORT),
    of_candidates("leader paused, long", Fault::LeaderPaused, ALL, LONG),
    of_candidates("standbys paused, long", Fault::StandbysPaused, ALL, LONG),
    of_candidates(
        "standbys paused, leader alone",
        Fault::LeaderAloneAnd(Second::StandbysPaused),
        ALL,
        LONG,
    ),
    of_sentinels("leader killed, sentinel", Fault::LeaderKilled, AT_ONCE),
    of_sentinels("leader and sentinel killed", Fault::SentinelKilled, EITHER),
    of_sentinels("leader killed, sentinel paused", Fault::SentinelPaused, LONG),
    of_candidates("leader terminated", Fault::LeaderTerminated, ALL, AT_ONCE),
    of_candidates("leader moved", Fault::LeaderMoved, ALL, AT_ONCE),
    of_candidates("leader moved, and killed", Fault::MovedLeaderKilled, ALL, EITHER),
    of_candidates("leader moved, successor killed", Fault::MovedSuccessorKilled, ALL, EITHER),
    of_candidates("key deleted", Fault::KeyDeleted, ALL, SHORT),
    // Beside Choria's there is no promise for a forced delete that the leader cannot learn of, nor
    // for a bucket of which the creator declares that there is no leader.
    of_candidates("key deleted, leader alone", Fault::KeyDeletedLeaderAlone, OURS, LONG),
    of_candidates("key deleted, leader paused", Fault::KeyDeletedLeaderPaused, OURS, EITHER),
    of_candidates("bucket deleted", Fault::BucketDeleted, OURS, LONG),
    of_candidates(
        "bucket deleted, leader alone",
        Fault::LeaderAloneAnd(Second::BucketDeleted),
        OURS,
        LONG,
    ),
    of_candidates("bucket created by candidate", Fault::BucketCreatedByCandidate, OURS, LONG),
    of_candidates("Choria evicted", Fault::ChoriaEvicted, CHORIA, LONG),
    of_candidates("Choria killed", Fault::ChoriaKilled, CHORIA, EITHER),
    of_candidates("Choria alone", Fault::ChoriaAlone, CHORIA, LONG),
];

/// The fault of a name.
pub fn named(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.name == name)
}
