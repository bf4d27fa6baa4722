//! A server, campaigners on it that run commands, and what is left of them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use incumbent_test_support::{Server, eventually};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub const BUCKET: &str = "CHORIA_LEADER_ELECTION";
/// Of a bucket, and so of every campaigner on it: long enough to be renewed on a machine that is busy.
pub const LEASE: Duration = Duration::from_secs(4);
/// Long enough for a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// By which all that a campaigner started is known.
const MARK: &str = "INCUMBENT_TEST_MARK";

pub struct Scene {
    pub server: Server,
    store: async_nats::jetstream::kv::Store,
}

impl Scene {
    /// With a bucket of this TTL, so that whoever comes first does not choose it.
    pub async fn with_ttl(ttl: Duration) -> Self {
        let server = Server::start().await;
        let context = async_nats::jetstream::new(server.connect().await);
        let config = async_nats::jetstream::kv::Config {
            bucket: BUCKET.to_owned(),
            max_age: ttl,
            limit_markers: Some(ttl),
            history: 1,
            ..Default::default()
        };
        let store = context.create_key_value(config).await.expect("a bucket");
        Self { server, store }
    }

    pub async fn start() -> Self {
        Self::with_ttl(LEASE).await
    }

    /// Somebody deletes the entry.
    pub async fn evict(&self, name: &str) {
        self.store.delete(name).await.expect("a deletion");
    }

    /// Somebody who follows no rules writes the entry.
    pub async fn put(&self, name: &str, value: &str) {
        self.store.put(name, value.to_owned().into()).await.expect("a write");
    }

    /// Who holds the entry.
    pub async fn holder(&self, name: &str) -> Option<String> {
        let value = self.store.get(name).await.expect("an answer")?;
        Some(String::from_utf8(value.to_vec()).expect("text"))
    }

    /// `incumbent run NAME flags -- sh -c script`.
    pub fn run(&self, name: &str, flags: &[&str], script: &str) -> Campaigner {
        Campaigner::start(self.command(name, flags, &["sh", "-c", script]))
    }

    /// The same where no control group can be made, so that the tree must be walked: as for most users.
    pub fn run_without_cgroup(&self, name: &str, flags: &[&str], script: &str) -> Campaigner {
        // Who may hide the groups from one program may make some; who may not, may not.
        const HIDE: &str = r#"hide='mount -t tmpfs none /sys/fs/cgroup; exec "$@"'
            if unshare --mount true 2>/dev/null; then exec unshare --mount sh -c "$hide" sh "$@"; fi
            exec "$@""#;
        let command = self.command(name, flags, &["sh", "-c", script]);
        let mut hidden = Command::new("sh");
        hidden.args(["-c", HIDE, "sh"]).arg(command.get_program()).args(command.get_args());
        hidden.env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
        Campaigner::start(hidden)
    }

    /// `incumbent campaign NAME flags`.
    pub fn campaign(&self, name: &str, flags: &[&str]) -> Command {
        let mut incumbent = incumbent();
        incumbent.args(["campaign", name, "--server", &self.server.url()]).args(flags);
        incumbent
    }

    pub fn command(&self, name: &str, flags: &[&str], command: &[&str]) -> Command {
        let mut incumbent = incumbent();
        incumbent.args(["run", name, "--server", &self.server.url()]).args(flags).arg("--");
        incumbent.args(command);
        incumbent
    }
}

pub fn incumbent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
    command
}

/// A running `incumbent run`. Dropping it kills it and all that it started.
pub struct Campaigner {
    child: Child,
    mark: String,
    lines: UnboundedReceiver<String>,
}

impl Campaigner {
    pub fn start(mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let child = command.env(MARK, &mark).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, mark, lines }
    }

    /// The next line of its command.
    pub async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await.expect("a line in time");
        line.unwrap_or_else(|| panic!("it ended instead: {}", self.errors()))
    }

    /// The next line that is this one.
    pub async fn says(&mut self, expected: &str) {
        while self.line().await != expected {}
    }

    pub fn is_silent(&mut self) -> bool {
        self.lines.try_recv().is_err()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits until no signal ends it any more before it can put things in order.
    pub async fn listens(&self) {
        const USR2: u32 = 12;
        let status = format!("/proc/{}/status", self.pid().as_raw_pid());
        eventually("it listens to signals", async || {
            let status = fs::read_to_string(&status).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).ok()?;
            (caught >> (USR2 - 1) & 1 == 1).then_some(())
        })
        .await;
    }

    pub fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("piped").write_all(text.as_bytes()).expect("it reads");
    }

    pub async fn exit(&mut self) -> ExitStatus {
        eventually("the program ends", async || self.child.try_wait().expect("a status")).await
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        self.exit().await.code()
    }

    /// All that it said on standard error. It must have ended.
    pub fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.take().expect("once").read_to_string(&mut errors).expect("text");
        errors
    }

    /// What its command started, however far from it by now, and still runs.
    pub fn descendants(&self) -> Vec<String> {
        descendants(&format!("{MARK}={}", self.mark))
    }

    /// The same, of the term with this token.
    pub fn of_term(&self, token: &str) -> Vec<String> {
        let term = format!("INCUMBENT_TOKEN={token}");
        let of_term = |process: &Process| process.environment.contains(&term);
        marked(&format!("{MARK}={}", self.mark)).filter(of_term).map(|p| p.command).collect()
    }

    /// Waits until a descendant is in uninterruptible sleep.
    pub async fn one_sleeps(&self) {
        let mark = format!("{MARK}={}", self.mark);
        let sleeps = |process: Process| {
            let pid = process.pid.as_raw_nonzero();
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
        };
        eventually("one waits for the disk", async || marked(&mark).any(sleeps).then_some(()))
            .await;
    }

    pub async fn nothing_is_left(&self) {
        eventually("no descendant is left", async || self.descendants().is_empty().then_some(()))
            .await;
    }

    /// The process that guards the command.
    pub fn guard(&self) -> Pid {
        let mark = format!("{MARK}={}", self.mark);
        let guard = processes().find(|p| p.is_guard && p.environment.contains(&mark));
        guard.expect("a guard").pid
    }
}

impl Drop for Campaigner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mark = format!("{MARK}={}", self.mark);
        for process in processes().filter(|p| p.environment.contains(&mark)) {
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

struct Process {
    pid: Pid,
    command: String,
    is_guard: bool,
    environment: Vec<String>,
}

fn descendants(mark: &str) -> Vec<String> {
    marked(mark).map(|process| process.command).collect()
}

/// Of the command, not of the programs around it.
fn marked(mark: &str) -> impl Iterator<Item = Process> {
    processes().filter(move |process| {
        let environment = &process.environment;
        let is_incumbent = process.command.starts_with("incumbent run-");
        let below = environment.iter().any(|entry| entry.starts_with("INCUMBENT_ELECTION="));
        below && !is_incumbent && environment.iter().any(|entry| entry == mark)
    })
}

/// All that live: those that have ended and were not waited for have no environment.
fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let words = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        let (environment, arguments) = (words("environ"), words("cmdline"));
        let is_guard = arguments.get(1).is_some_and(|word| word == "run-guard");
        let command = format!("{pid:?} {}", arguments.join(" "));
        let command = if is_guard || arguments.get(1).is_some_and(|word| word == "run-exec") {
            arguments.join(" ")
        } else {
            command
        };
        Some(Process { pid, command, is_guard, environment })
    })
}

/// What the deadline file says: the deadline in seconds since boot, and the token.
pub fn deadline(file: &str) -> (f64, String) {
    let line = fs::read_to_string(file).expect("a deadline file");
    let words: Vec<&str> = line.split_whitespace().collect();
    let [boot, _wall, token] = words[..] else { panic!("three words: {line}") };
    (boot.parse().expect("seconds"), token.to_owned())
}

/// Seconds since boot, as in the deadline file.
pub fn now() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
