//! One nats-server of the cluster, with a disk of its own where that can be had.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use incumbent_test_support::{Process, Version, checkout, find, monitor};
use rustix::process::Signal;
use serde_json::Value;

use crate::faults::net::{Listeners, Net, Node};

/// The nats-server whose wall clock can be stepped: `tests/programs/nats-with-clock/build.sh`
/// builds it.
const STEPPED: &str = ".tools/clocknats-2.15.1/nats-server";
/// Why there may be none.
pub const NO_CLOCK: &str =
    "no nats-server whose clock can be stepped (`make chaos` builds it where there is `go`)";
/// How large the disk of a server is.
const DISK: &str = "size=64m";

/// A nats-server. Dropping it kills it and takes its disk away.
#[derive(Debug)]
pub struct Server {
    index: usize,
    program: PathBuf,
    directory: PathBuf,
    listeners: Listeners,
    disk: bool,
    /// By how much its clock is off; none where that cannot be changed.
    clock: Option<PathBuf>,
    /// Whether it was restarted under a clock that is off.
    restarted: bool,
    process: Option<Process>,
}

impl Server {
    /// Describes a server, and gives it a `disk` of its own, where that is allowed. The first one
    /// has a clock that can be stepped, where its program is built.
    pub fn new(
        index: usize,
        directory: PathBuf,
        net: &Net,
        servers: usize,
        disk: bool,
    ) -> io::Result<Self> {
        let stepped = checkout().join(STEPPED);
        let clock = index == 0 && stepped.is_file();
        let program = if clock { stepped } else { find(Version::default()) };
        let store = directory.join("store");
        fs::create_dir_all(&store)?;
        let disk = disk
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", DISK, "incumbent-attack"])
                .arg(&store)
                .output()
                .is_ok_and(|output| output.status.success());
        let listeners = net.listeners(index);
        let routes: Vec<_> = (0..servers)
            .map(|server| format!("\"nats://{}\"", net.listeners(server).cluster))
            .collect();
        let cluster = if servers == 1 {
            String::new() // a cluster of one would wait for others
        } else {
            format!(
                "cluster {{\n  name: chaos\n  listen: \"{}\"\n  no_advertise: true\n  routes: [{}]\n}}\n",
                listeners.cluster,
                routes.join(", ")
            )
        };
        fs::write(
            directory.join("nats.conf"),
            format!(
                "server_name: s{index}\nlisten: \"{}\"\nhttp: \"{}\"\n\
                 jetstream {{\n  store_dir: {store:?}\n}}\n{cluster}",
                listeners.client, listeners.monitor,
            ),
        )?;
        let file = directory.join("clock");
        if clock {
            fs::write(&file, 0i64.to_le_bytes())?;
        }
        let clock = clock.then_some(file);
        Ok(Self {
            index,
            program,
            directory,
            listeners,
            disk,
            clock,
            restarted: false,
            process: None,
        })
    }

    pub fn start(&mut self, net: &Net) -> io::Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let config = self.directory.join("nats.conf").display().to_string();
        let environment: Vec<_> = self
            .clock
            .iter()
            .map(|clock| ("CLOCK_STEP_FILE", clock.display().to_string()))
            .collect();
        let process = net.spawn(
            Node::Server(self.index),
            &self.program,
            &["-c".to_owned(), config],
            &environment,
            &self.log(),
        )?;
        self.process = Some(process);
        Ok(())
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it as an operator would.
    pub async fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        process.signal(Signal::TERM);
        for _ in 0..1000 {
            if process.ended().is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn pause(&self) {
        if let Some(process) = &self.process {
            process.pause();
        }
    }

    pub fn resume(&self) {
        if let Some(process) = &self.process {
            process.resume();
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Whether it calls itself healthy: it answers, and its streams are up to date.
    pub async fn is_healthy(&self) -> bool {
        self.monitor("/healthz").await.is_some_and(|health| health["status"] == "ok")
    }

    /// A page of its monitoring port; none if it does not answer.
    pub async fn monitor(&self, path: &str) -> Option<Value> {
        monitor(self.listeners.monitor.into(), path).await
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.listeners.client)
    }

    pub fn has_disk(&self) -> bool {
        self.disk
    }

    pub fn fill_disk(&self) -> io::Result<()> {
        if !self.disk {
            return Err(io::Error::other("no disk of its own"));
        }
        let mut file = fs::File::create(self.filler())?;
        for piece in [1 << 20, 1 << 12, 1] {
            let piece = vec![0u8; piece];
            while file.write_all(&piece).is_ok() {}
        }
        Ok(())
    }

    /// Sets by how many seconds its wall clock is off, for a `restart` under it or not.
    pub fn step_clock(&mut self, seconds: i64, restart: bool) -> io::Result<()> {
        let Some(clock) = &self.clock else {
            return Err(io::Error::other("its clock cannot be stepped"));
        };
        self.restarted = restart;
        // In place: the server has it mapped into its memory.
        let mut file = fs::OpenOptions::new().write(true).open(clock)?;
        file.write_all(&seconds.to_ne_bytes())
    }

    /// Empties its disk and sets its clock right. Returns whether it is to be restarted.
    pub fn heal(&mut self) -> io::Result<bool> {
        let restarted = self.restarted;
        if self.clock.is_some() {
            self.step_clock(0, false)?;
        }
        // A server that met a full disk has put JetStream away until it is started anew.
        let was_full = fs::remove_file(self.filler()).is_ok();
        Ok(restarted || was_full)
    }

    pub fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("store").join("filling")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process = None;
        if self.disk {
            unmount(&self.directory.join("store"));
        }
    }
}

/// Takes a disk away, if it is there.
pub fn unmount(store: &Path) {
    let _ = Command::new("umount").arg("-l").arg(store).output();
}
