//! Two members with the same job, which runs every two seconds: each time on one of them.
//!
//! ```text
//! cargo run --example nightly --features schedule
//! ```
//! The first member is stopped after some seconds; the second one continues with the next slot.

use std::error::Error;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::new_election;
use incumbent::schedule::{Job, Schedule, ScheduleError, new_schedule};

/// Starts a member. A real one has a lock on a server, and a job as `0 3 * * *`.
fn member(name: &'static str, lock: MemoryLock) -> Result<Schedule, ScheduleError> {
    let job = Job::new("nightly", "*/2 * * * * *")?.zone("Europe/Berlin")?.at_least_once();
    new_schedule(new_election("jobs", lock).identity(name))
        .job(job, move |run| async move {
            // The work. Zero: it succeeded.
            println!(
                "{name} runs {} of {}{}",
                run.slot,
                run.job,
                if run.late { ", late" } else { "" }
            );
            0
        })
        .start()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let lock = MemoryLock::with_ttl(Duration::from_secs(2));
    let first = member("host-1", lock.clone())?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = member("host-2", lock)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("host-1 stops");
    first.stop().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    second.stop().await;
    Ok(())
}
