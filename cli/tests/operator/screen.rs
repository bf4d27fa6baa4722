//! A command on a terminal of some size, and what the terminal shows.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use incumbent_test_support::PseudoTerminal;
use rustix::io::ioctl_fionread;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use vt100::Parser;

use crate::shell::{Shell, TIMEOUT};

/// A command on a terminal, killed when dropped.
pub struct Screen {
    child: Mutex<Child>,
    controller: File,
    /// The other side, so that its modes can be read when the command has ended.
    side: File,
    shown: Arc<(Mutex<Parser>, Condvar)>,
    /// Whether the terminal takes no more output.
    hangs: Arc<AtomicBool>,
}

impl Screen {
    /// Starts a command of a shell on a terminal with this many columns and lines.
    pub fn start(shell: &Shell, args: &[&str], (columns, lines): (u16, u16)) -> Self {
        let terminal = PseudoTerminal::open();
        let side = terminal.side();
        tcsetwinsize(&side, size(columns, lines)).expect("a size");
        let program = shell.command(args);
        // The terminal controls the command, so that a change of its size is signalled.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program.get_program()).args(args).env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TERM", "xterm").env("PATH", "/usr/bin:/bin").current_dir(shell.home());
        command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side());
        let child = Mutex::new(command.spawn().expect("the program starts"));
        let sides = (length(lines), length(columns));
        let shown = Arc::new((Mutex::new(Parser::new(sides.0, sides.1, 0)), Condvar::new()));
        let controller = terminal.controller;
        let (mut reader, to) = (controller.try_clone().expect("a handle"), Arc::clone(&shown));
        let hangs = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&hangs);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                to.0.lock().expect("a parser").process(&bytes[..read]);
                to.1.notify_all();
            }
        });
        Self { child, controller, side, shown, hangs }
    }

    /// Waits until the screen is as it should be. Returns its text.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) -> String {
        let found = self.look(TIMEOUT, is_so);
        found.unwrap_or_else(|shown| panic!("{what}: not within {TIMEOUT:?}:\n{shown}"))
    }

    /// The text of the screen once it is as it should be, or what it shows at the limit.
    fn look(
        &self,
        limit: Duration,
        is_so: impl Fn(&vt100::Screen) -> bool,
    ) -> Result<String, String> {
        let end = Instant::now() + limit;
        let mut parser = self.shown.0.lock().expect("a parser");
        while !is_so(parser.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(parser.screen().contents());
            }
            parser = self.shown.1.wait_timeout(parser, left).expect("a parser").0;
        }
        Ok(parser.screen().contents())
    }

    /// Waits until a line of the screen contains all of these texts.
    pub fn wait_for(&self, texts: &[&str]) -> String {
        self.wait_until(&format!("a line with {texts:?}"), |screen| {
            has_line(&screen.contents(), texts)
        })
    }

    /// Whether a line of the screen contains all of these texts within this time.
    pub fn shows_within(&self, limit: Duration, texts: &[&str]) -> bool {
        self.look(limit, |screen| has_line(&screen.contents(), texts)).is_ok()
    }

    /// What the terminal shows now, with its colors.
    pub fn shown(&self) -> vt100::Screen {
        self.shown.0.lock().expect("a parser").screen().clone()
    }

    /// From now on the terminal takes no output but what its buffers hold.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    pub fn press(&self, keys: &str) {
        (&self.controller).write_all(keys.as_bytes()).expect("a terminal");
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        self.shown
            .0
            .lock()
            .expect("a parser")
            .screen_mut()
            .set_size(length(lines), length(columns));
        tcsetwinsize(&self.side, size(columns, lines)).expect("a size");
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.lock().expect("a child").id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill");
        assert!(sent.success());
    }

    /// Whether the terminal is as a shell expects it.
    pub fn is_restored(&self) -> bool {
        let parser = self.shown.0.lock().expect("a parser");
        let screen = parser.screen();
        let modes = tcgetattr(&self.side).expect("modes").local_modes;
        let is_cooked = modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        is_cooked && !screen.alternate_screen() && !screen.hide_cursor()
    }

    /// How many bytes the terminal has not taken.
    pub fn pending(&self) -> u64 {
        ioctl_fionread(&self.controller).expect("a number")
    }

    /// Waits for the end. Returns the exit code, as a shell reports it.
    pub fn wait(&self) -> Option<i32> {
        let status = self.child.lock().expect("a child").wait().expect("an end");
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn length(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("a terminal with cells")
}

fn size(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Whether a line contains all of these texts.
pub fn has_line(text: &str, parts: &[&str]) -> bool {
    text.lines().any(|line| parts.iter().all(|part| line.contains(part)))
}
