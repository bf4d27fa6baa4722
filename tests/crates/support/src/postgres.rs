//! A real PostgreSQL server, and replicas of it.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::authority::Authority;
use crate::directory;
use crate::poll::poll;
use crate::ports::Port;
use crate::process::Process;

/// The user that runs it if the tests run as root, which it refuses: `nobody`.
const NOBODY: u32 = 65_534;
/// Who may do everything in it, without a password.
const ADMIN: &str = "postgres";

/// A server on a port of the loopback interface that stays its own through restarts, as its data
/// do. Dropping it kills it and removes them.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    settings: Vec<String>,
    state: Mutex<Option<Process>>,
    port: Port,
    directory: TempDir,
}

impl PostgresServer {
    /// Starts a server with `settings` like `max_connections=20`. It does not sync its disk, which
    /// a crash of its own does not need, unless they set `fsync=on`.
    pub async fn start(settings: &[&str]) -> Self {
        let server = Self::in_directory(settings);
        server.begin().await;
        server
    }

    /// A server that requires TLS, and certificates of `authority` from users.
    pub async fn start_with_tls(authority: &Authority) -> Self {
        let mut server = Self::in_directory(&["ssl=on"]);
        let [certificate, key] = authority.issue("127.0.0.1");
        for (setting, name, text) in [
            ("ssl_ca_file", "ca.pem", authority.certificate()),
            ("ssl_cert_file", "server.pem", &certificate),
            ("ssl_key_file", "server.key", &key),
            ("hba_file", "hba.conf", "hostssl all all 127.0.0.1/32 cert\n"),
        ] {
            let path = server.directory.path().join(name);
            server.write(&path, text);
            server.settings.push(format!("{setting}={}", path.display()));
        }
        server.begin().await;
        server
    }

    /// A file that only the server reads.
    fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("a file");
        fs::set_permissions(path, Permissions::from_mode(0o600)).expect("rights");
        if geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("a file of nobody's");
        }
    }

    async fn begin(&self) {
        self.run("initdb", |command| {
            command.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
            command.args(["--username", ADMIN, "--pgdata"]).arg(self.data());
        });
        self.restart().await;
    }

    /// A replica of this server, with what has been written so far, that follows it.
    pub async fn replica(&self, settings: &[&str]) -> Self {
        let server = Self::in_directory(settings);
        let port = self.port.number().to_string();
        server.run("pg_basebackup", |command| {
            command.args(["--host=127.0.0.1", "--username", ADMIN, "--port", &port]);
            command.args(["--write-recovery-conf", "--no-sync", "--checkpoint=fast", "--pgdata"]);
            command.arg(server.data());
        });
        server.restart().await;
        server
    }

    fn in_directory(settings: &[&str]) -> Self {
        let directory = directory::of_server("postgres");
        if geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("a directory of nobody's");
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (programs, port) = (programs(), Port::pick());
        Self { programs, settings, state: Mutex::new(None), port, directory }
    }

    /// Makes a base backup of the running server: [`restore`](Self::restore) puts it back.
    pub fn back_up(&self) {
        let port = self.port.number().to_string();
        self.run("pg_basebackup", |command| {
            command.args(["--host=127.0.0.1", "--username", ADMIN, "--port", &port]);
            command.args(["--no-sync", "--checkpoint=fast", "--pgdata"]);
            command.arg(self.directory.path().join("backup"));
        });
    }

    /// Kills it, and starts it on its base backup, with the same identifier and timeline.
    pub async fn restore(&self) {
        self.kill();
        fs::remove_dir_all(self.data()).expect("no data");
        fs::rename(self.directory.path().join("backup"), self.data()).expect("the backup");
        self.restart().await;
    }

    /// Starts it again after [`kill`](Self::kill), with the same data, and waits until it answers.
    pub async fn restart(&self) {
        drop(self.state().take());
        let started = poll(async || {
            let ended = self.state().as_mut().is_none_or(|process| process.ended().is_some());
            if ended {
                // Right after a kill what is left of the old one may be in the way.
                *self.state() = Some(self.spawn());
            }
            let mut probe = Command::new(self.programs.join("pg_isready"));
            probe.args(["--quiet", "--host=127.0.0.1", "--port", &self.port.number().to_string()]);
            probe.status().is_ok_and(|status| status.success()).then_some(())
        });
        assert!(started.await.is_some(), "PostgreSQL is not ready:\n{}", self.log_tail());
    }

    fn spawn(&self) -> Process {
        let port = self.port.number().to_string();
        let command = self.as_other(&self.programs.join("postgres"));
        let (program, arguments) = command.split_first().expect("a program");
        let started = Process::spawn(program, &self.log_file(), |command| {
            command.args(arguments).arg("-D").arg(self.data()).args(["-p", &port]);
            command.arg("-k").arg(self.directory.path());
            let usual = ["listen_addresses=127.0.0.1", "fsync=off"].map(str::to_owned);
            for setting in usual.iter().chain(&self.settings) {
                command.args(["-c", setting]);
            }
        });
        started.unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()))
    }

    /// Runs one of its programs to the end.
    fn run(&self, program: &str, describe: impl FnOnce(&mut Command)) {
        let command = self.as_other(&self.programs.join(program));
        let (first, rest) = command.split_first().expect("a program");
        let mut command = Command::new(first);
        command.args(rest).current_dir(self.directory.path());
        describe(&mut command);
        let output = command.output().unwrap_or_else(|e| panic!("cannot run {program}: {e}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {said}");
    }

    /// A program as who may run it, which ends with us.
    fn as_other(&self, program: &Path) -> Vec<PathBuf> {
        let mut command: Vec<PathBuf> = Vec::new();
        if geteuid().is_root() {
            let to = ["--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL", "--"];
            command.push("setpriv".into());
            command.extend(to.map(PathBuf::from));
        }
        command.push(program.to_path_buf());
        command
    }

    /// Kills it with all that serves connections, in no order, as a crash does.
    pub fn kill(&self) {
        let mut state = self.state();
        if let Some(process) = &*state {
            let children = children(process.id());
            process.signal(Signal::KILL);
            for child in children {
                let _ = kill_process(child, Signal::KILL);
            }
        }
        drop(state.take());
    }

    /// Stops its clock, and that of all that serves connections.
    pub fn pause(&self) {
        if let Some(process) = &*self.state() {
            process.pause();
            for child in children(process.id()) {
                let _ = kill_process(child, Signal::STOP);
            }
        }
    }

    /// Lets it continue.
    pub fn resume(&self) {
        if let Some(process) = &*self.state() {
            for child in children(process.id()) {
                let _ = kill_process(child, Signal::CONT);
            }
            process.resume();
        }
    }

    /// Makes a replica a server of its own.
    pub fn promote(&self) {
        self.run("pg_ctl", |command| {
            command.args(["promote", "--wait", "--pgdata"]).arg(self.data());
        });
    }

    /// Has its administrator run statements in a database, each a transaction of its own.
    ///
    /// # Panics
    ///
    /// Where one of them fails.
    pub fn sql(&self, database: &str, statements: &[&str]) {
        self.run("psql", |command| {
            command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", &self.url(database)]);
            for statement in statements {
                command.args(["--command", statement]);
            }
        });
    }

    /// Where a program such as `psql` is.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL of a database for who may do everything.
    pub fn url(&self, database: &str) -> String {
        self.url_as(ADMIN, database)
    }

    /// The URL of a database for `user`.
    pub fn url_as(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port.number())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn state(&self) -> MutexGuard<'_, Option<Process>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Those that a process has started.
fn children(parent: u32) -> Vec<Pid> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(file).unwrap_or_default();
    let numbers = children.split_whitespace().filter_map(|number| number.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// Where the server's programs are: in the directory that `POSTGRES_BIN` names, else in that of
/// Debian's newest version, else on `PATH`.
///
/// # Panics
///
/// Where there are none, saying what to install.
fn programs() -> PathBuf {
    if let Some(named) = env::var_os("POSTGRES_BIN").filter(|path| !path.is_empty()) {
        return named.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let programs = entry.path().join("bin");
            programs.join("postgres").is_file().then_some((version, programs))
        })
        .max();
    if let Some((_, programs)) = newest {
        return programs;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find(|directory| directory.join("postgres").is_file())
        .expect("no PostgreSQL server: run `make tools`, or set POSTGRES_BIN to the directory of its programs")
}
