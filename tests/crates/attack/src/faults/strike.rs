//! Doing a fault, and undoing it.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::net::Node;
use super::table::{Choria, Fault, Killed, Leader, Second, Servers, Which};
use crate::load::fleet::{Candidate, Kind};
use crate::load::server::Server;
use crate::plans::env::{OURS, SERVERS, TestEnv};

/// How long the harness waits for a leader before it can begin.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long a process that is told to stop may take to end.
const STOPS_WITHIN: Duration = Duration::from_secs(120);
/// How soon after the answer of a leader that moves one of the two is killed, in milliseconds.
const KILLED_WITHIN: u64 = 20;

/// Does a fault, and answers whom it strikes.
pub async fn begin(env: &mut TestEnv, fault: Fault) -> io::Result<String> {
    match fault {
        Fault::Servers(fault) => strike_servers(env, fault).await,
        Fault::Leader(fault) => strike_leader(env, fault).await,
        Fault::LeaderAloneAnd(second) => strike_leader_and(env, second).await,
        Fault::Choria(fault) => strike_choria(env, fault).await,
    }
}

/// Undoes it. Everything runs again afterwards.
pub async fn heal(env: &mut TestEnv) -> io::Result<()> {
    env.net.heal()?;
    for server in 0..SERVERS {
        env.servers[server].resume();
        if env.servers[server].heal()? {
            restart(env, server).await?;
        }
        env.servers[server].start(&env.net)?;
    }
    for index in 0..env.fleet.len() {
        if env.fleet[index].is_killed() {
            // A sentinel first releases what its candidate left.
            env.fleet[index].resume_sentinel();
            await_end(env, index).await?;
        }
        env.fleet[index].resume();
    }
    env.start_fleet()
}

/// Waits until the candidate's process has ended, for a while. Returns whether it has.
async fn await_end(env: &mut TestEnv, index: usize) -> io::Result<bool> {
    let end = Instant::now() + STOPS_WITHIN;
    while !env.fleet[index].has_ended() {
        if Instant::now() >= end {
            return Ok(false);
        }
        env.pass(Duration::from_millis(20)).await?;
    }
    Ok(true)
}

async fn restart(env: &mut TestEnv, server: usize) -> io::Result<()> {
    env.servers[server].stop().await;
    env.servers[server].start(&env.net)
}

async fn strike_servers(env: &mut TestEnv, fault: Servers) -> io::Result<String> {
    let which = match fault {
        Servers::Kill(which) | Servers::Pause(which) => which,
        Servers::Lossy | Servers::RollingRestart => Which::Any,
        _ => Which::StreamLeader,
    };
    let server = match which {
        Which::Any => env.rng.usize(..SERVERS),
        Which::StreamLeader => env.stream_leader().await?,
        Which::MetaLeader => env.meta_leader().await?,
    };
    let (node, name) = (Node::Server(server), format!("s{server}"));
    let mut others = (0..SERVERS).filter(|other| *other != server).map(Node::Server);
    Ok(match fault {
        Servers::Alone => {
            others.try_for_each(|other| env.net.part(node, other))?;
            name
        }
        Servers::Mute => {
            others.try_for_each(|other| env.net.cut(node, other))?;
            name
        }
        Servers::Slow => {
            let kbit = slowness(env);
            env.net.slow(node, kbit)?;
            format!("{name} at {kbit} kbit/s")
        }
        Servers::Lossy => {
            let percent = env.rng.u8(5..30);
            (0..SERVERS).try_for_each(|server| env.net.lossy(Node::Server(server), percent))?;
            format!("all at {percent} %")
        }
        Servers::Kill(_) => {
            env.servers[server].kill();
            name
        }
        Servers::Pause(_) => {
            env.servers[server].pause();
            name
        }
        Servers::RollingRestart => {
            for server in 0..SERVERS {
                env.servers[server].stop().await;
                let down = env.lease().mul_f64(env.rng.f64());
                env.pass(down).await?;
                env.servers[server].start(&env.net)?;
                env.await_servers().await?;
            }
            "s0, s1, s2".to_owned()
        }
        Servers::DiskFull => {
            env.servers[server].fill_disk()?;
            name
        }
        Servers::ClockStep { forward, restart: again } => {
            let (server, leads) = clock_that_counts(env).await?;
            let far = env.rng.choice([2, 10, 100, 3600]).unwrap_or(100);
            let seconds = if forward { far } else { -far };
            env.servers[server].step_clock(seconds, again)?;
            if again {
                restart(env, server).await?;
                env.await_servers().await?;
                env.admin.prefer_leader(&format!("s{server}")).await;
            }
            let part = if leads { "leading" } else { "following" };
            format!("s{server}, {part}, by {seconds} s")
        }
    })
}

/// A renewal and its answer are about a kilobyte: from unpleasant to hardly any.
fn slowness(env: &mut TestEnv) -> u32 {
    env.rng.choice([6, 12, 24, 64]).unwrap_or(12)
}

/// Makes the server whose clock can be stepped lead the stream: its clock is then the one that
/// stamps entries. Answers which it is, and whether it leads.
async fn clock_that_counts(env: &mut TestEnv) -> io::Result<(usize, bool)> {
    let server = env.servers.iter().position(Server::has_clock);
    let server = server.ok_or_else(|| io::Error::other("no clock to step"))?;
    for _ in 0..10 {
        if env.stream_leader().await? == server {
            return Ok((server, true));
        }
        env.admin.prefer_leader(&format!("s{server}")).await;
        env.pass(Duration::from_millis(500)).await?;
    }
    Ok((server, false))
}

/// A leader of ours. Where the one like Choria's leads, its key is deleted until one of ours does:
/// ours get the hint first.
async fn leader(env: &mut TestEnv) -> io::Result<usize> {
    for _ in 0..3 {
        if let Some(leader) = env.await_leader(TIMEOUT / 3, Candidate::is_ours).await? {
            return Ok(leader);
        }
        if env.orders.kind == Kind::Choria {
            env.admin.delete_key(&env.orders.election).await?;
        }
    }
    Err(io::Error::other("no candidate of ours came to lead, to begin with"))
}

async fn strike_leader(env: &mut TestEnv, fault: Leader) -> io::Result<String> {
    let leader = leader(env).await?;
    let (node, name) = (Node::Candidate(leader), env.fleet[leader].name());
    let election = env.orders.election.clone();
    let mut servers = (0..SERVERS).map(Node::Server);
    Ok(match fault {
        Leader::Alone => {
            env.isolate(leader)?;
            name
        }
        Leader::WithMinority => {
            let near = Node::Server(env.rng.usize(..SERVERS));
            for server in servers.filter(|server| *server != near) {
                env.net.part(node, server)?;
                env.net.part(near, server)?;
            }
            for other in (0..=OURS).filter(|other| *other != leader) {
                env.net.part(Node::Candidate(other), near)?;
            }
            format!("{name} with {near}")
        }
        Leader::AnswersLost => {
            servers.try_for_each(|server| env.net.cut(server, node))?;
            name
        }
        Leader::RequestsLost => {
            servers.try_for_each(|server| env.net.cut(node, server))?;
            name
        }
        Leader::Slow => {
            let kbit = slowness(env);
            env.net.slow(node, kbit)?;
            format!("{name} at {kbit} kbit/s")
        }
        Leader::Lossy => {
            let percent = env.rng.u8(10..50);
            env.net.lossy(node, percent)?;
            format!("{name} at {percent} %")
        }
        Leader::Killed => {
            env.fleet[leader].kill(&env.journal);
            name
        }
        Leader::SentinelKilled => {
            env.fleet[leader].kill_with_sentinel(&env.journal);
            name
        }
        Leader::SentinelPaused => {
            env.fleet[leader].kill_beside_paused_sentinel(&env.journal);
            name
        }
        Leader::StandbyKilled => {
            let standby = env.standby(leader).ok_or_else(|| io::Error::other("no standby"))?;
            env.fleet[standby].kill(&env.journal);
            env.fleet[standby].name()
        }
        Leader::Paused => {
            env.fleet[leader].pause();
            name
        }
        Leader::StandbysPaused => {
            let spared = env.standby(leader);
            for index in (0..OURS).filter(|index| *index != leader && Some(*index) != spared) {
                env.fleet[index].pause();
            }
            format!("all but {name} and one")
        }
        Leader::Terminated => {
            env.fleet[leader].terminate();
            if !await_end(env, leader).await? {
                let error = format!("{name} did not stop within {STOPS_WITHIN:?}");
                return Err(io::Error::other(error));
            }
            name
        }
        Leader::Moved(killed) => {
            let Some(successor) = env.admin.move_leader(&election).await? else {
                return Ok(format!("{name}, which keeps leading"));
            };
            let killed = match killed {
                None => None,
                Some(Killed::Leader) => Some(leader),
                Some(Killed::Successor) => {
                    (0..OURS).find(|index| env.fleet[*index].name() == successor)
                }
            };
            if let Some(killed) = killed {
                let after = env.rng.u64(..KILLED_WITHIN);
                env.pass(Duration::from_millis(after)).await?;
                env.fleet[killed].kill(&env.journal);
            }
            format!("{name} to {successor}")
        }
        Leader::KeyDeleted => {
            env.admin.delete_key(&election).await?;
            name
        }
        Leader::KeyDeletedAlone => {
            env.isolate(leader)?;
            env.admin.delete_key(&election).await?;
            name
        }
        Leader::KeyDeletedPaused => {
            env.fleet[leader].pause();
            env.admin.delete_key(&election).await?;
            name
        }
        Leader::BucketDeleted => {
            env.admin.delete_bucket().await?;
            env.admin.make_bucket().await?;
            name
        }
        Leader::BucketCreatedByCandidate => {
            env.admin.delete_bucket().await?;
            // Until no candidate can lead: the creator of a bucket declares that.
            env.pass(env.lease() + Duration::from_millis(500)).await?;
            let Some(standby) = env.standby(leader) else { return Ok(name) };
            env.fleet[standby].kill(&env.journal);
            env.fleet[standby].start(&env.net, &env.orders)?;
            env.fleet[standby].name()
        }
    })
}

/// The leader is cut off, and something else happens meanwhile.
async fn strike_leader_and(env: &mut TestEnv, second: Second) -> io::Result<String> {
    // Before the cut, which leaves little time.
    let clock = match second {
        Second::ClockForward => Some(clock_that_counts(env).await?.0),
        _ => None,
    };
    let stream_leader = env.stream_leader().await?;
    let leader = leader(env).await?;
    let mut name = env.fleet[leader].name();
    if second == Second::StandbysPaused {
        let standbys = (0..OURS).filter(|index| *index != leader);
        standbys.clone().for_each(|index| env.fleet[index].pause());
        // Long enough for a renewal that they do not receive, too short for the entry to expire.
        let unheard = env.lease().mul_f64(0.4 + 0.3 * env.rng.f64());
        env.pass(unheard).await?;
        env.isolate(leader)?;
        standbys.for_each(|index| env.fleet[index].resume());
        return Ok(name);
    }
    env.isolate(leader)?;
    match (second, clock) {
        (Second::StreamLeaderKilled, _) => {
            env.servers[stream_leader].kill();
            name += &format!(", s{stream_leader}");
        }
        (Second::BucketDeleted, _) => {
            env.admin.delete_bucket().await?;
            env.admin.make_bucket().await?;
        }
        (Second::ClockForward, Some(server)) => {
            // Entries expire at the next stroke of the server's timer: one is due within a lease.
            env.servers[server].step_clock(100, false)?;
            name += &format!(", s{server} by 100 s");
        }
        (Second::ClockForward, None) | (Second::StandbysPaused, _) => {}
    }
    Ok(name)
}

/// Choria's candidates lead if no standby of ours learns of the vacancy first.
async fn strike_choria(env: &mut TestEnv, fault: Choria) -> io::Result<String> {
    let theirs = OURS;
    for index in 0..OURS {
        env.fleet[index].terminate();
    }
    for index in 0..OURS {
        await_end(env, index).await?;
    }
    let led = env.await_leader(TIMEOUT, |candidate| !candidate.is_ours()).await?;
    env.start_fleet()?;
    if led != Some(theirs) {
        return Err(io::Error::other("the candidate like Choria's never came to lead"));
    }
    let settling = env.lease().mul_f64(env.rng.f64());
    env.pass(settling).await?;
    let name = env.fleet[theirs].name();
    Ok(match fault {
        Choria::Killed => {
            env.fleet[theirs].kill(&env.journal);
            name
        }
        Choria::Alone => {
            env.isolate(theirs)?;
            name
        }
        Choria::Evicted => {
            let election = env.orders.election.clone();
            env.admin.delete_key(&election).await?;
            name
        }
    })
}
