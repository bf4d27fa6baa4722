//! Moves of the leadership, and deaths in their middle.

use std::io;
use std::time::Duration;

use super::{Wound, leader};
use crate::env::{OURS, TestEnv};
use crate::fault::Fault;

/// How soon after the answer of the leader one of the two is killed, in milliseconds.
const KILLED_WITHIN: u64 = 20;

/// An administrator requests the leader to hand over to any candidate that is ready.
pub(super) async fn begin(env: &mut TestEnv, fault: Fault) -> io::Result<(Vec<Wound>, String)> {
    let leader = leader(env).await?;
    let name = env.fleet[leader].name();
    let Some(successor) = env.admin.move_leader(&env.orders.election).await? else {
        return Ok((Vec::new(), format!("{name}, which leads on")));
    };
    let struck = format!("{name} to {successor}");
    let killed = match fault {
        Fault::MovedLeaderKilled => Some(leader),
        Fault::MovedSuccessorKilled => {
            (0..OURS).find(|index| env.fleet[*index].name() == successor)
        }
        _ => None,
    };
    let Some(killed) = killed else { return Ok((Vec::new(), struck)) };
    let after = env.rng.u64(..KILLED_WITHIN);
    env.pass(Duration::from_millis(after)).await?;
    env.fleet[killed].kill(&env.log);
    Ok((vec![Wound::CandidateDown(killed)], struck))
}
