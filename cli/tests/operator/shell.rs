//! A shell: the program with an environment of its own, on pipes or on a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use incumbent_test_support::Server;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::TempDir;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// An environment without settings of the one who runs the tests.
pub struct Shell {
    home: TempDir,
    server: Option<String>,
    variables: Vec<(String, String)>,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub struct Told {
    pub out: String,
    pub error: String,
    pub code: Option<i32>,
}

impl Shell {
    /// One in which no server is named.
    pub fn bare() -> Self {
        let home = TempDir::with_prefix("incumbent-shell-").expect("a temporary directory");
        Self { home, server: None, variables: Vec::new() }
    }

    /// One whose NATS_URL is this server.
    pub fn at(server: &Server) -> Self {
        Self { server: Some(server.url()), ..Self::bare() }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file below the home directory.
    pub fn write(&self, file: &str, text: &str) {
        let file = self.home().join(file);
        std::fs::create_dir_all(file.parent().expect("below the home directory")).unwrap();
        std::fs::write(file, text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        command.args(args).env_clear().env("HOME", self.home()).stdin(Stdio::null());
        if let Some(server) = &self.server {
            command.env("NATS_URL", server);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.home());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Told {
        // One that hangs is a failure, not a test that never ends.
        let program = self.command(args);
        let mut command = Command::new("timeout");
        command
            .arg(PATIENCE.as_secs().to_string())
            .arg(program.get_program())
            .args(args)
            .env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).current_dir(self.home());
        command.output().expect("timeout and the program start").into()
    }

    /// Runs a command for so long at the most, with nobody who reads on once a line was printed; what it printed may be cut.
    pub fn briefly(&self, args: &[&str], limit: Duration) -> Told {
        let mut command = self.command(args);
        command.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            // No program can be given a NUL.
            Err(error) => {
                return Told { out: String::new(), error: error.to_string(), code: Some(2) };
            }
        };
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut errors = child.stderr.take().expect("piped");
        let silent = args.first() == Some(&"campaign"); // which then ends with its first line
        let first = std::thread::spawn(move || {
            let mut line = Vec::new();
            if silent {
                return line;
            }
            let _ = out.read_until(b'\n', &mut line); // then it is closed
            line
        });
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = errors.read_to_end(&mut said);
            said
        });
        let end = Instant::now() + limit;
        let code = loop {
            match child.try_wait().expect("a status") {
                Some(status) => break status.code().or(status.signal().map(|signal| 128 + signal)),
                None if Instant::now() > end => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break Some(124);
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let out = text(first.join().expect("a line"));
        Told { out, error: text(said.join().expect("lines")), code }
    }

    /// Another shell with the same server, and a home and variables of its own.
    pub fn again(&self) -> Self {
        let home = TempDir::with_prefix("incumbent-shell-").expect("a temporary directory");
        Self { home, server: self.server.clone(), variables: Vec::new() }
    }

    /// Runs a command that must succeed, and answers what it printed.
    pub fn out(&self, args: &[&str]) -> String {
        let told = self.run(args);
        assert_eq!(told.code, Some(0), "{args:?}: {told:?}");
        told.out
    }

    /// The same, read as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.out(args)).expect("JSON")
    }

    /// Runs a command that must fail with one line on standard error and nothing else; answers that and the exit code.
    pub fn refusal(&self, args: &[&str]) -> (String, i32) {
        let told = self.run(args);
        assert_eq!(told.out, "", "{told:?}");
        assert_eq!(told.error.trim_end().lines().count(), 1, "{told:?}");
        assert!(told.error.starts_with("incumbent: "), "{told:?}");
        (told.error.trim_end().to_owned(), told.code.expect("an exit code"))
    }

    /// The same, where the line says this; answers the whole line.
    pub fn refuses(&self, args: &[&str], says: &str, code: i32) -> String {
        let (line, told) = self.refusal(args);
        assert!(line.contains(says), "no {says:?}: {line}");
        assert_eq!(told, code, "{line}");
        line
    }

    /// Runs a command with this on its standard input.
    pub fn fed(&self, args: &[&str], input: &[u8]) -> Told {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child.stdin.take().expect("piped").write_all(input).expect("it reads");
        child.wait_with_output().expect("an end").into()
    }

    /// Starts a command whose output is read line by line.
    pub fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stderr(Stdio::inherit());
        self.start_command(command)
    }

    /// The same with a command that was prepared.
    pub fn start_command(&self, mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        read(child.stdout.take().expect("piped"), sender);
        Running { child, lines }
    }

    /// The same with its standard error among its output, each line as a whole.
    pub fn start_with_errors(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        read(child.stdout.take().expect("piped"), sender.clone());
        read(child.stderr.take().expect("piped"), sender);
        Running { child, lines }
    }

    /// Starts a command on a terminal.
    pub fn on_terminal(&self, args: &[&str]) -> Terminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("a terminal of ours");
        unlockpt(&controller).expect("an unlocked terminal");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let name = name.to_str().expect("text").to_owned();
        let open = || File::options().read(true).write(true).open(&name).expect("its other side");
        let mut command = self.command(args);
        command.env("TERM", "xterm").stdin(open()).stdout(open()).stderr(open());
        let child = command.spawn().expect("the program starts");
        drop(command); // and with it our copies of the other side, so that reading ends with the program
        Terminal { child, controller: File::from(controller), seen: String::new() }
    }
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        Self {
            out: String::from_utf8(output.stdout).expect("text"),
            error: String::from_utf8(output.stderr).expect("text"),
            code: output.status.code(),
        }
    }
}

/// A command that runs, killed when the test ends.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

fn read(out: impl Read + Send + 'static, lines: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}

impl Running {
    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line within a minute")
    }

    /// Lines until one that holds this.
    pub fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends it a signal as `kill` does, and answers the signal by which it says it ended.
    pub fn end_by(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("an end").signal()
    }

    /// Its exit code, once it has ended by itself.
    pub fn ended(mut self) -> Option<i32> {
        self.child.wait().expect("an end").code()
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill");
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command on a terminal.
pub struct Terminal {
    child: Child,
    controller: File,
    seen: String,
}

impl Terminal {
    /// Waits until the terminal shows this.
    pub fn shows(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.seen.contains(text) {
            assert!(Instant::now() < end && self.read(), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Types a line.
    pub fn types(&mut self, line: &str) {
        writeln!(self.controller, "{line}").expect("a terminal");
    }

    /// All that was shown, and the exit code.
    pub fn ended(mut self) -> (String, Option<i32>) {
        while self.read() {}
        (std::mem::take(&mut self.seen), self.child.wait().expect("an end").code())
    }

    /// Interrupts it, and waits for the end.
    pub fn interrupted(mut self) -> (String, Option<i32>) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &id]).status().expect("kill");
        assert!(sent.success());
        while self.read() {}
        (std::mem::take(&mut self.seen), self.child.wait().expect("an end").code())
    }

    /// False once nobody is left to write: a terminal says so by an error.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 1024];
        match self.controller.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.seen += &String::from_utf8_lossy(&buffer[..length]);
                true
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
