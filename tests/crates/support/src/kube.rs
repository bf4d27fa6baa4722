//! A real Kubernetes API server, with etcd and the garbage collector.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::checkout;
use crate::directory;
use crate::poll::poll;
use crate::ports::Port;
use crate::process::Process;

/// The path of the Go program `name` of `tests/programs`, which is built unless the cache has it.
///
/// # Panics
///
/// Where it cannot be built, saying what to install.
pub fn go_program(name: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let script = checkout().join("tests/programs/build.sh");
    let output = Command::new(&script).arg(name).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "no {name}: {said}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// An API server with RBAC on a port of the loopback interface that stays its own through restarts,
/// as its data and its keys do. Dropping it kills it and removes them.
#[derive(Debug)]
pub struct KubeServer {
    program: PathBuf,
    users: Vec<String>,
    state: Mutex<Option<Process>>,
    port: Port,
    directory: TempDir,
}

impl KubeServer {
    /// Starts a server. `users` have no permission until a role is bound to them, and each has a
    /// kubeconfig.
    pub async fn start(users: &[&str]) -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let find = || PROGRAM.get_or_init(|| go_program("kube-apiserver")).clone();
        let program = tokio::task::spawn_blocking(find).await.expect("the API server's program");
        let server = Self {
            program,
            users: users.iter().map(|&user| user.to_owned()).collect(),
            state: Mutex::new(None),
            port: Port::pick(),
            directory: directory::of_server("kubeserver"),
        };
        server.restart().await;
        server
    }

    /// Starts it again after [`kill`](Self::kill), with the same data, and waits until it is ready.
    pub async fn restart(&self) {
        drop(self.state().take());
        let before = self.log().len();
        let process = Process::spawn(&self.program, &self.log_file(), |command| {
            command.arg("-dir").arg(self.directory.path());
            command.arg("-port").arg(self.port.number().to_string());
            for user in &self.users {
                command.arg("-token").arg(format!("{user}:{user}-token"));
            }
        });
        let process =
            process.unwrap_or_else(|e| panic!("cannot run {}: {e}", self.program.display()));
        *self.state() = Some(process);
        let ready = poll(async || {
            let log = self.log();
            let this_run = log.get(before..).unwrap_or_default();
            if this_run.lines().any(|line| line.starts_with("ready https://")) {
                return Some(true);
            }
            self.state().as_mut().and_then(Process::ended).map(|_| false)
        });
        assert!(ready.await == Some(true), "the API server is not ready:\n{}", self.log_tail());
    }

    /// Kills it and its etcd.
    pub fn kill(&self) {
        drop(self.state().take());
    }

    /// Stops its clock and that of its etcd.
    pub fn pause(&self) {
        if let Some(process) = &*self.state() {
            process.pause();
        }
    }

    /// Lets it continue.
    pub fn resume(&self) {
        if let Some(process) = &*self.state() {
            process.resume();
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// The kubeconfig of a user.
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.kubeconfig"))
    }

    /// A new file of its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn log_file(&self) -> PathBuf {
        Path::new(self.directory.path()).join("log")
    }

    fn state(&self) -> MutexGuard<'_, Option<Process>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
