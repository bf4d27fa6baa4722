//! A server, candidates on it that run commands, and the processes of those commands.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::Client;
use incumbent::nats::{Bucket, BucketConfig, BucketError, BucketErrorKind};
use incumbent_test_support::{REQUESTS, Server, eventually, jetstream_on, repeated};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub const BUCKET: &str = "CHORIA_LEADER_ELECTION";
/// TTL of the bucket, and so the lease of every candidate on it, where a test waits for its end and
/// a term that is lost on a machine that stands still does no harm.
pub const LEASE: Duration = Duration::from_secs(4);
/// A lease where a test waits for renewals, or for the third of it for which a former leader lets
/// others go first: a machine that stands still for 5 s does not lose a term.
pub const STEADY: Duration = Duration::from_secs(12);
/// A lease where a test waits for no part of it, or for a renewal: a machine that stands still for
/// 10 s does not lose a term.
pub const CALM: Duration = Duration::from_secs(30);
/// Limit of every wait.
pub use incumbent_test_support::LIMIT as TIMEOUT;
/// One attempt to lead, with time for a busy machine to answer.
pub const TRY: [&str; 3] = ["--try", "--timeout", "30s"];
/// Environment variable that identifies all processes that a candidate started.
const MARK: &str = "INCUMBENT_TEST_MARK";

pub struct TestEnv {
    pub server: Server,
    store: async_nats::jetstream::kv::Store,
}

impl TestEnv {
    /// Starts a server with a bucket of this TTL, so that the first candidate does not choose the
    /// TTL.
    ///
    /// A term of `my_app` has ended in it with a release, so that the first candidate leads at
    /// once. In a new bucket of another process it would wait for a lease.
    pub async fn with_ttl(ttl: Duration) -> Self {
        Self::with_elections(ttl, &["my_app"]).await
    }

    /// As `with_ttl`, for each of these elections.
    pub async fn with_elections(ttl: Duration, names: &[&str]) -> Self {
        let server = Server::start().await;
        let client = server.connect().await;
        let bucket = create_bucket(&client, ttl).await;
        for name in names {
            let election = incumbent::new_election(*name, bucket.lock()).start().expect("a start");
            drop(election.won().await.expect("a term"));
            election.stop().await;
        }
        let store = jetstream_on(client).get_key_value(BUCKET).await.expect("the bucket");
        Self { server, store }
    }

    pub async fn start() -> Self {
        Self::with_ttl(LEASE).await
    }

    /// As `start`, for tests that do not wait for the end of a lease: a busy machine loses no term,
    /// and a command has a long grace. Prepares `my_app` and `other`.
    pub async fn calm() -> Self {
        Self::with_elections(CALM, &["my_app", "other"]).await
    }

    /// The bucket, for a candidate in this process.
    pub async fn bucket(&self) -> Bucket {
        let client = self.server.connect().await;
        answered(|| Bucket::open(client.clone(), BUCKET)).await
    }

    /// Deletes the entry, as an operator does.
    pub async fn evict(&self, name: &str) {
        self.store.delete(name).await.expect("a deletion");
    }

    /// Writes the entry without any condition, as `kv put` does.
    pub async fn put(&self, name: &str, value: &str) {
        self.store.put(name, value.to_owned().into()).await.expect("a write");
    }

    /// The identity in the entry.
    pub async fn holder(&self, name: &str) -> Option<String> {
        // A busy machine may not respond in time.
        let read = async || self.store.get(name).await.ok();
        let value = eventually("a response", read).await?;
        Some(String::from_utf8(value.to_vec()).expect("text"))
    }

    /// Starts `incumbent run NAME flags -- sh -c script`.
    pub fn run(&self, name: &str, flags: &[&str], script: &str) -> Candidate {
        Candidate::start(self.command(name, flags, &["sh", "-c", script]))
    }

    /// As `run`, but no control group can be created, so the guard walks the process tree. Most
    /// users run so.
    pub fn run_without_cgroup(&self, name: &str, flags: &[&str], script: &str) -> Candidate {
        // A user without the permission to mount has no permission to create control groups either.
        const HIDE: &str = r#"hide='mount -t tmpfs none /sys/fs/cgroup; exec "$@"'
            if unshare --mount true 2>/dev/null; then exec unshare --mount sh -c "$hide" sh "$@"; fi
            exec "$@""#;
        let command = self.command(name, flags, &["sh", "-c", script]);
        let mut hidden = Command::new("sh");
        hidden.args(["-c", HIDE, "sh"]).arg(command.get_program()).args(command.get_args());
        hidden.env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
        Candidate::start(hidden)
    }

    /// The command `incumbent campaign NAME flags`.
    pub fn campaign(&self, name: &str, flags: &[&str]) -> Command {
        let mut incumbent = incumbent();
        incumbent.args(["campaign", name, "--server", &self.server.url()]).args(flags);
        incumbent
    }

    /// The command `incumbent run NAME flags -- command`.
    pub fn command(&self, name: &str, flags: &[&str], command: &[&str]) -> Command {
        let mut incumbent = incumbent();
        incumbent.args(["run", name, "--server", &self.server.url()]).args(flags).arg("--");
        incumbent.args(command);
        incumbent
    }
}

/// What a request about a bucket leads to: again where a busy machine takes longer than the library
/// waits.
pub async fn answered<T, F>(attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, BucketError>>,
{
    let is_late = |error: &BucketError| error.kind() == BucketErrorKind::Unavailable;
    repeated(attempt, is_late).await.expect("a bucket")
}

/// Creates an election bucket with this TTL.
pub async fn create_bucket(client: &Client, ttl: Duration) -> Bucket {
    let config = BucketConfig::new(BUCKET).ttl(ttl);
    answered(|| Bucket::create_or_open(client, config.clone())).await
}

pub fn incumbent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
    command
}

/// The program, for a command that is no candidate.
pub fn operator() -> Command {
    let mut command = incumbent();
    command.envs([REQUESTS]);
    command
}

/// A running `incumbent run` or `incumbent campaign`. Drop kills it and all processes that it
/// started.
pub struct Candidate {
    child: Child,
    mark: String,
    lines: UnboundedReceiver<String>,
}

impl Candidate {
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

    /// The next line on standard output.
    pub async fn line(&mut self) -> String {
        let line = tokio::time::timeout(TIMEOUT, self.lines.recv()).await.expect("a line in time");
        line.unwrap_or_else(|| panic!("the program ended: {}", self.stderr()))
    }

    /// Reads lines until this one.
    pub async fn wait_for_line(&mut self, expected: &str) {
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

    /// Waits until the program has installed its signal handlers.
    pub async fn wait_for_handlers(&self) {
        const USR2: u32 = 12;
        let status = format!("/proc/{}/status", self.pid().as_raw_pid());
        eventually("the signal handlers are installed", async || {
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

    /// Fails with what the program has said if it has ended.
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a status") {
            panic!("the program ended, {status}: {}", self.stderr());
        }
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        self.exit().await.code()
    }

    /// The next line on standard output, or the exit code if there is none.
    pub async fn line_or_exit(&mut self) -> Result<String, Option<i32>> {
        match tokio::time::timeout(TIMEOUT, self.lines.recv()).await.expect("a line in time") {
            Some(line) => Ok(line),
            None => Err(self.exit_code().await),
        }
    }

    /// All of standard error. The program must have ended.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().expect("once").read_to_string(&mut text).expect("text");
        text
    }

    /// The running processes of the command, including those that left its process tree.
    pub fn descendants(&self) -> Vec<String> {
        descendants(&format!("{MARK}={}", self.mark))
    }

    /// The running processes of the command in the term with this token.
    pub fn descendants_of_term(&self, token: &str) -> Vec<String> {
        let term = format!("INCUMBENT_TOKEN={token}");
        let of_term = |process: &Process| process.environment.contains(&term);
        marked(&format!("{MARK}={}", self.mark)).filter(of_term).map(|p| p.command).collect()
    }

    /// Waits until a descendant is in uninterruptible sleep.
    pub async fn wait_for_disk_sleep(&self) {
        let mark = format!("{MARK}={}", self.mark);
        let sleeps = |process: Process| {
            let pid = process.pid.as_raw_nonzero();
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
        };
        // A program that is read from a slow disk is in this state for a moment, too.
        let mut looks = 0;
        eventually("a descendant waits for the disk", async || {
            looks = if marked(&mark).any(sleeps) { looks + 1 } else { 0 };
            (looks == 25).then_some(())
        })
        .await;
    }

    /// The control group of each descendant.
    pub fn groups(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let group = |process: Process| {
            let pid = process.pid.as_raw_nonzero();
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            groups.lines().find_map(|line| Some(line.strip_prefix("0::")?.to_owned()))
        };
        marked(&mark).filter_map(group).collect()
    }

    pub async fn wait_for_no_descendants(&self) {
        eventually("no descendant is left", async || self.descendants().is_empty().then_some(()))
            .await;
    }

    /// The process that guards the command.
    pub fn guard(&self) -> Pid {
        self.guard_and_reaper().0
    }

    /// The guard, and its parent, which ends what it leaves if it is killed.
    pub fn guard_and_reaper(&self) -> (Pid, Pid) {
        // Only root can read their environment.
        let all: Vec<_> = processes().collect();
        let is_ours = |reaper: &Pid| {
            all.iter().any(|process| process.pid == *reaper && process.parent == Some(self.pid()))
        };
        let mut guards = all.iter().filter(|process| process.is("run-guard"));
        let found = guards.find_map(|guard| Some((guard.pid, guard.parent.filter(is_ours)?)));
        found.expect("a guard")
    }
}

impl Drop for Candidate {
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
    parent: Option<Pid>,
    command: String,
    environment: Vec<String>,
}

impl Process {
    /// Whether it is such a process of `incumbent`.
    fn is(&self, subcommand: &str) -> bool {
        self.command.split(' ').nth(1) == Some(subcommand)
    }
}

fn descendants(mark: &str) -> Vec<String> {
    marked(mark).map(|process| process.command).collect()
}

/// Processes with this mark, without those of `incumbent` itself.
fn marked(mark: &str) -> impl Iterator<Item = Process> {
    processes().filter(move |process| {
        let environment = &process.environment;
        let is_incumbent = process.command.starts_with("incumbent run-");
        let below = environment.iter().any(|entry| entry.starts_with("INCUMBENT_ELECTION="));
        below && !is_incumbent && environment.iter().any(|entry| entry == mark)
    })
}

/// All processes. Zombies appear with an empty environment.
fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let words = |file: &str| {
            let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
            let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        let parent = parent.and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        let (environment, arguments) = (words("environ"), words("cmdline"));
        Some(Process { pid, parent, command: arguments.join(" "), environment })
    })
}

/// Reads the deadline file: the deadline in seconds since boot, and the token.
pub fn read_deadline(file: &str) -> (f64, String) {
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
