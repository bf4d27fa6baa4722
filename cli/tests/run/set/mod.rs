//! `incumbent set run`: a command for each shard of a set, or one for all.

mod commands;
mod refusals;
mod resizing;
mod seats;

use std::time::Duration;

use crate::env::{Candidate, TestEnv, incumbent};

/// The number of the shard, and the process that works on it.
const SERVE: &str = "echo \"$1 $$\"; exec sleep 1000";
/// Ends only by force.
const STUBBORN: &str = "trap 'echo draining' TERM; echo up; while :; do sleep 0.1; done";

/// A server on which a term of each of these shards has ended with a release: nobody waits for a
/// lease.
async fn server(set: &str, shards: u32, ttl: Duration) -> TestEnv {
    let names: Vec<String> = (0..shards).map(|shard| format!("{set}.{shard}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    TestEnv::with_elections(ttl, &names).await
}

/// Starts `incumbent set run shop flags -- sh -c script sh {shard}`.
fn member(env: &TestEnv, flags: &[&str], script: &str) -> Candidate {
    let mut command = incumbent();
    command.args(["set", "run", "shop", "--server", &env.server.url()]);
    if !flags.contains(&"--settle") {
        command.args(["--settle", "100ms"]);
    }
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{shard}"]);
    Candidate::start(command)
}

/// The next line of `SERVE`: a shard, and the process of it.
async fn serving(member: &mut Candidate) -> (u32, String) {
    let line = member.line().await;
    let (shard, pid) = line.split_once(' ').expect("two words");
    (shard.parse().expect("a number"), pid.to_owned())
}

fn is_gone(pid: &str) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}
