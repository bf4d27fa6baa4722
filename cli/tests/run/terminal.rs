//! `incumbent` in a shell with job control, on a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::time::Duration;

use incumbent_test_support::PseudoTerminal;
use rustix::process::Signal;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::env::{TIMEOUT, TestEnv};

/// A shell on its own terminal.
struct Shell {
    child: Child,
    keyboard: File,
    output: UnboundedReceiver<Vec<u8>>,
    screen: String,
}

impl Shell {
    async fn start() -> Self {
        let terminal = PseudoTerminal::open();
        // `setsid` makes this the controlling terminal of the shell.
        let child = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("PS1", "ready$ ")
            .env("INCUMBENT", env!("CARGO_BIN_EXE_incumbent"))
            .env_remove("NATS_URL")
            .env_remove("NATS_CREDS")
            .stdin(terminal.side())
            .stdout(terminal.side())
            .stderr(terminal.side())
            .spawn()
            .expect("setsid and bash");
        let keyboard = terminal.controller;
        let mut reader = keyboard.try_clone().expect("a handle");
        let (sender, output) = unbounded_channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..read].to_vec());
            }
        });
        let mut shell = Self { child, keyboard, output, screen: String::new() };
        shell.wait_for("ready$ ").await;
        shell
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits for a text after the previous one.
    async fn wait_for(&mut self, text: &str) {
        let seen = async {
            loop {
                if let Some(at) = self.screen.find(text) {
                    self.screen.drain(..at + text.len());
                    return;
                }
                let bytes = self.output.recv().await.expect("a shell");
                self.screen.push_str(&String::from_utf8_lossy(&bytes));
            }
        };
        let seen = tokio::time::timeout(TIMEOUT, seen).await.is_ok();
        assert!(seen, "never saw {text:?} on:\n{}", self.screen);
    }

    /// Types a line that runs a script under an election. A script writes `U""P` for UP, so that
    /// the echo of the line differs from the output of the script.
    fn run_script(&mut self, env: &TestEnv, flags: &str, script: &str) {
        let url = env.server.url();
        self.type_keys(&format!("$INCUMBENT run my_app -s {url} {flags} -- sh -c \"{script}\"\n"));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The terminal hangs up: jobs end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn ctrl_c_reaches_the_command_and_ends_the_program() {
    let env = TestEnv::calm().await;
    let mut shell = Shell::start().await;
    let script =
        "trap 'echo G\\\"\\\"OT; exit 5' INT; echo U\\\"\\\"P; while :; do sleep 0.01; done";
    shell.run_script(&env, "--on-exit restart", script);
    shell.wait_for("UP").await;
    shell.type_keys("\x03");
    shell.wait_for("GOT").await;
    shell.wait_for("ready$ ").await;
    assert_eq!(env.holder("my_app").await, None, "released");
    shell.type_keys("echo code=$?\n");
    shell.wait_for("code=5\r\n").await;
    // The signal kills a command without a handler.
    shell.run_script(&env, "--on-exit restart", "echo U\\\"\\\"P; exec sleep 1000");
    shell.wait_for("UP").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
    shell.type_keys("echo code=$?\n");
    shell.wait_for("code=130\r\n").await;
}

#[tokio::test]
async fn ctrl_z_and_fg_suspend_and_continue_the_command() {
    let env = TestEnv::with_ttl(Duration::from_secs(20)).await;
    let mut shell = Shell::start().await;
    shell.run_script(&env, "", "echo U\\\"\\\"P; while read line; do echo got:\\$line; done");
    shell.wait_for("UP").await;
    shell.type_keys("one\n");
    shell.wait_for("got:one").await;
    shell.type_keys("\x1a");
    shell.wait_for("Stopped").await;
    shell.wait_for("ready$ ").await;
    shell.type_keys("echo the sh''ell\n");
    shell.wait_for("the shell\r\n").await;
    shell.type_keys("fg\n");
    shell.type_keys("two\n");
    shell.wait_for("got:two").await;
    shell.type_keys("\x04");
    shell.wait_for("ready$ ").await;
    assert_eq!(env.holder("my_app").await, None, "the command ended at the end of its input");
}

/// The suspended candidate does not renew its lease.
#[tokio::test]
async fn command_suspended_beyond_its_lease_is_restarted() {
    let env = TestEnv::start().await;
    let mut shell = Shell::start().await;
    shell.run_script(&env, "", "echo U\\\"\\\"P; exec sleep 1000");
    shell.wait_for("UP").await;
    shell.type_keys("\x1a");
    shell.wait_for("Stopped").await;
    incumbent_test_support::eventually("the lease expires", async || {
        env.holder("my_app").await.is_none().then_some(())
    })
    .await;
    shell.type_keys("fg\n");
    shell.wait_for("lost my_app").await;
    shell.wait_for("UP").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
}

/// Ctrl-S blocks the writers of the terminal. A blocked candidate does not hold the lease.
#[tokio::test]
async fn stopped_output_does_not_delay_the_election() {
    let env = TestEnv::start().await;
    let mut shell = Shell::start().await;
    shell.run_script(&env, "--on-exit restart", "echo U\\\"\\\"P; read line; exit 1");
    shell.wait_for("UP").await;
    let mut second = env.run("my_app", &[], "echo up; exec sleep 1000");
    shell.type_keys("\x13\n");
    second.wait_for_line("up").await;
    second.signal(Signal::TERM);
    shell.type_keys("\x11");
    shell.wait_for("the command exited with code 1").await;
    shell.wait_for("UP").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
}

/// Nor does one that was blocked before it won: no command runs, and nobody takes its term.
#[tokio::test]
async fn standby_with_stopped_output_leaves_the_lead_to_others() {
    let env = TestEnv::start().await;
    let mut first = env.run("my_app", &["--identity", "first"], "echo up; exec sleep 1000");
    first.wait_for_line("up").await;
    let mut shell = Shell::start().await;
    shell.run_script(&env, "--identity second", "exec sleep 1000");
    shell.wait_for("first leads for").await;
    shell.type_keys("\x13");
    // Its next status line, of four a second, blocks; on a busy machine it comes later.
    tokio::time::sleep(Duration::from_secs(5)).await;
    first.signal(Signal::TERM);
    incumbent_test_support::eventually("the standby wins", async || {
        (env.holder("my_app").await.as_deref() == Some("second")).then_some(())
    })
    .await;
    let mut third = env.run("my_app", &[], "echo up; exec sleep 1000");
    third.wait_for_line("up").await;
    shell.type_keys("\x11\x03");
    shell.wait_for("ready$ ").await;
}

#[tokio::test]
async fn status_line_of_run_names_the_leader() {
    let env = TestEnv::calm().await;
    let mut leader =
        env.run("my_app", &["--identity", "c7.example.net"], "echo up; exec sleep 1000");
    leader.wait_for_line("up").await;
    let mut shell = Shell::start().await;
    shell.run_script(&env, "", "echo U\\\"\\\"P; exec sleep 1000");
    shell.wait_for("\r\x1b[Kmy_app: c7.example.net leads for ").await;
    leader.signal(Signal::TERM);
    shell.wait_for("\r\x1b[K").await;
    shell.wait_for("UP").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
}

#[tokio::test]
async fn status_line_of_campaign_names_the_leader_and_failures() {
    let env = TestEnv::start().await;
    let mut leader =
        env.run("my_app", &["--identity", "c7.example.net"], "echo up; exec sleep 1000");
    leader.wait_for_line("up").await;
    let mut shell = Shell::start().await;
    shell.type_keys(&format!("$INCUMBENT campaign my_app -s {}\n", env.server.url()));
    shell.wait_for("\r\x1b[Kmy_app: c7.example.net leads for ").await;
    leader.signal(Signal::TERM);
    shell.wait_for("won: leading with token ").await;
    env.server.pause();
    shell.wait_for("\r\x1b[Kmy_app: requests to the lock fail, retrying: ").await;
    env.server.resume();
    shell.wait_for("won: ").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
}

/// The deletion of an entry does not end the work of its holder.
#[tokio::test]
async fn status_line_of_a_waiting_winner_names_the_reason() {
    // The entry is there until the program has seen it; its lease is waited for below.
    let env = TestEnv::with_ttl(Duration::from_secs(20)).await;
    env.put("my_app", "c9.example.net").await;
    let mut shell = Shell::start().await;
    shell.type_keys(&format!("$INCUMBENT campaign my_app -s {}\n", env.server.url()));
    shell.wait_for("\r\x1b[Kmy_app: c9.example.net leads").await;
    env.evict("my_app").await;
    shell.wait_for("\r\x1b[Kmy_app: cooling down for ").await;
    shell.wait_for("s: a candidate of Choria's that may still lead").await;
    shell.wait_for("won: ").await;
    shell.type_keys("\x03");
    shell.wait_for("ready$ ").await;
}
