//! The options of a nats-server, and its configuration file.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use async_nats::ConnectOptions;

use super::{Server, State, client_options};
use crate::binaries::{Version, find};
use crate::ports::Port;

/// The documented permissions, per role. Their passwords are variables.
pub const NATS_PERMISSIONS: &str = include_str!("../../../../../deploy/nats-permissions.conf");

/// The password of each role of [`NATS_PERMISSIONS`].
pub(super) const NATS_PASSWORD: &str = "pw";

/// How a client of this role connects, with its documented inbox. It reconnects soon.
pub fn nats_options(role: &str) -> ConnectOptions {
    client_options()
        .user_and_password(role.to_owned(), NATS_PASSWORD.to_owned())
        .custom_inbox_prefix(format!("_INBOX_incumbent_{role}"))
        .reconnect_delay_callback(|_| Duration::from_millis(50))
}

/// What a server is to be like.
#[derive(Debug, Clone)]
#[must_use = "a builder starts nothing until `start`"]
pub struct ServerBuilder {
    version: Version,
    config: String,
    jetstream: bool,
    domain: Option<String>,
}

impl ServerBuilder {
    pub(super) fn new() -> Self {
        Self { version: Version::default(), config: String::new(), jetstream: true, domain: None }
    }

    /// Runs this version instead of the default one.
    pub fn version(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Adds lines to the configuration file: accounts, users, permissions. The listeners and
    /// `jetstream` are written already.
    pub fn config(mut self, lines: impl Into<String>) -> Self {
        self.config = lines.into();
        self
    }

    /// Includes [`NATS_PERMISSIONS`] as they are, with `NATS_PASSWORD` in the environment, which
    /// every server has here.
    pub fn with_permissions(mut self) -> Self {
        self.config += "\ninclude 'nats-permissions.conf'\n";
        self
    }

    /// Runs without JetStream.
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = false;
        self
    }

    /// Puts JetStream into a domain.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Starts it and waits until it is healthy.
    ///
    /// # Panics
    ///
    /// Where no program of that version is found, or it does not become healthy.
    pub async fn start(self) -> Server {
        for _ in 0..5 {
            let server = self.clone().prepare("");
            if server.launch().await {
                return server;
            }
        }
        panic!("five times another process took the port picked for nats-server");
    }

    /// A server that is not started, with `links` in its configuration: how it is connected to
    /// others.
    pub(crate) fn prepare(self, links: &str) -> Server {
        let directory = crate::directory::of_server("nats-server");
        let client = Port::pick();
        let monitor = Port::pick();
        let name = format!("n{:016x}", fastrand::u64(..));
        let mut head = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\n",
            client.number(),
            monitor.number()
        );
        if self.jetstream {
            let store = directory.path().join("store");
            head += &format!("jetstream {{\n  store_dir: {:?}\n", store.display().to_string());
            if let Some(domain) = &self.domain {
                head += &format!("  domain: {domain:?}\n");
            }
            head += "}\n";
        }
        head += links;
        let server = Server {
            version: self.version,
            program: find(self.version),
            name,
            head,
            config: Mutex::new(self.config),
            state: Mutex::new(State::default()),
            client,
            monitor,
            directory,
        };
        let permissions = server.directory.path().join("nats-permissions.conf");
        fs::write(permissions, NATS_PERMISSIONS).expect("a file in our own temporary directory");
        server.write_config();
        server
    }
}
