//! A wrapped program and its processes: signals, orphans, and what it leaves behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use incumbent_test_support::{eventually, not_run};
use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Candidate, TestEnv, incumbent};
use crate::program::worker;
use crate::setup::{
    INTRODUCE, LONG_LEASE, Watch, Wrapped, campaign, is_alive, registered, standby, status, won,
    wrapped,
};

/// The process id in a file, once it is there.
async fn pid_in(file: &Path) -> Pid {
    let read = async || fs::read_to_string(file).ok()?.trim().parse().ok();
    Pid::from_raw(eventually("a process id", read).await).expect("an id")
}

/// A program without a lock.
fn under_sentinel(script: &str) -> Candidate {
    let mut command = incumbent();
    command.args(["sentinel", "--server", "nats://127.0.0.1:1", "--", "sh", "-c", script]);
    command.stdin(Stdio::piped());
    Candidate::start(command)
}

#[tokio::test]
async fn terminated_program_releases_by_itself() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let mut first = Wrapped::campaign(&env).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    first.candidate.signal(Signal::TERM);
    won(&mut second).await;
    assert_eq!(watch.cause().await, "stopped");
    assert_eq!(first.candidate.exit_code().await, Some(128 + 15));
    assert_eq!(first.candidate.stderr(), "");
}

#[tokio::test]
async fn signals_are_forwarded() {
    let script = "for s in HUP INT QUIT USR1 USR2 TERM; do trap \"echo $s\" $s; done; echo up; \
                  while :; do sleep 0.01; done";
    let mut program = under_sentinel(script);
    program.wait_for_line("up").await;
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ] {
        program.signal(signal);
        assert_eq!(program.line().await, name);
    }
}

/// As of `nohup`.
#[tokio::test]
async fn ignored_signal_stays_ignored() {
    let ignores = "trap '' HUP; exec \"$@\"";
    let sentinel = [env!("CARGO_BIN_EXE_incumbent"), "sentinel", "--server", "nats://127.0.0.1:1"];
    let script = "echo up; read line; kill -HUP $$; echo alive; read line";
    let mut outer = Command::new("sh");
    outer.args(["-c", ignores, "sh"]).args(sentinel).args(["--", "sh", "-c", script]);
    outer.stdin(Stdio::piped());
    let mut program = Candidate::start(outer);
    program.wait_for_line("up").await;
    program.signal(Signal::HUP);
    program.write("one\n");
    program.wait_for_line("alive").await;
    program.write("two\n");
    assert_eq!(program.exit_code().await, Some(0));
}

#[tokio::test]
async fn exit_code_of_the_program_is_kept() {
    for code in [0, 1, 42, 255] {
        let mut program = under_sentinel(&format!("exit {code}"));
        assert_eq!(program.exit_code().await, Some(code));
        assert_eq!(program.stderr(), "");
    }
}

#[tokio::test]
async fn program_has_standard_input() {
    let mut program = under_sentinel("read line; echo got $line");
    program.write("one\n");
    assert_eq!(program.line().await, "got one");
    assert_eq!(program.exit_code().await, Some(0));
}

#[tokio::test]
async fn orphans_are_reaped() {
    let mut program = under_sentinel("(sleep 0 & echo $!); echo up; read line");
    let orphan: i32 = program.line().await.parse().expect("an id");
    program.wait_for_line("up").await;
    let entry = format!("/proc/{orphan}");
    eventually("the orphan is reaped", async || (!Path::new(&entry).exists()).then_some(())).await;
    program.write("\n");
    assert_eq!(program.exit_code().await, Some(0));
}

/// It ignores signals, has a session of its own, and continues with the work of the leader.
#[tokio::test]
async fn process_left_behind_is_killed_before_the_next_leads() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (ticks, id) = (folder.path().join("ticks"), folder.path().join("id"));
    let work = format!(
        "trap '' TERM HUP INT; echo $$ >{}; while :; do echo tick >>{}; done",
        id.display(),
        ticks.display()
    );
    let script = format!("(setsid sh -c \"$0\" </dev/null >/dev/null 2>&1 &); {INTRODUCE}");
    let mut command = incumbent();
    command.args(["sentinel", "--server", &env.server.url(), "--", "sh", "-c", &script, &work]);
    command.args(campaign(&env, "my_app", "first"));
    let mut first = Wrapped::start(command).await;
    let mut second = standby(&env).await;
    let worker = pid_in(&id).await;
    eventually("work", async || {
        fs::metadata(&ticks).is_ok_and(|data| data.len() > 0).then_some(())
    })
    .await;
    assert!(is_alive(worker));
    first.kill_program(Signal::KILL);
    won(&mut second).await;
    assert!(!is_alive(worker), "the work of the dead leader continues");
    assert_eq!(first.candidate.exit_code().await, Some(128 + 9));
}

/// Its parent may have work of the same term.
#[tokio::test]
async fn nothing_is_released_before_the_whole_program_is_dead() {
    let env = TestEnv::with_ttl(LONG_LEASE).await;
    // The candidate says its own id, before it campaigns.
    let script = "echo \"$INCUMBENT_SENTINEL\"; echo $$; sh -c 'echo $$; exec \"$@\"' sh \"$@\" & \
                  wait $!; echo waits; read line; exit 7";
    let mut command = wrapped(&env, script, &campaign(&env, "my_app", "first"));
    command.stdin(Stdio::piped());
    let mut first = Candidate::start(command);
    let address = first.line().await;
    let main = Pid::from_raw(first.line().await.parse().expect("an id")).expect("an id");
    let candidate = Pid::from_raw(first.line().await.parse().expect("an id")).expect("an id");
    won(&mut first).await;
    registered(&address, 1).await;
    let mut second = standby(&env).await;
    kill_process(candidate, Signal::KILL).expect("it runs");
    first.wait_for_line("waits").await;
    // The sentinel has seen the death, and waits for the rest.
    eventually("nothing is registered", async || (status(&address).await.1 == 0).then_some(()))
        .await;
    assert_eq!(env.holder("my_app").await.as_deref(), Some("first"));
    assert!(is_alive(main));
    first.write("\n");
    won(&mut second).await;
    assert!(!is_alive(main));
    assert_eq!(first.exit_code().await, Some(7));
}

/// Of a name that any user can connect to, any user can take all connections.
#[tokio::test]
async fn socket_is_reached_by_this_user_alone_and_removed() {
    let mut program = under_sentinel("echo \"$INCUMBENT_SENTINEL\"; read line");
    let address = program.line().await;
    let path = Path::new(&address);
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    let directory = path.parent().expect("a directory");
    assert_eq!((mode(directory), mode(path)), (0o700, 0o600));
    program.write("\n");
    assert_eq!(program.exit_code().await, Some(0));
    assert!(!directory.exists());
}

#[tokio::test]
async fn program_is_not_started_without_a_directory_for_the_socket() {
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|s| s.success()) {
        not_run("a sentinel without a writable directory", "this user cannot create a namespace");
        return;
    }
    let script =
        "mount -o remount,ro,bind /dev/shm 2>/dev/null || mount -t tmpfs -o ro none /dev/shm
        exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_incumbent")]);
    command.args(["sentinel", "--server", "nats://127.0.0.1:1", "--", "echo", "started"]);
    let output = command.env("TMPDIR", "/proc").env_remove("XDG_RUNTIME_DIR").output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("set TMPDIR"), "{text}");
    assert_eq!(output.stdout, b"");
}

#[tokio::test]
async fn dead_workers_hold_no_file_descriptors() {
    let env = TestEnv::start().await;
    let script = "ulimit -c 0; echo \"$INCUMBENT_SENTINEL\"; read line; \
                  for i in 1 2 3 4 5 6 7 8 9 10; do \"$@\" >/dev/null 2>&1; done; \
                  echo ended; read line";
    let mut command = wrapped(&env, script, &worker());
    command.stdin(Stdio::piped());
    let mut program = Candidate::start(command);
    let open = |program: &Candidate| {
        let id = program.pid().as_raw_pid();
        fs::read_dir(format!("/proc/{id}/fd")).expect("a process").count()
    };
    let address = program.line().await;
    let before = open(&program); // once it has started the program
    program.write("\n");
    program.wait_for_line("ended").await;
    let all_dead = async || (status(&address).await.0 == 0).then_some(());
    eventually("all workers are known to be dead", all_dead).await;
    // Its connection to the server, and that of the status.
    let after = open(&program);
    assert!(after < before + 10, "{before} and then {after}");
    program.write("\n");
    assert_eq!(program.exit_code().await, Some(0));
}

/// As of an entrypoint that becomes the sentinel.
#[tokio::test]
async fn processes_started_before_the_sentinel_live_on() {
    let sentinel = [env!("CARGO_BIN_EXE_incumbent"), "sentinel", "--server", "nats://127.0.0.1:1"];
    let script = "trap 'exit 7' TERM; sleep 1000 & echo $!; while :; do sleep 0.01; done";
    let mut entry = Command::new("sh");
    entry.args(["-c", "(sleep 1000; :) & echo $!; exec \"$@\"", "sh"]);
    entry.args(sentinel).args(["--", "sh", "-c", script]).stdin(Stdio::null());
    let mut program = Candidate::start(entry);
    let [helper, child] = [program.line().await, program.line().await];
    let [helper, child] = [helper, child].map(|id| Pid::from_raw(id.parse().expect("an id")));
    program.signal(Signal::TERM);
    assert_eq!(program.exit_code().await, Some(7));
    let helper = helper.expect("an id");
    assert!(is_alive(helper) && !is_alive(child.expect("an id")));
    kill_process(helper, Signal::KILL).expect("ours");
}
