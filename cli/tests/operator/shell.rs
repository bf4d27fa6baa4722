//! The program in its own environment, on pipes or on a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use incumbent_test_support::{PseudoTerminal, REQUESTS, Server, eventually};
use tempfile::TempDir;

/// The bucket of elections without `--bucket`.
pub const BUCKET: &str = "CHORIA_LEADER_ELECTION";

/// Limit of every wait.
pub use incumbent_test_support::LIMIT as TIMEOUT;

/// The timeout of requests of a command that sets up or observes, unless the test gives another
/// one. A candidate has none: so it tries until the lock is reached.
fn request_timeout(args: &[&str]) -> Option<&'static str> {
    match args {
        ["kv", "watch", ..] => Some("1h"), // this ends the watch, too
        ["election", "file", ..] => None,
        ["doctor" | "election" | "kv" | "leader" | "record" | "top" | "ui", ..]
        | ["set", "info", ..] => Some(REQUESTS.1),
        _ => None,
    }
}

/// An environment and a home directory, without settings of the user who runs the tests.
pub struct Shell {
    home: TempDir,
    server: Option<String>,
    variables: Vec<(String, String)>,
}

/// Standard output, standard error and exit code of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

impl Shell {
    /// A shell without a server.
    pub fn bare() -> Self {
        let home = TempDir::with_prefix("incumbent-shell-").expect("a temporary directory");
        Self { home, server: None, variables: Vec::new() }
    }

    /// A shell whose NATS_URL is this server.
    pub fn at(server: &Server) -> Self {
        Self { server: Some(server.url()), ..Self::bare() }
    }

    /// A server, and a shell whose NATS_URL is this server.
    pub async fn serving() -> (Server, Self) {
        let server = Server::start().await;
        let shell = Self::at(&server);
        (server, shell)
    }

    /// A server with a bucket that keeps what is put and has these leaders of elections, and a
    /// shell.
    pub async fn with_leaders(leaders: &[(&str, &str)]) -> (Server, Self) {
        let (server, shell) = Self::serving().await;
        shell.out(&["kv", "add", BUCKET, "--election", "--ttl", "1h", "-q"]);
        leaders.iter().for_each(|(election, leader)| shell.put(election, leader));
        (server, shell)
    }

    /// Writes a leader that does not renew.
    pub fn put(&self, election: &str, leader: &str) {
        self.out(&["kv", "put", BUCKET, election, leader]);
    }

    /// A server, and shells of an administrator and of an observer of bucket `B`, who may publish
    /// to these subjects too.
    pub async fn with_observer(more: &[&str]) -> (Server, Self, Self) {
        let publish = [&["$JS.API.STREAM.INFO.KV_B", "$JS.API.STREAM.MSG.GET.KV_B"], more].concat();
        let users = format!(
            r#"authorization: {{ users: [
                {{ user: admin, password: p }},
                {{ user: observer, password: p, permissions: {{
                    publish: {publish:?},
                    subscribe: ["incumbent.B.>", "incumbent-answer.B.>", "_INBOX_observer.>"],
                }} }},
            ] }}"#
        );
        let server = Server::builder().config(users).start().await;
        let user = |name| Self::at(&server).with("NATS_USER", name).with("NATS_PASSWORD", "p");
        let (admin, observer) = (user("admin"), user("observer"));
        let context = r#"{"inbox_prefix": "_INBOX_observer"}"#;
        observer.write(".config/nats/context/observer.json", context);
        observer.write(".config/nats/context.txt", "observer");
        (server, admin, observer)
    }

    /// Starts a candidate with a lease of 24 s: a machine that stands still for 10 s does not end
    /// its term.
    pub fn campaign(&self, election: &str, identity: &str) -> Running {
        self.start(&["campaign", election, "--lease", "24s", "--identity", identity])
    }

    /// Sets an environment variable.
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
        command.envs(request_timeout(args).map(|timeout| (REQUESTS.0, timeout)));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.home());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_program(&self.command(args))
    }

    /// As `run`, again until standard output contains this text.
    pub async fn run_until(&self, args: &[&str], text: &str) -> CommandOutput {
        eventually(text, async || {
            let output = self.run(args);
            output.stdout.contains(text).then_some(output)
        })
        .await
    }

    fn run_program(&self, program: &Command) -> CommandOutput {
        // A command that hangs fails the test.
        let mut command = Command::new("timeout");
        command
            .arg(TIMEOUT.as_secs().to_string())
            .arg(program.get_program())
            .args(program.get_args())
            .env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).current_dir(self.home());
        command.output().expect("timeout and the program start").into()
    }

    /// Runs a command for at most `limit`, and closes its standard output after one line. The
    /// output may be truncated.
    pub fn run_for(&self, args: &[&str], limit: Duration) -> CommandOutput {
        let mut command = self.command(args);
        command.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            // An argument cannot contain a NUL.
            Err(error) => {
                return CommandOutput {
                    stdout: String::new(),
                    stderr: error.to_string(),
                    code: Some(2),
                };
            }
        };
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = child.stderr.take().expect("piped");
        // A campaign ends when it cannot write its first line.
        let closes_at_once = args.first() == Some(&"campaign");
        let first = std::thread::spawn(move || {
            let mut line = Vec::new();
            if closes_at_once {
                return line;
            }
            let _ = stdout.read_until(b'\n', &mut line); // then the pipe is closed
            line
        });
        let errors = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            bytes
        });
        let code = match wait_for(&mut child, limit) {
            Some(status) => status.code().or(status.signal().map(|signal| 128 + signal)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Some(124)
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let stdout = text(first.join().expect("a line"));
        CommandOutput { stdout, stderr: text(errors.join().expect("lines")), code }
    }

    /// Another shell with the same server, an empty home directory and no variables.
    pub fn with_same_server(&self) -> Self {
        let home = TempDir::with_prefix("incumbent-shell-").expect("a temporary directory");
        Self { home, server: self.server.clone(), variables: Vec::new() }
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub fn out(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
        output.stdout
    }

    /// Runs a command that must succeed. Returns its standard output, parsed as JSON.
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.out(args)).expect("JSON")
    }

    /// Runs a command that must fail with exactly one line, on standard error. Returns the line and
    /// the exit code. A candidate does not try again either.
    pub fn refusal(&self, args: &[&str]) -> (String, i32) {
        let mut program = self.command(args);
        if !program.get_envs().any(|(name, _)| name == REQUESTS.0) {
            program.envs([REQUESTS]);
        }
        let output = self.run_program(&program);
        assert_eq!(output.stdout, "", "{output:?}");
        assert_eq!(output.stderr.trim_end().lines().count(), 1, "{output:?}");
        assert!(output.stderr.starts_with("incumbent: "), "{output:?}");
        (output.stderr.trim_end().to_owned(), output.code.expect("an exit code"))
    }

    /// As `refusal`, and checks that the line contains `text` and that the exit code is `code`.
    /// Returns the line.
    pub fn expect_refusal(&self, args: &[&str], text: &str, code: i32) -> String {
        let (line, exit_code) = self.refusal(args);
        assert!(line.contains(text), "no {text:?}: {line}");
        assert_eq!(exit_code, code, "{line}");
        line
    }

    /// Runs a command with this standard input.
    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> CommandOutput {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        child.stdin.take().expect("piped").write_all(input).expect("it reads");
        child.wait_with_output().expect("an end").into()
    }

    /// Starts a command whose standard output is read line by line.
    pub fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stderr(Stdio::inherit());
        self.start_command(command)
    }

    /// As `start`, with a prepared command.
    pub fn start_command(&self, mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        read(child.stdout.take().expect("piped"), sender);
        Running { child, lines }
    }

    /// As `start`, with the lines of standard error between those of standard output.
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
        let terminal = PseudoTerminal::open();
        let mut command = self.command(args);
        command
            .env("TERM", "xterm")
            .stdin(terminal.side())
            .stdout(terminal.side())
            .stderr(terminal.side());
        let child = command.spawn().expect("the program starts");
        // This closes our copies of the other side, so that reading ends with the program.
        drop(command);
        Terminal { child, controller: terminal.controller, seen: String::new() }
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
            code: output.status.code(),
        }
    }
}

/// A running command, killed when dropped.
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
    /// The next line of output.
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(TIMEOUT).expect("a line in time")
    }

    /// The next line of output, if it comes within this time.
    pub fn line_within(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The next line of output that is there.
    pub fn next_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Reads lines until one that contains this text, and returns that line.
    pub fn line_with(&mut self, text: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends a signal and waits for the end. Returns the signal that ended the process.
    pub fn end_with(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().expect("an end").signal()
    }

    /// Waits for the end. Returns the exit code.
    pub fn wait(mut self) -> Option<i32> {
        wait_for(&mut self.child, TIMEOUT).expect("its end in time").code()
    }

    pub fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill");
        assert!(sent.success());
    }

    pub fn id(&self) -> u32 {
        self.child.id()
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
    /// Waits until the terminal shows this text.
    pub fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + TIMEOUT;
        while !self.seen.contains(text) {
            assert!(Instant::now() < end && self.read(), "no {text:?} in {:?}", self.seen);
        }
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        writeln!(self.controller, "{line}").expect("a terminal");
    }

    /// Waits for the end. Returns everything shown, and the exit code.
    pub fn wait(mut self) -> (String, Option<i32>) {
        while self.read() {}
        (std::mem::take(&mut self.seen), self.child.wait().expect("an end").code())
    }

    /// Sends SIGINT and waits for the end. Returns everything shown, and the exit code.
    pub fn interrupt(mut self) -> (String, Option<i32>) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &id]).status().expect("kill");
        assert!(sent.success());
        while self.read() {}
        (std::mem::take(&mut self.seen), self.child.wait().expect("an end").code())
    }

    /// False once no process has the other side open, which a terminal reports as an error.
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

/// Waits for the end of a program for at most `limit`.
fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        let ended = child.try_wait().expect("a status");
        if ended.is_some() || Instant::now() > end {
            return ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
