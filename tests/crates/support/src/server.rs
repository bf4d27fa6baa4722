//! One nats-server.

mod builder;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::binaries::Version;
use crate::http;
use crate::poll::{poll, repeated};
use crate::ports::Port;
use crate::process::Process;

use builder::NATS_PASSWORD;
pub use builder::{NATS_PERMISSIONS, ServerBuilder, nats_options};

/// How long a client may take to connect on a busy machine, and a server to answer a request: the
/// client's own limits are 5 s and 10 s.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The options of a client that waits for a busy machine.
pub fn client_options() -> ConnectOptions {
    let options = ConnectOptions::new().connection_timeout(CONNECT_TIMEOUT);
    options.request_timeout(Some(CONNECT_TIMEOUT))
}

/// Connects, and again where a server has given up: it waits 2 s for the credentials of a client.
///
/// # Panics
///
/// If it cannot connect, or is refused.
pub async fn connected<T, F>(attempt: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, ConnectError>>,
{
    let is_late = |error: &ConnectError| {
        matches!(error.kind(), ConnectErrorKind::TimedOut | ConnectErrorKind::Io)
    };
    repeated(attempt, is_late).await.expect("a connection")
}

/// JetStream, also for who publishes, with time for a busy machine: its own limit is 5 s. A cluster
/// may lose a request: there it is better repeated.
pub fn jetstream_on(client: Client) -> Context {
    let mut context = jetstream::new(client);
    context.set_timeout(CONNECT_TIMEOUT);
    context
}

/// A nats-server on ports of the loopback interface that stay its own through restarts, with its
/// files in a temporary directory. Dropping it kills it and removes them.
#[derive(Debug)]
pub struct Server {
    version: Version,
    program: PathBuf,
    name: String,
    /// The part of the configuration that stays.
    head: String,
    /// The part that [`Server::reload`] changes.
    config: Mutex<String>,
    /// Before the ports and the directory: fields are dropped in this order.
    state: Mutex<State>,
    client: Port,
    monitor: Port,
    directory: TempDir,
}

#[derive(Debug, Default)]
struct State {
    process: Option<Process>,
    paused: bool,
    /// How much of the log is of earlier runs.
    logged_before: usize,
}

impl Server {
    /// A builder of the default version with JetStream.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// Starts a server of the default version with JetStream.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.client.number()).into()
    }

    /// Where clients connect, as a URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Where clients connect as a user, as a URL.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("nats://{user}:{password}@{}", self.address())
    }

    /// A new connection to it, for a server without users.
    pub async fn connect(&self) -> Client {
        connected(|| client_options().connect(self.url())).await
    }

    /// Its name, which no other server has.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// All that it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Whether its process runs and is not paused.
    pub fn is_running(&self) -> bool {
        let mut state = self.state();
        !state.paused && state.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Ends it as an operator would (SIGTERM), and waits until its process has ended.
    pub async fn stop(&self) {
        let Some(mut process) = self.take() else { return };
        process.resume(); // a paused process would never see the request
        process.signal(Signal::TERM);
        let ended = poll(async || process.ended()).await;
        assert!(ended.is_some(), "nats-server did not stop:\n{}", self.log());
    }

    /// Ends it as a crash would (SIGKILL). Its files stay as they are.
    pub fn kill(&self) {
        drop(self.take());
    }

    /// Starts it again, after [`stop`](Self::stop) or [`kill`](Self::kill), with the same ports and
    /// files, and waits until it is healthy. Does nothing while it runs.
    pub async fn start_again(&self) {
        // Another process may use the port for a moment: nothing but its end frees it.
        for _ in 0..50 {
            if self.is_running() || self.launch().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("another process keeps the port of a nats-server:\n{}", self.log());
    }

    /// Stops it, as an operator would, and starts it again.
    pub async fn restart(&self) {
        self.stop().await;
        self.start_again().await;
    }

    /// Pauses its process (SIGSTOP), with its connections open.
    pub fn pause(&self) {
        let mut state = self.state();
        if let Some(process) = &state.process {
            process.pause();
            state.paused = true;
        }
    }

    /// Lets its process continue.
    pub fn resume(&self) {
        let mut state = self.state();
        if let Some(process) = &state.process {
            process.resume();
        }
        state.paused = false;
    }

    /// Replaces the lines given to [`ServerBuilder::config`], makes the running server take them,
    /// and waits until it has.
    ///
    /// # Panics
    ///
    /// Where the server does not accept them.
    pub async fn reload(&self, lines: impl Into<String>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = lines.into();
        self.write_config();
        let before = self.varz().await["config_load_time"].clone();
        if let Some(process) = &self.state().process {
            process.signal(Signal::HUP);
        }
        let taken = poll(async || {
            let now = http::monitor(self.monitoring(), "/varz").await?["config_load_time"].clone();
            (now != before).then_some(())
        });
        assert!(taken.await.is_some(), "nats-server did not reload:\n{}", self.log());
    }

    /// Its statistics, such as its counts of messages and connections.
    pub async fn varz(&self) -> Value {
        self.monitor("/varz").await
    }

    /// Its statistics of JetStream.
    pub async fn jsz(&self) -> Value {
        self.monitor("/jsz?streams=true&config=true&consumers=true").await
    }

    /// Its statistics of connections.
    pub async fn connz(&self) -> Value {
        self.monitor("/connz?subs=true").await
    }

    /// Any other page of its monitoring port.
    ///
    /// # Panics
    ///
    /// Where it does not answer.
    pub async fn monitor(&self, path: &str) -> Value {
        match poll(async || self.ask(path).await).await {
            Some(answer) => answer,
            None => panic!("no answer to {path} from nats-server:\n{}", self.log()),
        }
    }

    /// A page of its monitoring port; `None` where it does not answer.
    pub(crate) async fn ask(&self, path: &str) -> Option<Value> {
        http::monitor(self.monitoring(), path).await
    }

    /// Whether it calls itself healthy.
    pub(crate) async fn is_healthy(&self) -> bool {
        // The name shows that it is this server that answers, and not one of another process on the
        // same port.
        match self.ask("/varz").await {
            Some(varz) => {
                varz["server_name"] == self.name.as_str() && self.ask("/healthz").await.is_some()
            }
            None => false,
        }
    }

    /// Starts its process.
    pub(crate) fn spawn(&self) {
        let logged_before = self.log().len();
        let config = self.config_file().display().to_string();
        let process = Process::spawn(&self.program, &self.log_file(), |command| {
            command.args(["-c", &config]);
            for role in ["ADMIN", "CANDIDATE", "OBSERVER"] {
                command.env(format!("{role}_PASSWORD"), NATS_PASSWORD);
            }
        });
        let process = process.unwrap_or_else(|error| {
            panic!("cannot run {}: {error}", self.program.display());
        });
        *self.state() = State { process: Some(process), paused: false, logged_before };
    }

    /// Whether its process has ended because another one has its port.
    ///
    /// # Panics
    ///
    /// Where it has ended for another reason.
    pub(crate) fn lost_its_port(&self) -> bool {
        let (status, logged_before) = {
            let mut state = self.state();
            let Some(status) = state.process.as_mut().and_then(Process::ended) else {
                return false;
            };
            (status, state.logged_before)
        };
        let log = self.log();
        let this_run = log.get(logged_before..).unwrap_or_default();
        assert!(
            this_run.contains("address already in use"),
            "nats-server {} ended at its start ({status}):\n{this_run}",
            self.version
        );
        true
    }

    /// Starts it and waits until it is healthy; false if another process has one of its ports.
    pub(crate) async fn launch(&self) -> bool {
        self.spawn();
        let started = poll(async || {
            if self.lost_its_port() {
                return Some(false);
            }
            self.is_healthy().await.then_some(true)
        });
        match started.await {
            Some(true) => true,
            Some(false) => {
                self.kill();
                false
            }
            None => panic!("nats-server {} is not healthy:\n{}", self.version, self.log()),
        }
    }

    fn take(&self) -> Option<Process> {
        let mut state = self.state();
        state.paused = false;
        state.process.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn monitoring(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.monitor.number()).into()
    }

    fn config_file(&self) -> PathBuf {
        self.directory.path().join("nats.conf")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn write_config(&self) {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(self.config_file(), format!("{}{}\n", self.head, config))
            .expect("a file in our own temporary directory");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("the last lines of nats-server {} at {}:\n{tail}", self.version, self.url());
        }
    }
}
