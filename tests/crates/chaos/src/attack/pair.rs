//! The leader cut off, and something else meanwhile.

use std::io;

use super::{Wound, clock_that_counts, leader};
use crate::fault::Second;
use crate::scene::{OURS, Scene};

pub(super) async fn begin(scene: &mut Scene, second: Second) -> io::Result<(Vec<Wound>, String)> {
    // Before the cut, which leaves little time.
    let clock = match second {
        Second::ClockForward => Some(clock_that_counts(scene).await?.0),
        _ => None,
    };
    let stream_leader = scene.stream_leader().await?;
    let leader = leader(scene).await?;
    let mut struck = scene.fleet[leader].name();
    let mut wounds = vec![Wound::Links];
    match second {
        Second::StreamLeaderKilled => {
            scene.isolate(leader)?;
            struck += &format!(", s{stream_leader}");
            scene.servers[stream_leader].kill();
            wounds.push(Wound::ServerDown(stream_leader));
        }
        Second::BucketDeleted => {
            scene.isolate(leader)?;
            scene.admin.delete_bucket().await?;
            scene.admin.make_bucket().await?;
        }
        Second::ClockForward => {
            scene.isolate(leader)?;
            if let Some(server) = clock {
                // Entries expire at the next stroke of the server's timer: one is due within a lease.
                scene.servers[server].step_clock(100)?;
                wounds.push(Wound::Clock(server, false));
                struck += &format!(", s{server} by 100 s");
            }
        }
        Second::StandbysPaused => {
            for index in (0..OURS).filter(|index| *index != leader) {
                scene.fleet[index].pause();
            }
            // Long enough for a renewal that they do not hear, too short for the entry to expire.
            let unheard = scene.lease().mul_f64(0.4 + 0.3 * scene.rng.f64());
            scene.pass(unheard).await?;
            scene.isolate(leader)?;
            for index in (0..OURS).filter(|index| *index != leader) {
                scene.fleet[index].resume();
            }
        }
    }
    Ok((wounds, struck))
}
