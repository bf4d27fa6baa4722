//! Sandboxes that hide processes, or refuse what could find and signal them: the command ends with
//! its term there too, or it is not started.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use incumbent_test_support::{eventually, succeeds};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::env::{Candidate, TestEnv};
use crate::root::{SharedProgram, is_root, not_of_root};

/// Runs its arguments as `nobody`, who sees only own processes without more capabilities.
const HIDDEN: &str = "mount -t proc -o hidepid=2 proc /proc && \
                      exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";

/// Runs its arguments while this system call, of x86-64, is refused.
const REFUSE: &str = "\
import ctypes, os, struct, sys
number, error = int(sys.argv[1]), int(sys.argv[2])
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50000 | error), (6, 0, 0, 0x7fff0000)]
steps = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', 4, ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit('no filter: ' + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[3], sys.argv[3:])
";
const PIDFD_OPEN: &str = "434";
const KILL: &str = "62";
const PERMISSION: &str = "1";

/// A program that no process of its user may look at: it has a capability of its own.
struct CapableSleep(SharedProgram);

impl CapableSleep {
    /// `None` where this machine can neither create it nor hide it.
    fn create() -> Option<Self> {
        let sleep = Self(SharedProgram::create());
        std::fs::copy("/bin/sleep", sleep.path()).ok()?;
        let path = sleep.path().display().to_string();
        let works = succeeds("setcap", &["cap_net_raw+ep", &path])
            && succeeds("unshare", &["--mount", "sh", "-c", HIDDEN, "sh", &path, "0"]);
        works.then_some(sleep)
    }

    fn path(&self) -> PathBuf {
        self.0.path().with_file_name("sleep")
    }

    /// A candidate, and its command, in a mount namespace that hides processes.
    fn run(&self, env: &TestEnv) -> Candidate {
        let script = "setsid \"$1\" 1000 & ( ( \"$1\" 1000 & ) & ); echo up; exec \"$1\" 1000";
        let sleep = self.path().display().to_string();
        let command = env.command("my_app", &[], &["sh", "-c", script, "sh", &sleep]);
        let mut hidden = Command::new("unshare");
        hidden.args(["--mount", "sh", "-c", HIDDEN, "sh"]).arg(self.0.path());
        hidden.args(command.get_args()).env_remove("NATS_URL").env_remove("NATS_CREDS");
        not_of_root(&mut hidden).stdin(Stdio::null());
        Candidate::start(hidden)
    }
}

#[tokio::test]
async fn hidden_processes_end_with_their_term() {
    let Some(sleep) = is_root().then(CapableSleep::create).flatten() else { return };
    let env = TestEnv::calm().await;
    let mut run = sleep.run(&env);
    run.wait_for_line("up").await;
    env.evict("my_app").await;
    run.wait_for_line("up").await;
    eventually("three processes of one term", async || {
        (run.descendants().len() == 3).then_some(())
    })
    .await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None, "released");
}

#[tokio::test]
async fn hidden_processes_end_with_their_guard() {
    let Some(sleep) = is_root().then(CapableSleep::create).flatten() else { return };
    let env = TestEnv::calm().await;
    let mut run = sleep.run(&env);
    run.wait_for_line("up").await;
    eventually("three processes", async || (run.descendants().len() == 3).then_some(())).await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None, "released");
}

/// A candidate whose system call of this number fails.
fn without_call(command: &Command, number: &str) -> Option<Candidate> {
    let python = || Command::new("python3");
    let check = ["-c", REFUSE, number, PERMISSION, "/bin/true"];
    let works = python().args(check).stderr(Stdio::null()).status();
    if !cfg!(target_arch = "x86_64") || !works.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut filtered = python();
    filtered.args(["-c", REFUSE, number, PERMISSION]).arg(command.get_program());
    filtered.args(command.get_args()).env_remove("NATS_URL").env_remove("NATS_CREDS");
    filtered.stdin(Stdio::null());
    Some(Candidate::start(filtered))
}

const FAMILY: &str =
    "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000";

#[tokio::test]
async fn command_ends_where_pidfd_open_is_refused() {
    let env = TestEnv::calm().await;
    let command = env.command(
        "my_app",
        &[],
        &[
            "sh",
            "-c",
            "trap 'echo told; exit 3' TERM
        setsid sleep 1000 & echo up; while :; do sleep 0.05; done",
        ],
    );
    let Some(mut run) = without_call(&command, PIDFD_OPEN) else { return };
    run.wait_for_line("up").await;
    env.evict("my_app").await;
    assert_eq!(run.line().await, "told", "it has its grace");
    run.wait_for_line("up").await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None, "released");
}

#[tokio::test]
async fn command_does_not_start_where_it_could_not_be_stopped() {
    let env = TestEnv::calm().await;
    let command = env.command("my_app", &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    let Some(mut run) = without_call(&command, KILL) else { return };
    assert_eq!(run.line_or_exit().await, Err(Some(1)));
    let stderr = run.stderr();
    assert!(stderr.contains("COMMAND could not be stopped here"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// They are inherited from what starts the program, as it ignores or blocks them.
#[tokio::test]
async fn signals_of_the_starter_do_not_hide_the_end_of_a_command() {
    let env = TestEnv::calm().await;
    let start = |how: &str| {
        let command = env.command("my_app", &[], &["sh", "-c", "exit 3"]);
        let mut starter = Command::new("env");
        starter.arg(how).arg(command.get_program()).args(command.get_args());
        starter.env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
        Candidate::start(starter)
    };
    assert_eq!(start("--ignore-signal=CHLD").exit_code().await, Some(3));
    for (blocked, name) in [("CHLD", "SIGCHLD"), ("USR1", "SIGUSR1"), ("USR2", "SIGUSR2")] {
        let mut run = start(&format!("--block-signal={blocked}"));
        assert_eq!(run.exit_code().await, Some(1));
        let stderr = run.stderr();
        let why = format!("COMMAND could not be stopped here: {name} is blocked");
        assert!(stderr.contains(&why) && stderr.lines().count() == 1, "{stderr}");
    }
}

/// Each number of descriptors suffices, or the program ends; none leaves a process behind.
#[tokio::test]
async fn command_ends_where_descriptors_are_short() {
    let env = TestEnv::start().await;
    let mut started = 0;
    for limit in 10..30 {
        let command = env.command("my_app", &[], &["sh", "-c", FAMILY]);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"]);
        limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        limited.env_remove("NATS_URL").env_remove("NATS_CREDS");
        let mut run = Candidate::start(limited);
        if run.line_or_exit().await.is_err() {
            assert_eq!(run.descendants(), [""; 0], "with {limit} descriptors");
            continue;
        }
        started += 1;
        match limit % 2 {
            0 => kill_process(run.guard(), Signal::KILL).expect("a guard"),
            _ => kill_process(run.guard(), Signal::STOP).expect("a guard"),
        }
        run.signal(Signal::TERM);
        run.exit().await;
        assert_eq!(run.descendants(), [""; 0], "with {limit} descriptors");
    }
    assert!(started > 0, "30 descriptors suffice");
}

/// Such as the `tee` of an entry point that ends in `exec incumbent run`.
#[tokio::test]
async fn children_that_another_program_started_live_on() {
    let env = TestEnv::calm().await;
    let command = env.command("my_app", &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    let mut entry = Command::new("sh");
    entry.args(["-c", "(sleep 1000; :) & echo $!; exec \"$@\"", "sh"]);
    entry.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    entry.env_remove("NATS_URL").env_remove("NATS_CREDS");
    let mut run = Candidate::start(entry);
    let helper = run.line().await.parse().ok().and_then(Pid::from_raw).expect("an id");
    run.wait_for_line("up").await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    test_kill_process(helper).expect("it was not started by incumbent");
    kill_process(helper, Signal::KILL).expect("ours");
}
