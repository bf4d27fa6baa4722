//! The sentinel in the guard of `incumbent run`.

use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Candidate, STEADY, TestEnv};
use crate::setup::{LONG_LEASE, Watch, is_alive, standby, won, wrapped};

const SERVE: &str = "echo $$; exec sleep 1000";

/// A leader that runs a script, which prints its process id.
struct Run {
    candidate: Candidate,
    command: Pid,
}

impl Run {
    async fn start(env: &TestEnv, flags: &[&str], script: &str) -> Self {
        let flags = [&["--identity", "first"], flags].concat();
        let mut candidate = env.run("my_app", &flags, script);
        let command = candidate.line().await.parse().ok().and_then(Pid::from_raw).expect("an id");
        Self { candidate, command }
    }
}

#[tokio::test]
async fn killed_run_is_replaced_and_its_command_is_dead_before() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let first = Run::start(&env, &[], SERVE).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    first.candidate.signal(Signal::KILL);
    won(&mut second).await;
    assert!(!is_alive(first.command));
    assert_eq!(watch.cause().await, "crashed");
}

#[tokio::test]
async fn lease_decides_without_a_sentinel() {
    let env = TestEnv::with_ttl(STEADY).await;
    let first = Run::start(&env, &["--no-sentinel"], SERVE).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    first.candidate.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
    assert!(!is_alive(first.command));
}

#[tokio::test]
async fn lease_decides_if_the_guard_is_killed_too() {
    let env = TestEnv::with_ttl(STEADY).await;
    let first = Run::start(&env, &[], SERVE).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    let guard = first.candidate.guard();
    // Stopped first: neither sees the death of the other.
    first.candidate.signal(Signal::STOP);
    kill_process(guard, Signal::KILL).expect("it runs");
    first.candidate.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
    assert!(!is_alive(first.command));
}

/// The wrapper kills the guard, so the lease decides: `incumbent run` needs no wrapper.
#[tokio::test]
async fn run_may_be_wrapped_too() {
    let env = TestEnv::with_ttl(STEADY).await;
    let run = env.command("my_app", &["--identity", "first"], &["sh", "-c", SERVE]);
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().expect("text").to_owned()).collect();
    let mut first = Candidate::start(wrapped(&env, "echo $$; exec \"$@\"", &words));
    let run = first.line().await.parse().ok().and_then(Pid::from_raw).expect("an id");
    let command = first.line().await.parse().ok().and_then(Pid::from_raw).expect("an id");
    let mut second = standby(&env).await;
    kill_process(run, Signal::KILL).expect("it runs");
    assert_eq!(first.exit_code().await, Some(128 + 9));
    assert!(!is_alive(command));
    won(&mut second).await;
}
