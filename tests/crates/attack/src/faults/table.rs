//! The faults: what each needs, in which fleets the promise covers it, and how long it may last.

use std::time::Duration;

use crate::load::fleet::Kind;

/// What is done to the election, its servers, or the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Servers(Servers),
    /// To a leader of ours, or to its standbys or its entry.
    Leader(Leader),
    /// The leader reaches no server, so it cannot learn what happens to its entry.
    LeaderAloneAnd(Second),
    /// To a candidate like Choria's that leads.
    Choria(Choria),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// The server that leads the stream is cut off from the other servers, not from candidates.
    Alone,
    /// It receives messages of the others, and they receive none of it.
    Mute,
    /// Its link is slow.
    Slow,
    /// The links of all servers lose packets.
    Lossy,
    /// SIGKILL, and a restart.
    Kill(Which),
    /// SIGSTOP, and SIGCONT.
    Pause(Which),
    /// Each is stopped in order and started again, one after the other.
    RollingRestart,
    /// The disk of the one that leads the stream is full.
    DiskFull,
    /// The wall clock of the one that leads the stream is stepped, forward or back.
    ClockStep { forward: bool, restart: bool },
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Any,
    /// The one that leads the bucket's stream.
    StreamLeader,
    /// The one that leads JetStream's metadata.
    MetaLeader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    /// It reaches no server and no server reaches it.
    Alone,
    /// It and one server are on one side, all others on the other.
    WithMinority,
    /// What it sends arrives; what is sent to it does not.
    AnswersLost,
    /// What is sent to it arrives; what it sends does not.
    RequestsLost,
    /// Its link is slow.
    Slow,
    /// Its link loses packets.
    Lossy,
    /// SIGKILL, and a new process.
    Killed,
    /// SIGKILL to its sentinel and to itself, and new processes.
    SentinelKilled,
    /// SIGKILL while its sentinel is paused, which continues when others lead.
    SentinelPaused,
    /// SIGKILL to a standby, and a new process.
    StandbyKilled,
    /// SIGSTOP, and SIGCONT.
    Paused,
    /// SIGSTOP to all standbys but one, and SIGCONT.
    StandbysPaused,
    /// SIGTERM, and a new process.
    Terminated,
    /// An administrator moves it, and perhaps one of the two is killed within milliseconds of its
    /// answer.
    Moved(Option<Killed>),
    /// An administrator deletes the key.
    KeyDeleted,
    /// An administrator deletes the key while it reaches no server.
    KeyDeletedAlone,
    /// An administrator deletes the key while it is paused.
    KeyDeletedPaused,
    /// An administrator deletes the bucket, and makes it again at once.
    BucketDeleted,
    /// An administrator deletes the bucket, and a candidate that starts after a lease makes it
    /// again.
    BucketCreatedByCandidate,
}

/// Who is killed in the middle of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    Leader,
    Successor,
}

/// What happens while the leader reaches no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choria {
    /// An administrator deletes its key.
    Evicted,
    Killed,
    /// It reaches no server.
    Alone,
}

/// What a fault needs that not every machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A link of its own for each process, to cut servers apart, and to make slow or lossy.
    Namespaces,
    /// A server's files are on a disk of their own that can be filled.
    SmallDisk,
    /// A server's wall clock can be stepped.
    Clock,
    /// The command line of this project is there, which has the sentinel.
    Sentinel,
}

/// A line of the table of faults.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    pub fault: Fault,
    /// The fleets in which the promise covers it; the first is the one to show it in.
    pub fleets: &'static [Kind],
    pub need: Option<Need>,
    /// How long it lasts at least and at most, in tenths of a lease.
    pub tenths: (u32, u32),
}

impl Entry {
    /// Within how long of its healing there must be a leader: entries run out, which may take two
    /// leases where a winner waits one; servers elect theirs in 4 to 9 s, more than once if
    /// votes split, and lost packets are sent again after as long a silence as the one before.
    /// The rest is for machines that do other things as well, and stand still for half a minute.
    pub fn bound(&self, kind: Kind, lease: Duration) -> Duration {
        let election = Duration::from_secs(if self.strikes_servers() { 180 } else { 120 });
        let foreign =
            if kind == Kind::Choria { lease * 3 / 4 + Duration::from_secs(5) } else { lease };
        lease * 2 + foreign + election
    }

    fn strikes_servers(&self) -> bool {
        match self.fault {
            Fault::Servers(_) | Fault::Leader(Leader::WithMinority) => true,
            Fault::LeaderAloneAnd(second) => {
                matches!(second, Second::StreamLeaderKilled | Second::ClockForward)
            }
            Fault::Leader(_) | Fault::Choria(_) => false,
        }
    }
}

const ALL: &[Kind] = &[Kind::Proven, Kind::Strict, Kind::Choria, Kind::Sentinel];
const OURS: &[Kind] = &[Kind::Proven, Kind::Strict, Kind::Sentinel];
const STRICT: &[Kind] = &[Kind::Strict];
const CHORIA: &[Kind] = &[Kind::Choria];
const SENTINEL: &[Kind] = &[Kind::Sentinel];

const SHORT: (u32, u32) = (2, 7);
const LONG: (u32, u32) = (13, 30);
const EITHER: (u32, u32) = (2, 30);
const AT_ONCE: (u32, u32) = (0, 0);

const NAMESPACES: Option<Need> = Some(Need::Namespaces);

const fn servers(
    name: &'static str,
    fault: Servers,
    need: Option<Need>,
    tenths: (u32, u32),
) -> Entry {
    Entry { name, fault: Fault::Servers(fault), fleets: ALL, need, tenths }
}

/// The clock of a server that is wrong breaks what the default cool-down assumes ("an expired entry
/// was not renewed"), so only fleets that do not believe it are attacked in this way.
const fn clock(name: &'static str, fault: Fault, tenths: (u32, u32)) -> Entry {
    Entry { name, fault, fleets: STRICT, need: Some(Need::Clock), tenths }
}

const fn clock_step(name: &'static str, forward: bool, restart: bool) -> Entry {
    clock(name, Fault::Servers(Servers::ClockStep { forward, restart }), EITHER)
}

const fn link(name: &'static str, fault: Leader, need: Option<Need>) -> Entry {
    Entry { name, fault: Fault::Leader(fault), fleets: ALL, need, tenths: LONG }
}

const fn leader(
    name: &'static str,
    fault: Leader,
    fleets: &'static [Kind],
    tenths: (u32, u32),
) -> Entry {
    Entry { name, fault: Fault::Leader(fault), fleets, need: None, tenths }
}

const fn sentinel(name: &'static str, fault: Leader, tenths: (u32, u32)) -> Entry {
    let (fault, need) = (Fault::Leader(fault), Some(Need::Sentinel));
    Entry { name, fault, fleets: SENTINEL, need, tenths }
}

const fn alone_and(name: &'static str, second: Second, fleets: &'static [Kind]) -> Entry {
    Entry { name, fault: Fault::LeaderAloneAnd(second), fleets, need: None, tenths: LONG }
}

const fn choria(name: &'static str, fault: Choria, tenths: (u32, u32)) -> Entry {
    Entry { name, fault: Fault::Choria(fault), fleets: CHORIA, need: None, tenths }
}

/// All faults.
pub const TABLE: &[Entry] = &[
    link("leader alone", Leader::Alone, None),
    link("leader with a minority", Leader::WithMinority, NAMESPACES),
    link("answers lost", Leader::AnswersLost, None),
    link("requests lost", Leader::RequestsLost, None),
    servers("stream leader alone", Servers::Alone, NAMESPACES, LONG),
    servers("stream leader mute", Servers::Mute, NAMESPACES, LONG),
    link("slow leader", Leader::Slow, NAMESPACES),
    servers("slow server", Servers::Slow, NAMESPACES, LONG),
    link("lossy leader", Leader::Lossy, NAMESPACES),
    servers("lossy servers", Servers::Lossy, NAMESPACES, LONG),
    servers("server killed", Servers::Kill(Which::Any), None, EITHER),
    servers("stream leader killed", Servers::Kill(Which::StreamLeader), None, EITHER),
    alone_and("stream leader killed, leader alone", Second::StreamLeaderKilled, ALL),
    servers("meta leader killed", Servers::Kill(Which::MetaLeader), None, EITHER),
    servers("server paused, short", Servers::Pause(Which::Any), None, SHORT),
    servers("server paused, long", Servers::Pause(Which::Any), None, LONG),
    servers("stream leader paused, short", Servers::Pause(Which::StreamLeader), None, SHORT),
    servers("stream leader paused, long", Servers::Pause(Which::StreamLeader), None, LONG),
    servers("meta leader paused, long", Servers::Pause(Which::MetaLeader), None, LONG),
    servers("rolling restart", Servers::RollingRestart, None, AT_ONCE),
    servers("disk full", Servers::DiskFull, Some(Need::SmallDisk), LONG),
    clock_step("clock forward", true, false),
    clock_step("clock back", false, false),
    clock_step("clock forward, restart", true, true),
    clock_step("clock back, restart", false, true),
    clock("clock forward, leader alone", Fault::LeaderAloneAnd(Second::ClockForward), LONG),
    leader("leader killed", Leader::Killed, ALL, EITHER),
    leader("standby killed", Leader::StandbyKilled, ALL, EITHER),
    leader("leader paused, short", Leader::Paused, ALL, SHORT),
    leader("leader paused, long", Leader::Paused, ALL, LONG),
    leader("standbys paused, long", Leader::StandbysPaused, ALL, LONG),
    alone_and("standbys paused, leader alone", Second::StandbysPaused, ALL),
    sentinel("leader killed, sentinel", Leader::Killed, AT_ONCE),
    sentinel("leader and sentinel killed", Leader::SentinelKilled, EITHER),
    sentinel("leader killed, sentinel paused", Leader::SentinelPaused, LONG),
    leader("leader terminated", Leader::Terminated, ALL, AT_ONCE),
    leader("leader moved", Leader::Moved(None), ALL, AT_ONCE),
    leader("leader moved, and killed", Leader::Moved(Some(Killed::Leader)), ALL, EITHER),
    leader("leader moved, successor killed", Leader::Moved(Some(Killed::Successor)), ALL, EITHER),
    leader("key deleted", Leader::KeyDeleted, ALL, SHORT),
    // Beside Choria's there is no promise for a forced delete that the leader cannot learn of, nor
    // for a bucket of which the creator declares that there is no leader.
    leader("key deleted, leader alone", Leader::KeyDeletedAlone, OURS, LONG),
    leader("key deleted, leader paused", Leader::KeyDeletedPaused, OURS, EITHER),
    leader("bucket deleted", Leader::BucketDeleted, OURS, LONG),
    alone_and("bucket deleted, leader alone", Second::BucketDeleted, OURS),
    leader("bucket created by candidate", Leader::BucketCreatedByCandidate, OURS, LONG),
    choria("Choria evicted", Choria::Evicted, LONG),
    choria("Choria killed", Choria::Killed, EITHER),
    choria("Choria alone", Choria::Alone, LONG),
];

/// The fault of a name.
pub fn named(name: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.name == name)
}
