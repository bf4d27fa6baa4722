//! Doing a fault, and undoing it.

mod pair;

use std::io;
use std::time::Duration;

use crate::fault::{Fault, Which};
use crate::fleet::{Campaigner, Kind};
use crate::net::Node;
use crate::scene::{OURS, SERVERS, Scene};
use crate::server::Server;

/// How long the harness waits for somebody to lead before it can begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// What has to be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wound {
    /// Links are cut or bad.
    Links,
    /// A server is down.
    ServerDown(usize),
    /// A server stands still.
    ServerPaused(usize),
    /// A server's disk is full.
    Disk(usize),
    /// A server's clock is off; whether it has to be restarted when that ends.
    Clock(usize, bool),
    /// A campaigner is down.
    CampaignerDown(usize),
    /// A campaigner stands still.
    CampaignerPaused(usize),
}

/// Does a fault; answers what is to be undone, and whom it struck.
///
/// # Errors
///
/// Where it cannot be done.
pub async fn begin(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    match fault {
        Fault::LeaderAlone
        | Fault::LeaderWithMinority
        | Fault::AnswersLost
        | Fault::RequestsLost
        | Fault::SlowLeader
        | Fault::LossyLeader => leaders_network(scene, fault).await,
        Fault::StreamLeaderAlone
        | Fault::StreamLeaderMute
        | Fault::SlowServer
        | Fault::LossyServers => servers_network(scene, fault).await,
        Fault::Kill(which) => {
            let server = pick(scene, which).await?;
            scene.servers[server].kill();
            Ok((vec![Wound::ServerDown(server)], format!("s{server}")))
        }
        Fault::Pause(which) => {
            let server = pick(scene, which).await?;
            scene.servers[server].pause();
            Ok((vec![Wound::ServerPaused(server)], format!("s{server}")))
        }
        Fault::RollingRestart => {
            for server in 0..SERVERS {
                scene.servers[server].stop().await;
                let down = scene.lease().mul_f64(scene.rng.f64());
                scene.pass(down).await?;
                scene.servers[server].start(&scene.net)?;
                scene.await_servers().await?;
            }
            Ok((Vec::new(), "s0, s1, s2".to_owned()))
        }
        Fault::DiskFull => {
            let server = pick(scene, Which::StreamLeader).await?;
            scene.servers[server].fill_disk()?;
            Ok((vec![Wound::Disk(server)], format!("s{server}")))
        }
        Fault::ClockStep { forward, restart } => step_clock(scene, forward, restart).await,
        Fault::LeaderKilled
        | Fault::StandbyKilled
        | Fault::LeaderPaused
        | Fault::StandbysPaused
        | Fault::LeaderTerminated => processes(scene, fault).await,
        Fault::KeyDeleted
        | Fault::KeyDeletedLeaderAlone
        | Fault::KeyDeletedLeaderPaused
        | Fault::BucketDeleted
        | Fault::BucketMadeByCampaigner => entries(scene, fault).await,
        Fault::ChoriaEvicted | Fault::ChoriaKilled | Fault::ChoriaAlone => {
            choria(scene, fault).await
        }
        Fault::LeaderAloneAnd(second) => pair::begin(scene, second).await,
    }
}

/// Undoes it. Everything runs again afterwards.
///
/// # Errors
///
/// Where it cannot be undone.
pub async fn heal(scene: &mut Scene, wounds: &[Wound]) -> io::Result<()> {
    for wound in wounds {
        match *wound {
            Wound::Links => scene.net.heal()?,
            Wound::ServerDown(server) => scene.servers[server].start(&scene.net)?,
            Wound::ServerPaused(server) => scene.servers[server].resume(),
            Wound::Disk(server) => {
                // A server that met a full disk has put JetStream away until it is started anew.
                scene.servers[server].empty_disk();
                restart(scene, server).await?;
            }
            Wound::Clock(server, again) => {
                scene.servers[server].step_clock(0)?;
                if again {
                    restart(scene, server).await?;
                }
            }
            Wound::CampaignerDown(index) => {
                scene.fleet[index].start(&scene.net, &scene.orders)?;
            }
            Wound::CampaignerPaused(index) => scene.fleet[index].resume(),
        }
    }
    Ok(())
}

async fn restart(scene: &mut Scene, server: usize) -> io::Result<()> {
    scene.servers[server].stop().await;
    scene.servers[server].start(&scene.net)
}

async fn pick(scene: &mut Scene, which: Which) -> io::Result<usize> {
    match which {
        Which::Any => Ok(scene.rng.usize(..SERVERS)),
        Which::StreamLeader => scene.stream_leader().await,
        Which::MetaLeader => scene.meta_leader().await,
    }
}

/// A leader of ours. Where the one like Choria's leads, its key is deleted until one of ours does: they hear of it first.
async fn leader(scene: &mut Scene) -> io::Result<usize> {
    for _ in 0..3 {
        if let Some(leader) = scene.await_leader(PATIENCE / 3, Campaigner::is_ours).await? {
            return Ok(leader);
        }
        if scene.orders.kind == Kind::Choria {
            scene.admin.delete_key(&scene.orders.election).await?;
        }
    }
    Err(io::Error::other("no campaigner of ours came to lead, to begin with"))
}

/// A renewal and its answer are about a kilobyte: from unpleasant to hardly any.
fn slowness(scene: &mut Scene) -> u32 {
    scene.rng.choice([6, 12, 24, 64]).unwrap_or(12)
}

async fn leaders_network(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(scene).await?;
    let node = Node::Campaigner(leader);
    let mut struck = scene.fleet[leader].name();
    match fault {
        Fault::LeaderAlone => scene.isolate(leader)?,
        Fault::LeaderWithMinority => {
            let near = scene.rng.usize(..SERVERS);
            struck += &format!(" with s{near}");
            for server in (0..SERVERS).filter(|server| *server != near) {
                scene.net.part(node, Node::Server(server))?;
                scene.net.part(Node::Server(near), Node::Server(server))?;
            }
            for other in (0..=OURS).filter(|other| *other != leader) {
                scene.net.part(Node::Campaigner(other), Node::Server(near))?;
            }
        }
        Fault::AnswersLost => {
            (0..SERVERS).try_for_each(|server| scene.net.cut(Node::Server(server), node))?;
        }
        Fault::RequestsLost => {
            (0..SERVERS).try_for_each(|server| scene.net.cut(node, Node::Server(server)))?;
        }
        Fault::SlowLeader => {
            let kbit = slowness(scene);
            struck += &format!(" at {kbit} kbit/s");
            scene.net.slow(node, kbit)?;
        }
        _ => {
            let percent = scene.rng.u8(10..50);
            struck += &format!(" at {percent} %");
            scene.net.lossy(node, percent)?;
        }
    }
    Ok((vec![Wound::Links], struck))
}

async fn servers_network(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leads = scene.stream_leader().await?;
    let mut struck = format!("s{leads}");
    let others = (0..SERVERS).filter(|server| *server != leads).map(Node::Server);
    match fault {
        Fault::StreamLeaderAlone => {
            others.into_iter().try_for_each(|other| scene.net.part(Node::Server(leads), other))?;
        }
        Fault::StreamLeaderMute => {
            others.into_iter().try_for_each(|other| scene.net.cut(Node::Server(leads), other))?;
        }
        Fault::SlowServer => {
            let kbit = slowness(scene);
            struck += &format!(" at {kbit} kbit/s");
            scene.net.slow(Node::Server(leads), kbit)?;
        }
        _ => {
            let percent = scene.rng.u8(5..30);
            struck = format!("all at {percent} %");
            (0..SERVERS).try_for_each(|server| scene.net.lossy(Node::Server(server), percent))?;
        }
    }
    Ok((vec![Wound::Links], struck))
}

/// Makes the server whose clock can be stepped lead the stream: its clock is then the one that stamps entries. Answers which
/// it is, and whether it leads.
async fn clock_that_counts(scene: &mut Scene) -> io::Result<(usize, bool)> {
    let server = scene.servers.iter().position(Server::has_clock);
    let server = server.ok_or_else(|| io::Error::other("no clock to step"))?;
    for _ in 0..10 {
        if scene.stream_leader().await? == server {
            return Ok((server, true));
        }
        scene.admin.prefer_leader(&format!("s{server}")).await;
        scene.pass(Duration::from_millis(500)).await?;
    }
    Ok((server, false))
}

async fn step_clock(
    scene: &mut Scene,
    forward: bool,
    again: bool,
) -> io::Result<(Vec<Wound>, String)> {
    let (server, leads) = clock_that_counts(scene).await?;
    let far = scene.rng.choice([2, 10, 100, 3600]).unwrap_or(100);
    let seconds = if forward { far } else { -far };
    scene.servers[server].step_clock(seconds)?;
    if again {
        restart(scene, server).await?;
        scene.await_servers().await?;
        scene.admin.prefer_leader(&format!("s{server}")).await;
    }
    let part = if leads { "leading" } else { "following" };
    Ok((vec![Wound::Clock(server, again)], format!("s{server}, {part}, by {seconds} s")))
}

async fn processes(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(scene).await?;
    let struck = scene.fleet[leader].name();
    match fault {
        Fault::LeaderKilled => {
            scene.fleet[leader].kill(&scene.log);
            Ok((vec![Wound::CampaignerDown(leader)], struck))
        }
        Fault::LeaderPaused => {
            scene.fleet[leader].pause();
            Ok((vec![Wound::CampaignerPaused(leader)], struck))
        }
        Fault::LeaderTerminated => {
            scene.fleet[leader].terminate();
            for _ in 0..1000 {
                if scene.fleet[leader].has_ended() {
                    return Ok((vec![Wound::CampaignerDown(leader)], struck));
                }
                scene.pass(Duration::from_millis(20)).await?;
            }
            Err(io::Error::other(format!("{struck} did not stop within 20 s of SIGTERM")))
        }
        Fault::StandbyKilled => {
            let Some(standby) = scene.standby(leader) else {
                return Err(io::Error::other("no stand-by"));
            };
            scene.fleet[standby].kill(&scene.log);
            Ok((vec![Wound::CampaignerDown(standby)], scene.fleet[standby].name()))
        }
        _ => {
            let spared = scene.standby(leader);
            let mut wounds = Vec::new();
            for index in (0..OURS).filter(|index| *index != leader && Some(*index) != spared) {
                scene.fleet[index].pause();
                wounds.push(Wound::CampaignerPaused(index));
            }
            Ok((wounds, format!("all but {struck} and one")))
        }
    }
}

async fn entries(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(scene).await?;
    let mut struck = scene.fleet[leader].name();
    let key = scene.orders.election.clone();
    let wounds = match fault {
        Fault::KeyDeletedLeaderAlone => {
            scene.isolate(leader)?;
            vec![Wound::Links]
        }
        Fault::KeyDeletedLeaderPaused => {
            scene.fleet[leader].pause();
            vec![Wound::CampaignerPaused(leader)]
        }
        Fault::BucketDeleted => {
            scene.admin.delete_bucket().await?;
            scene.admin.make_bucket().await?;
            return Ok((Vec::new(), struck));
        }
        Fault::BucketMadeByCampaigner => {
            scene.admin.delete_bucket().await?;
            // Until nobody can lead: who makes a bucket vouches for that.
            scene.pass(scene.lease() + Duration::from_millis(500)).await?;
            if let Some(standby) = scene.standby(leader) {
                scene.fleet[standby].kill(&scene.log);
                scene.fleet[standby].start(&scene.net, &scene.orders)?;
                struck = scene.fleet[standby].name();
            }
            return Ok((Vec::new(), struck));
        }
        _ => Vec::new(),
    };
    scene.admin.delete_key(&key).await?;
    Ok((wounds, struck))
}

/// Theirs come to lead where no stand-by of ours is there to hear of the vacancy first.
async fn choria(scene: &mut Scene, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let theirs = OURS;
    for index in 0..OURS {
        scene.fleet[index].terminate();
    }
    for _ in 0..1500 {
        if scene.fleet[..OURS].iter_mut().all(Campaigner::has_ended) {
            break;
        }
        scene.pass(Duration::from_millis(20)).await?;
    }
    let led = scene.await_leader(PATIENCE, |campaigner| !campaigner.is_ours()).await?;
    scene.start_fleet()?;
    if led != Some(theirs) {
        return Err(io::Error::other("the campaigner like Choria's never came to lead"));
    }
    let settling = scene.lease().mul_f64(scene.rng.f64());
    scene.pass(settling).await?;
    let struck = scene.fleet[theirs].name();
    match fault {
        Fault::ChoriaKilled => {
            scene.fleet[theirs].kill(&scene.log);
            Ok((vec![Wound::CampaignerDown(theirs)], struck))
        }
        Fault::ChoriaAlone => {
            scene.isolate(theirs)?;
            Ok((vec![Wound::Links], struck))
        }
        _ => {
            let key = scene.orders.election.clone();
            scene.admin.delete_key(&key).await?;
            Ok((Vec::new(), struck))
        }
    }
}
