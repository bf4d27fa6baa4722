//! The leader cut off, and something else meanwhile.

use std::io;

use super::{Wound, clock_that_counts, leader};
use crate::env::{OURS, TestEnv};
use crate::fault::Second;

pub(super) async fn begin(env: &mut TestEnv, second: Second) -> io::Result<(Vec<Wound>, String)> {
    // Before the cut, which leaves little time.
    let clock = match second {
        Second::ClockForward => Some(clock_that_counts(env).await?.0),
        _ => None,
    };
    let stream_leader = env.stream_leader().await?;
    let leader = leader(env).await?;
    let mut struck = env.fleet[leader].name();
    let mut wounds = vec![Wound::Links];
    match second {
        Second::StreamLeaderKilled => {
            env.isolate(leader)?;
            struck += &format!(", s{stream_leader}");
            env.servers[stream_leader].kill();
            wounds.push(Wound::ServerDown(stream_leader));
        }
        Second::BucketDeleted => {
            env.isolate(leader)?;
            env.admin.delete_bucket().await?;
            env.admin.make_bucket().await?;
        }
        Second::ClockForward => {
            env.isolate(leader)?;
            if let Some(server) = clock {
                // Entries expire at the next stroke of the server's timer: one is due within a
                // lease.
                env.servers[server].step_clock(100)?;
                wounds.push(Wound::Clock(server, false));
                struck += &format!(", s{server} by 100 s");
            }
        }
        Second::StandbysPaused => {
            for index in (0..OURS).filter(|index| *index != leader) {
                env.fleet[index].pause();
            }
            // Long enough for a renewal that they do not receive, too short for the entry to
            // expire.
            let unheard = env.lease().mul_f64(0.4 + 0.3 * env.rng.f64());
            env.pass(unheard).await?;
            env.isolate(leader)?;
            for index in (0..OURS).filter(|index| *index != leader) {
                env.fleet[index].resume();
            }
        }
    }
    Ok((wounds, struck))
}
