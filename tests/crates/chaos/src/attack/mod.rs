//! Doing a fault, and undoing it.

mod moves;
mod pair;

use std::io;
use std::time::Duration;

use crate::env::{OURS, SERVERS, TestEnv};
use crate::fault::{Fault, Which};
use crate::fleet::{Candidate, Kind};
use crate::net::Node;
use crate::server::Server;

/// How long the harness waits for a leader before it can begin.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What has to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wound {
    /// Links are cut or bad.
    Links,
    /// A server is down.
    ServerDown(usize),
    /// A server is paused.
    ServerPaused(usize),
    /// A server's disk is full.
    Disk(usize),
    /// A server's clock is off; whether it has to be restarted when that ends.
    Clock(usize, bool),
    /// A sentinel is paused, and its candidate is dead.
    SentinelPaused(usize),
    /// A candidate is down.
    CandidateDown(usize),
    /// A candidate is paused.
    CandidatePaused(usize),
}

/// Does a fault; answers what is to be undone, and whom it struck.
///
/// # Errors
///
/// Where it cannot be done.
pub async fn begin(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    match fault {
        Fault::LeaderAlone
        | Fault::LeaderWithMinority
        | Fault::AnswersLost
        | Fault::RequestsLost
        | Fault::SlowLeader
        | Fault::LossyLeader => leaders_network(env, fault).await,
        Fault::StreamLeaderAlone
        | Fault::StreamLeaderMute
        | Fault::SlowServer
        | Fault::LossyServers => servers_network(env, fault).await,
        Fault::Kill(which) => {
            let server = pick(env, which).await?;
            env.servers[server].kill();
            Ok((vec![Wound::ServerDown(server)], format!("s{server}")))
        }
        Fault::Pause(which) => {
            let server = pick(env, which).await?;
            env.servers[server].pause();
            Ok((vec![Wound::ServerPaused(server)], format!("s{server}")))
        }
        Fault::RollingRestart => {
            for server in 0..SERVERS {
                env.servers[server].stop().await;
                let down = env.lease().mul_f64(env.rng.f64());
                env.pass(down).await?;
                env.servers[server].start(&env.net)?;
                env.await_servers().await?;
            }
            Ok((Vec::new(), "s0, s1, s2".to_owned()))
        }
        Fault::DiskFull => {
            let server = pick(env, Which::StreamLeader).await?;
            env.servers[server].fill_disk()?;
            Ok((vec![Wound::Disk(server)], format!("s{server}")))
        }
        Fault::ClockStep { forward, restart } => step_clock(env, forward, restart).await,
        Fault::LeaderKilled
        | Fault::SentinelKilled
        | Fault::SentinelPaused
        | Fault::StandbyKilled
        | Fault::LeaderPaused
        | Fault::StandbysPaused
        | Fault::LeaderTerminated => processes(env, fault).await,
        Fault::KeyDeleted
        | Fault::KeyDeletedLeaderAlone
        | Fault::KeyDeletedLeaderPaused
        | Fault::BucketDeleted
        | Fault::BucketCreatedByCandidate => entries(env, fault).await,
        Fault::ChoriaEvicted | Fault::ChoriaKilled | Fault::ChoriaAlone => choria(env, fault).await,
        Fault::LeaderMoved | Fault::MovedLeaderKilled | Fault::MovedSuccessorKilled => {
            moves::begin(env, fault).await
        }
        Fault::LeaderAloneAnd(second) => pair::begin(env, second).await,
    }
}

/// Undoes it. Everything runs again afterwards.
///
/// # Errors
///
/// Where it cannot be undone.
pub async fn heal(env: &mut TestEnv, wounds: &[Wound]) -> io::Result<()> {
    for wound in wounds {
        match *wound {
            Wound::Links => env.net.heal()?,
            Wound::ServerDown(server) => env.servers[server].start(&env.net)?,
            Wound::ServerPaused(server) => env.servers[server].resume(),
            Wound::Disk(server) => {
                // A server that met a full disk has put JetStream away until it is started anew.
                env.servers[server].empty_disk();
                restart(env, server).await?;
            }
            Wound::Clock(server, again) => {
                env.servers[server].step_clock(0)?;
                if again {
                    restart(env, server).await?;
                }
            }
            Wound::CandidateDown(index) | Wound::SentinelPaused(index) => {
                // A sentinel first releases what its candidate left.
                env.fleet[index].resume_sentinel();
                await_end(env, index).await?;
                env.fleet[index].start(&env.net, &env.orders)?;
            }
            Wound::CandidatePaused(index) => env.fleet[index].resume(),
        }
    }
    Ok(())
}

/// Waits until the candidate's process has ended, for 20 s. Returns whether it has.
async fn await_end(env: &mut TestEnv, index: usize) -> io::Result<bool> {
    for _ in 0..1000 {
        if env.fleet[index].has_ended() {
            return Ok(true);
        }
        env.pass(Duration::from_millis(20)).await?;
    }
    Ok(false)
}

async fn restart(env: &mut TestEnv, server: usize) -> io::Result<()> {
    env.servers[server].stop().await;
    env.servers[server].start(&env.net)
}

async fn pick(env: &mut TestEnv, which: Which) -> io::Result<usize> {
    match which {
        Which::Any => Ok(env.rng.usize(..SERVERS)),
        Which::StreamLeader => env.stream_leader().await,
        Which::MetaLeader => env.meta_leader().await,
    }
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

/// A renewal and its answer are about a kilobyte: from unpleasant to hardly any.
fn slowness(env: &mut TestEnv) -> u32 {
    env.rng.choice([6, 12, 24, 64]).unwrap_or(12)
}

async fn leaders_network(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(env).await?;
    let node = Node::Candidate(leader);
    let mut struck = env.fleet[leader].name();
    match fault {
        Fault::LeaderAlone => env.isolate(leader)?,
        Fault::LeaderWithMinority => {
            let near = env.rng.usize(..SERVERS);
            struck += &format!(" with s{near}");
            for server in (0..SERVERS).filter(|server| *server != near) {
                env.net.part(node, Node::Server(server))?;
                env.net.part(Node::Server(near), Node::Server(server))?;
            }
            for other in (0..=OURS).filter(|other| *other != leader) {
                env.net.part(Node::Candidate(other), Node::Server(near))?;
            }
        }
        Fault::AnswersLost => {
            (0..SERVERS).try_for_each(|server| env.net.cut(Node::Server(server), node))?;
        }
        Fault::RequestsLost => {
            (0..SERVERS).try_for_each(|server| env.net.cut(node, Node::Server(server)))?;
        }
        Fault::SlowLeader => {
            let kbit = slowness(env);
            struck += &format!(" at {kbit} kbit/s");
            env.net.slow(node, kbit)?;
        }
        _ => {
            let percent = env.rng.u8(10..50);
            struck += &format!(" at {percent} %");
            env.net.lossy(node, percent)?;
        }
    }
    Ok((vec![Wound::Links], struck))
}

async fn servers_network(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leads = env.stream_leader().await?;
    let mut struck = format!("s{leads}");
    let others = (0..SERVERS).filter(|server| *server != leads).map(Node::Server);
    match fault {
        Fault::StreamLeaderAlone => {
            others.into_iter().try_for_each(|other| env.net.part(Node::Server(leads), other))?;
        }
        Fault::StreamLeaderMute => {
            others.into_iter().try_for_each(|other| env.net.cut(Node::Server(leads), other))?;
        }
        Fault::SlowServer => {
            let kbit = slowness(env);
            struck += &format!(" at {kbit} kbit/s");
            env.net.slow(Node::Server(leads), kbit)?;
        }
        _ => {
            let percent = env.rng.u8(5..30);
            struck = format!("all at {percent} %");
            (0..SERVERS).try_for_each(|server| env.net.lossy(Node::Server(server), percent))?;
        }
    }
    Ok((vec![Wound::Links], struck))
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

async fn step_clock(
    env: &mut TestEnv,
    forward: bool,
    again: bool,
) -> io::Result<(Vec<Wound>, String)> {
    let (server, leads) = clock_that_counts(env).await?;
    let far = env.rng.choice([2, 10, 100, 3600]).unwrap_or(100);
    let seconds = if forward { far } else { -far };
    env.servers[server].step_clock(seconds)?;
    if again {
        restart(env, server).await?;
        env.await_servers().await?;
        env.admin.prefer_leader(&format!("s{server}")).await;
    }
    let part = if leads { "leading" } else { "following" };
    Ok((vec![Wound::Clock(server, again)], format!("s{server}, {part}, by {seconds} s")))
}

async fn processes(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(env).await?;
    let struck = env.fleet[leader].name();
    match fault {
        Fault::LeaderKilled => {
            env.fleet[leader].kill(&env.log);
            Ok((vec![Wound::CandidateDown(leader)], struck))
        }
        Fault::SentinelKilled => {
            env.fleet[leader].kill_with_sentinel(&env.log);
            Ok((vec![Wound::CandidateDown(leader)], struck))
        }
        Fault::SentinelPaused => {
            env.fleet[leader].kill_beside_paused_sentinel(&env.log);
            Ok((vec![Wound::SentinelPaused(leader)], struck))
        }
        Fault::LeaderPaused => {
            env.fleet[leader].pause();
            Ok((vec![Wound::CandidatePaused(leader)], struck))
        }
        Fault::LeaderTerminated => {
            env.fleet[leader].terminate();
            match await_end(env, leader).await? {
                true => Ok((vec![Wound::CandidateDown(leader)], struck)),
                false => Err(io::Error::other(format!("{struck} did not stop within 20 s"))),
            }
        }
        Fault::StandbyKilled => {
            let Some(standby) = env.standby(leader) else {
                return Err(io::Error::other("no standby"));
            };
            env.fleet[standby].kill(&env.log);
            Ok((vec![Wound::CandidateDown(standby)], env.fleet[standby].name()))
        }
        _ => {
            let spared = env.standby(leader);
            let mut wounds = Vec::new();
            for index in (0..OURS).filter(|index| *index != leader && Some(*index) != spared) {
                env.fleet[index].pause();
                wounds.push(Wound::CandidatePaused(index));
            }
            Ok((wounds, format!("all but {struck} and one")))
        }
    }
}

async fn entries(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(env).await?;
    let mut struck = env.fleet[leader].name();
    let key = env.orders.election.clone();
    let wounds = match fault {
        Fault::KeyDeletedLeaderAlone => {
            env.isolate(leader)?;
            vec![Wound::Links]
        }
        Fault::KeyDeletedLeaderPaused => {
            env.fleet[leader].pause();
            vec![Wound::CandidatePaused(leader)]
        }
        Fault::BucketDeleted => {
            env.admin.delete_bucket().await?;
            env.admin.make_bucket().await?;
            return Ok((Vec::new(), struck));
        }
        Fault::BucketCreatedByCandidate => {
            env.admin.delete_bucket().await?;
            // Until no candidate can lead: the creator of a bucket declares that.
            env.pass(env.lease() + Duration::from_millis(500)).await?;
            if let Some(standby) = env.standby(leader) {
                env.fleet[standby].kill(&env.log);
                env.fleet[standby].start(&env.net, &env.orders)?;
                struck = env.fleet[standby].name();
            }
            return Ok((Vec::new(), struck));
        }
        _ => Vec::new(),
    };
    env.admin.delete_key(&key).await?;
    Ok((wounds, struck))
}

/// Choria's candidates lead if no standby of ours learns of the vacancy first.
async fn choria(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let theirs = OURS;
    for index in 0..OURS {
        env.fleet[index].terminate();
    }
    for _ in 0..1500 {
        if env.fleet[..OURS].iter_mut().all(Candidate::has_ended) {
            break;
        }
        env.pass(Duration::from_millis(20)).await?;
    }
    let led = env.await_leader(TIMEOUT, |candidate| !candidate.is_ours()).await?;
    env.start_fleet()?;
    if led != Some(theirs) {
        return Err(io::Error::other("the candidate like Choria's never came to lead"));
    }
    let settling = env.lease().mul_f64(env.rng.f64());
    env.pass(settling).await?;
    let struck = env.fleet[theirs].name();
    match fault {
        Fault::ChoriaKilled => {
            env.fleet[theirs].kill(&env.log);
            Ok((vec![Wound::CandidateDown(theirs)], struck))
        }
        Fault::ChoriaAlone => {
            env.isolate(theirs)?;
            Ok((vec![Wound::Links], struck))
        }
        _ => {
            let key = env.orders.election.clone();
            env.admin.delete_key(&key).await?;
            Ok((Vec::new(), struck))
        }
    }
}
