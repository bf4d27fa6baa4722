//! Real members of etcd, alone or as a cluster.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::authority::Authority;
use crate::checkout;
use crate::directory;
use crate::http::{fetch, monitor};
use crate::poll::{LIMIT, poll};
use crate::ports::Port;
use crate::process::Process;

/// The folder of `etcd`, `etcdctl` and, from version 3.5 on, `etcdutl`, which are installed where
/// missing. The variable `ETCD` selects another version: see the script.
///
/// # Panics
///
/// Where they cannot be installed, saying what to do.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let script = checkout().join("scripts/install-etcd.sh");
        let output = Command::new(&script).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

/// A cluster of one member or more on ports of the loopback interface that stay their own through
/// restarts, as their data do. Dropping it kills them and removes the data.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    directory: TempDir,
    /// The certificates, if it requires TLS: what `etcdctl` is called with.
    tls: Option<[PathBuf; 3]>,
    settings: Vec<String>,
}

#[derive(Debug)]
struct Member {
    client: Port,
    peer: Port,
    /// For plain requests, as of its health.
    metrics: Port,
    process: Mutex<Option<Process>>,
}

impl EtcdCluster {
    /// Starts members with more `settings`, as in `--quota-backend-bytes=1000000`. They do not sync
    /// their disks, which a crash of their own does not need.
    pub async fn start(members: usize, settings: &[&str]) -> Self {
        Self::start_with(members, settings, None).await
    }

    /// Starts one member that requires TLS, and certificates of `authority` from clients.
    pub async fn start_with_tls(authority: &Authority) -> Self {
        Self::start_with(1, &[], Some(authority)).await
    }

    async fn start_with(members: usize, settings: &[&str], authority: Option<&Authority>) -> Self {
        tokio::task::spawn_blocking(programs).await.expect("the programs");
        let directory = directory::of_server("etcd");
        let mut settings: Vec<_> = settings.iter().map(|&one| one.to_owned()).collect();
        let tls = authority.map(|authority| {
            let [certificate, key] = authority.issue("127.0.0.1");
            let files = [
                ("ca.pem", authority.certificate()),
                ("server.pem", &certificate),
                ("server.key", &key),
            ];
            let files = files.map(|(name, text)| {
                let path = directory.path().join(name);
                fs::write(&path, text).expect("a file");
                path
            });
            let [ca, certificate, key] = &files;
            settings.push("--client-cert-auth".to_owned());
            for (flag, file) in
                [("trusted-ca-file", ca), ("cert-file", certificate), ("key-file", key)]
            {
                settings.push(format!("--{flag}={}", file.display()));
            }
            files
        });
        let member = || Member {
            client: Port::pick(),
            peer: Port::pick(),
            metrics: Port::pick(),
            process: Mutex::default(),
        };
        let members = (0..members).map(|_| member()).collect();
        let cluster = Self { members, directory, tls, settings };
        for index in 0..cluster.members.len() {
            cluster.spawn(index);
        }
        for index in 0..cluster.members.len() {
            cluster.wait(index).await;
        }
        cluster
    }

    /// The number of members.
    #[allow(clippy::len_without_is_empty, reason = "it has a member at least")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The port of a member for clients.
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client.number()
    }

    /// The addresses of all members for clients.
    pub fn endpoints(&self) -> Vec<String> {
        let address = |member: &Member| format!("127.0.0.1:{}", member.client.number());
        self.members.iter().map(address).collect()
    }

    /// Starts a member again after [`kill`](Self::kill), with the same data, and waits until it
    /// serves.
    pub async fn restart(&self, member: usize) {
        self.spawn(member);
        self.wait(member).await;
    }

    /// Starts a member again without waiting for a quorum.
    pub fn spawn(&self, member: usize) {
        drop(self.state(member).take());
        let log = self.directory.path().join(format!("{member}.log"));
        let process = Process::spawn(&programs().join("etcd"), &log, |command| {
            let one = &self.members[member];
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            let client = format!("{scheme}://127.0.0.1:{}", one.client.number());
            let peer = format!("http://127.0.0.1:{}", one.peer.number());
            let metrics = format!("http://127.0.0.1:{}", one.metrics.number());
            command.arg("--data-dir").arg(self.data(member));
            for (flag, value) in [
                ("--name", format!("m{member}")),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--listen-metrics-urls", metrics),
                ("--initial-cluster", self.initial_cluster()),
                ("--log-level", "warn".to_owned()),
                ("--heartbeat-interval", "100".to_owned()),
                ("--election-timeout", "1000".to_owned()),
            ] {
                command.args([flag, &value]);
            }
            // The default from version 3.5 on: docs/etcd.md says why.
            command.args(["--unsafe-no-fsync", "--pre-vote"]).args(&self.settings);
        });
        *self.state(member) = Some(process.expect("etcd starts"));
    }

    fn initial_cluster(&self) -> String {
        let one = |(index, member): (usize, &Member)| {
            format!("m{index}=http://127.0.0.1:{}", member.peer.number())
        };
        self.members.iter().enumerate().map(one).collect::<Vec<_>>().join(",")
    }

    async fn wait(&self, member: usize) {
        let metrics = SocketAddr::from(([127, 0, 0, 1], self.members[member].metrics.number()));
        let ready = poll(async || {
            let health = monitor(metrics, "/health").await;
            if health.is_some_and(|health| health["health"] == "true") {
                return Some(true);
            }
            self.state(member).as_mut().and_then(Process::ended).map(|_| false)
        });
        assert!(ready.await == Some(true), "member {member} is not ready:\n{}", self.log(member));
    }

    /// Kills a member.
    pub fn kill(&self, member: usize) {
        drop(self.state(member).take());
    }

    /// Stops a member's clock.
    pub fn pause(&self, member: usize) {
        self.state(member).as_ref().expect("it runs").pause();
    }

    /// Lets it continue.
    pub fn resume(&self, member: usize) {
        self.state(member).as_ref().expect("it runs").resume();
    }

    /// The sum of those metrics of the member `0` whose name, or name and labels, begin so.
    ///
    /// # Panics
    ///
    /// If the member does not answer.
    pub async fn metric(&self, begin: &str) -> f64 {
        let metrics = SocketAddr::from(([127, 0, 0, 1], self.members[0].metrics.number()));
        let page = fetch(metrics, "/metrics").await.expect("metrics");
        let lines = page.lines().filter(|line| line.starts_with(begin));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Runs `etcdctl` on the member `0`, and returns what it prints.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub async fn ctl<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.ctl_on(0, args).await
    }

    /// Runs `etcdctl` on one member.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub async fn ctl_on<S: AsRef<OsStr>>(&self, member: usize, args: &[S]) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut command = self.ctl_at(scheme, member);
        if let Some([ca, certificate, key]) = &self.tls {
            command.arg("--cacert").arg(ca).arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        run(command.args(args)).await
    }

    /// A command of `etcdctl` for the member `0`, to be started.
    pub fn ctl_command(&self) -> tokio::process::Command {
        let mut command = self.ctl_at("http", 0);
        command.kill_on_drop(true);
        command
    }

    /// Without more, it waits 2 s for a connection, and 5 s for an answer.
    fn ctl_at(&self, scheme: &str, member: usize) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(programs().join("etcdctl"));
        command.arg(format!("--endpoints={scheme}://127.0.0.1:{}", self.port(member)));
        for limit in ["dial", "command"] {
            command.arg(format!("--{limit}-timeout={}s", LIMIT.as_secs()));
        }
        command
    }

    /// Saves a snapshot of the member `0`.
    pub async fn snapshot(&self) -> PathBuf {
        let file = self.directory.path().join("snapshot");
        let _ = fs::remove_file(&file);
        self.ctl(&[OsStr::new("snapshot"), "save".as_ref(), file.as_os_str()]).await;
        file
    }

    /// Replaces the data of the killed member `0`, the only one, by those of a snapshot. `more`:
    /// options of `etcdutl snapshot restore`.
    pub async fn restore(&self, snapshot: &Path, more: &[&str]) {
        let data = self.data(0);
        let _ = fs::remove_dir_all(&data);
        let mut command = restore_command();
        command.args(["snapshot", "restore"]).arg(snapshot).arg("--data-dir").arg(&data);
        command.args(["--name", "m0", "--initial-cluster", &self.initial_cluster()]);
        let peer = format!("http://127.0.0.1:{}", self.members[0].peer.number());
        command.args(["--initial-advertise-peer-urls", &peer]).args(more);
        run(&mut command).await;
    }

    /// Whether [`restore`](Self::restore) has the option `--bump-revision`: not in version 3.4.
    pub async fn can_bump_revision(&self) -> bool {
        let mut command = restore_command();
        run(command.args(["snapshot", "restore", "--help"])).await.contains("bump-revision")
    }

    /// A file of its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self, member: usize) -> PathBuf {
        self.directory.path().join(format!("{member}.data"))
    }

    fn log(&self, member: usize) -> String {
        fs::read_to_string(self.directory.path().join(format!("{member}.log"))).unwrap_or_default()
    }

    fn state(&self, member: usize) -> MutexGuard<'_, Option<Process>> {
        self.members[member].process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What restores snapshots: `etcdctl` in version 3.4.
fn restore_command() -> tokio::process::Command {
    let mut programs = ["etcdutl", "etcdctl"].map(|name| programs().join(name)).into_iter();
    let program = programs.find(|program| program.exists());
    tokio::process::Command::new(program.expect("a program"))
}

async fn run(command: &mut tokio::process::Command) -> String {
    let output = tokio::time::timeout(LIMIT, command.kill_on_drop(true).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} does not end"));
    let output = output.expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
