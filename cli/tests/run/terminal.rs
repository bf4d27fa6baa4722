//! On a terminal: a shell with job control in a pseudo-terminal, and what a person sees and types.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::scene::{PATIENCE, Scene};

/// A shell on a terminal of its own.
struct Shell {
    child: Child,
    keyboard: File,
    output: UnboundedReceiver<Vec<u8>>,
    screen: String,
}

impl Shell {
    async fn start() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("ours");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs = OpenOptions::new().read(true).write(true).open(name).expect("its other end");
        // `setsid` makes it the controlling terminal of the shell.
        let child = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("PS1", "ready$ ")
            .env("INCUMBENT", env!("CARGO_BIN_EXE_incumbent"))
            .env_remove("NATS_URL")
            .env_remove("NATS_CREDS")
            .stdin(Stdio::from(theirs.try_clone().expect("a handle")))
            .stdout(Stdio::from(theirs.try_clone().expect("a handle")))
            .stderr(Stdio::from(theirs))
            .spawn()
            .expect("setsid and bash");
        let keyboard = File::from(ours);
        let mut reader = keyboard.try_clone().expect("a handle");
        let (sender, output) = unbounded_channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..read].to_vec());
            }
        });
        let mut shell = Self { child, keyboard, output, screen: String::new() };
        shell.sees("ready$ ").await;
        shell
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits for a text after the last one that was seen.
    async fn sees(&mut self, text: &str) {
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
        let seen = tokio::time::timeout(PATIENCE, seen).await.is_ok();
        assert!(seen, "never saw {text:?} on:\n{}", self.screen);
    }

    /// Types a line that runs a script under an election. The shell's echo of it never looks like its output: a script
    /// writes `U''P` for UP.
    fn runs(&mut self, scene: &Scene, flags: &str, script: &str) {
        let url = scene.server.url();
        self.types(&format!("$INCUMBENT run my_app -s {url} {flags} -- sh -c \"{script}\"\n"));
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
async fn ctrl_c_reaches_the_command_and_ends_the_program_in_order() {
    let scene = Scene::start().await;
    let mut shell = Shell::start().await;
    let script =
        "trap 'echo G\\\"\\\"OT; exit 5' INT; echo U\\\"\\\"P; while :; do sleep 0.01; done";
    shell.runs(&scene, "--on-exit restart", script);
    shell.sees("UP").await;
    shell.types("\x03");
    shell.sees("GOT").await;
    shell.sees("ready$ ").await;
    assert_eq!(scene.holder("my_app").await, None, "released");
    shell.types("echo code=$?\n");
    shell.sees("code=5\r\n").await;
    // And a command that dies of it.
    shell.runs(&scene, "--on-exit restart", "echo U\\\"\\\"P; exec sleep 1000");
    shell.sees("UP").await;
    shell.types("\x03");
    shell.sees("ready$ ").await;
    shell.types("echo code=$?\n");
    shell.sees("code=130\r\n").await;
}

#[tokio::test]
async fn ctrl_z_and_fg_suspend_and_continue_the_command() {
    let scene = Scene::with_ttl(Duration::from_secs(20)).await;
    let mut shell = Shell::start().await;
    shell.runs(&scene, "", "echo U\\\"\\\"P; while read line; do echo got:\\$line; done");
    shell.sees("UP").await;
    shell.types("one\n");
    shell.sees("got:one").await;
    shell.types("\x1a");
    shell.sees("Stopped").await;
    shell.sees("ready$ ").await;
    shell.types("echo the sh''ell\n");
    shell.sees("the shell\r\n").await;
    shell.types("fg\n");
    shell.types("two\n");
    shell.sees("got:two").await;
    shell.types("\x04");
    shell.sees("ready$ ").await;
    assert_eq!(scene.holder("my_app").await, None, "ended by the end of its input");
}

/// No lease is renewed while everything stands still.
#[tokio::test]
async fn a_command_that_is_suspended_for_too_long_is_started_anew() {
    let scene = Scene::start().await;
    let mut shell = Shell::start().await;
    shell.runs(&scene, "", "echo U\\\"\\\"P; exec sleep 1000");
    shell.sees("UP").await;
    shell.types("\x1a");
    shell.sees("Stopped").await;
    incumbent_test_support::eventually("the lease runs out", async || {
        scene.holder("my_app").await.is_none().then_some(())
    })
    .await;
    shell.types("fg\n");
    shell.sees("lost my_app").await;
    shell.sees("UP").await;
    shell.types("\x03");
    shell.sees("ready$ ").await;
}

/// Ctrl-S holds up whoever writes to the terminal; no lease is held for them meanwhile.
#[tokio::test]
async fn output_that_is_stopped_holds_up_no_election() {
    let scene = Scene::start().await;
    let mut shell = Shell::start().await;
    shell.runs(&scene, "--on-exit restart", "echo U\\\"\\\"P; read line; exit 1");
    shell.sees("UP").await;
    let mut second = scene.run("my_app", &[], "echo up; exec sleep 1000");
    shell.types("\x13\n");
    second.says("up").await;
    second.signal(Signal::TERM);
    shell.types("\x11");
    shell.sees("the command exited with code 1").await;
    shell.sees("UP").await;
    shell.types("\x03");
    shell.sees("ready$ ").await;
}

#[tokio::test]
async fn while_it_waits_one_line_says_who_leads() {
    let scene = Scene::start().await;
    let mut leader =
        scene.run("my_app", &["--identity", "c7.example.net"], "echo up; exec sleep 1000");
    leader.says("up").await;
    let mut shell = Shell::start().await;
    shell.runs(&scene, "", "echo U\\\"\\\"P; exec sleep 1000");
    shell.sees("\r\x1b[Kmy_app: c7.example.net leads for ").await;
    leader.signal(Signal::TERM);
    shell.sees("\r\x1b[K").await;
    shell.sees("UP").await;
    shell.types("\x03");
    shell.sees("ready$ ").await;
}

#[tokio::test]
async fn a_campaign_says_who_leads_and_what_is_wrong_while_it_waits() {
    let scene = Scene::start().await;
    let mut leader =
        scene.run("my_app", &["--identity", "c7.example.net"], "echo up; exec sleep 1000");
    leader.says("up").await;
    let mut shell = Shell::start().await;
    shell.types(&format!("$INCUMBENT campaign my_app -s {}\n", scene.server.url()));
    shell.sees("\r\x1b[Kmy_app: c7.example.net leads for ").await;
    leader.signal(Signal::TERM);
    shell.sees("won: leading with token ").await;
    scene.server.pause();
    shell.sees("\r\x1b[Kmy_app: requests to the lock fail, retrying: ").await;
    scene.server.resume();
    shell.sees("won: ").await;
    shell.types("\x03");
    shell.sees("ready$ ").await;
}
