//! Environment and file descriptors of the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{Candidate, TestEnv};
use crate::root::{SharedProgram, as_nobody, is_root};

const SHOW: &str = "env | grep ^NATS_ | sort; ls /proc/self/fd; echo end";

fn with_secrets(mut command: Command) -> Candidate {
    command.env("NATS_USER", "candidate").env("NATS_PASSWORD", "secret").env("NATS_TIMEOUT", "9s");
    Candidate::start(command)
}

async fn until_end(run: &mut Candidate) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match run.line().await {
            line if line == "end" => return lines,
            line => lines.push(line),
        }
    }
}

#[tokio::test]
async fn credentials_and_descriptors_of_the_lock_are_not_inherited() {
    let env = TestEnv::calm().await;
    let mut run = with_secrets(env.command("my_app", &[], &["sh", "-c", SHOW]));
    // The test process may have further descriptors, which every program inherits.
    let mut plain = Command::new("ls");
    let plain = plain.arg("/proc/self/fd").stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let plain = String::from_utf8(plain.expect("ls").stdout).expect("text");
    let expected: Vec<_> = ["NATS_TIMEOUT=9s"].into_iter().chain(plain.lines()).collect();
    assert_eq!(until_end(&mut run).await, expected);
    let flags = ["--pass-env", "NATS_PASSWORD"];
    let mut run = with_secrets(env.command("my_app", &flags, &["sh", "-c", SHOW]));
    let lines = until_end(&mut run).await;
    assert_eq!(lines[..2], ["NATS_PASSWORD=secret", "NATS_TIMEOUT=9s"]);
}

/// Neither by the command nor by its check.
#[tokio::test]
async fn variables_of_the_context_are_not_inherited() {
    let env = TestEnv::calm().await;
    let place = tempfile::tempdir().expect("a directory");
    let contexts = place.path().join("nats/context");
    fs::create_dir_all(&contexts).expect("a directory");
    let context = r#"{"user": "candidate", "password": "env://SECRET_OF_MINE"}"#;
    fs::write(contexts.join("mine.json"), context).expect("a file");
    let checked = place.path().join("checked");
    let check = format!("env | grep -c SECRET_OF > {0}.new; mv {0}.new {0}", checked.display());
    let start = |flags: &[&str]| {
        let script = ["sh", "-c", "env | grep SECRET_OF; echo end; exec sleep 1000"];
        let flags = [&["--context", "mine", "--check", &check][..], flags].concat();
        let mut command = env.command("my_app", &flags, &script);
        command.env("XDG_CONFIG_HOME", place.path()).env("SECRET_OF_MINE", "secret");
        Candidate::start(command)
    };
    let mut run = start(&[]);
    assert_eq!(until_end(&mut run).await, [""; 0]);
    let seen = eventually("it was checked", async || fs::read_to_string(&checked).ok()).await;
    assert_eq!(seen.trim(), "0");
    run.signal(Signal::TERM);
    run.exit().await;
    let mut run = start(&["--pass-env", "SECRET_OF_MINE"]);
    assert_eq!(until_end(&mut run).await, ["SECRET_OF_MINE=secret"]);
}

#[tokio::test]
async fn check_cannot_read_the_environment_of_the_program() {
    let env = TestEnv::calm().await;
    let place = tempfile::tempdir().expect("a directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let checked = place.path().join("checked");
    let check = format!(
        "{{ cat /proc/$PPID/environ /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ; echo $?; }} \
         > {0}.new; mv {0}.new {0}",
        checked.display()
    );
    let program = SharedProgram::create();
    let mut command = env.campaign("my_app", &["--check", &check]);
    if is_root() {
        command = program.as_nobody(&command);
    }
    let _campaign = with_secrets(command);
    let seen = eventually("it was checked", async || fs::read_to_string(&checked).ok()).await;
    assert_eq!(seen.trim(), "1", "nothing was read");
}

/// Also where the command runs as the same user as the program.
#[tokio::test]
async fn command_reads_no_environment_of_program_or_guard() {
    let env = TestEnv::calm().await;
    // Its parent is the guard, which has the credentials for the time after the program.
    let script = "cat /proc/$PPID/environ && echo open; \
                  cat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ && echo open; echo end";
    let program = SharedProgram::create();
    let mut command = env.command("my_app", &[], &["sh", "-c", script]);
    if is_root() {
        command = program.as_nobody(&command);
    }
    assert_eq!(until_end(&mut with_secrets(command)).await, [""; 0]);
}

/// A command that becomes another user must still be able to read its deadline.
#[tokio::test]
async fn deadline_file_is_readable_by_every_user() {
    let env = TestEnv::calm().await;
    let script = "stat --format=%a $INCUMBENT_DEADLINE_FILE $(dirname $INCUMBENT_DEADLINE_FILE); \
                  echo $INCUMBENT_DEADLINE_FILE; echo end; exec sleep 1000";
    let command = env.command("my_app", &[], &["sh", "-c", script]);
    let mut strict = Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(command.get_program());
    strict.args(command.get_args()).stdin(Stdio::null());
    let mut run = Candidate::start(strict);
    let lines = until_end(&mut run).await;
    assert_eq!(lines[..2], ["644", "755"]);
    if is_root() {
        let mut read = Command::new("cat");
        let read = as_nobody(read.arg(&lines[2])).output().expect("cat");
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    }
    run.signal(Signal::TERM);
    run.exit().await;
}

/// lxcfs replaces /proc/uptime in a container.
#[tokio::test]
async fn uptime_of_a_container_is_reported() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let uptime = directory.path().join("uptime");
    std::fs::write(&uptime, "12.00 12.00\n").expect("a file");
    const SCRIPT: &str = "mount --bind \"$1\" /proc/uptime; shift; exec \"$@\"";
    let may = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    let command = env.command("my_app", &[], &["sh", "-c", "exit 0"]);
    let mut contained = Command::new("unshare");
    contained.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(&uptime);
    contained.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    let mut run = Candidate::start(contained);
    assert_eq!(run.exit_code().await, Some(0));
    let line = run.stderr();
    assert!(line.contains("/proc/uptime is 12s") && line.contains("CLOCK_BOOTTIME"), "{line}");
    assert_eq!(line.lines().count(), 1);
}
