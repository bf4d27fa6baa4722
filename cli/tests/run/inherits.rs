//! What a command inherits, and what it does not.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::root::{ForEverybody, as_nobody, is_root};
use crate::scene::{Campaigner, Scene};

const SHOW: &str = "env | grep ^NATS_ | sort; ls /proc/self/fd; echo end";

fn with_secrets(mut command: Command) -> Campaigner {
    command.env("NATS_USER", "campaigner").env("NATS_PASSWORD", "secret").env("NATS_TIMEOUT", "9s");
    Campaigner::start(command)
}

async fn until_end(run: &mut Campaigner) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match run.line().await {
            line if line == "end" => return lines,
            line => lines.push(line),
        }
    }
}

#[tokio::test]
async fn neither_credentials_nor_descriptors_of_the_lock() {
    let scene = Scene::start().await;
    let mut run = with_secrets(scene.command("my_app", &[], &["sh", "-c", SHOW]));
    // Whoever runs the tests may have others, which any program that they start gets.
    let mut plain = Command::new("ls");
    let plain = plain.arg("/proc/self/fd").stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let plain = String::from_utf8(plain.expect("ls").stdout).expect("text");
    let expected: Vec<_> = ["NATS_TIMEOUT=9s"].into_iter().chain(plain.lines()).collect();
    assert_eq!(until_end(&mut run).await, expected);
    let flags = ["--pass-env", "NATS_PASSWORD"];
    let mut run = with_secrets(scene.command("my_app", &flags, &["sh", "-c", SHOW]));
    let lines = until_end(&mut run).await;
    assert_eq!(lines[..2], ["NATS_PASSWORD=secret", "NATS_TIMEOUT=9s"]);
}

/// Nor by way of the program itself, which has them, where both are the same user.
#[tokio::test]
async fn the_programs_own_environment_is_not_for_its_command() {
    let scene = Scene::start().await;
    let script = "cat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ && echo open; echo end";
    let program = ForEverybody::make();
    let mut command = scene.command("my_app", &[], &["sh", "-c", script]);
    if is_root() {
        command = program.as_nobody(&command);
    }
    assert_eq!(until_end(&mut with_secrets(command)).await, [""; 0]);
}

/// A command that gives up its rights must still know its deadline.
#[tokio::test]
async fn everybody_may_read_the_deadline() {
    let scene = Scene::start().await;
    let script = "stat --format=%a $INCUMBENT_DEADLINE_FILE $(dirname $INCUMBENT_DEADLINE_FILE); \
                  echo $INCUMBENT_DEADLINE_FILE; echo end; exec sleep 1000";
    let command = scene.command("my_app", &[], &["sh", "-c", script]);
    let mut strict = Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(command.get_program());
    strict.args(command.get_args()).stdin(Stdio::null());
    let mut run = Campaigner::start(strict);
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

/// As lxcfs does in a container.
#[tokio::test]
async fn an_uptime_that_is_not_the_machines_is_told() {
    let scene = Scene::start().await;
    let place = tempfile::tempdir().expect("a directory");
    let uptime = place.path().join("uptime");
    std::fs::write(&uptime, "12.00 12.00\n").expect("a file");
    const SHOWN: &str = "mount --bind \"$1\" /proc/uptime; shift; exec \"$@\"";
    let may = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    let command = scene.command("my_app", &[], &["sh", "-c", "exit 0"]);
    let mut contained = Command::new("unshare");
    contained.args(["--mount", "sh", "-c", SHOWN, "sh"]).arg(&uptime);
    contained.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    let mut run = Campaigner::start(contained);
    assert_eq!(run.exit_code().await, Some(0));
    let line = run.errors();
    assert!(line.contains("/proc/uptime is 12s") && line.contains("CLOCK_BOOTTIME"), "{line}");
    assert_eq!(line.lines().count(), 1);
}
