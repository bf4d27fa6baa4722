//! The stores: fake-gcs-server for Google Cloud Storage, versitygw for S3.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use incumbent_test_support::{Port, Process, checkout, eventually};
use tempfile::TempDir;

use crate::raw::{Message, ask};

/// Of the administrator, and of everybody.
pub const ACCESS_KEY: &str = "administrator";
pub const SECRET_KEY: &str = "the-secret-of-the-tests";
pub const BUCKET: &str = "bucket";

const HEALTH: &str = "/health";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    FakeGcs,
    Versitygw,
}

/// Where they are. Installs what is not there.
fn programs() -> &'static [PathBuf; 2] {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let script = checkout().join("scripts/object-stores.sh");
        let output = Command::new(&script).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = said.lines().map(PathBuf::from);
        [lines.next().expect("fake-gcs-server"), lines.next().expect("versitygw")]
    })
}

/// A store with one bucket. Dropping it kills it.
pub struct Server {
    program: Program,
    port: Port,
    process: Mutex<Option<Process>>,
    directory: TempDir,
}

impl Server {
    pub async fn start(program: Program) -> Self {
        tokio::task::spawn_blocking(programs).await.expect("the programs");
        // versitygw keeps ETags in extended attributes, which a /tmp in memory need not have.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        std::fs::create_dir_all(directory.path().join("data").join(BUCKET)).unwrap();
        let server = Self { program, port: Port::pick(), process: Mutex::new(None), directory };
        server.restart().await;
        server
    }

    /// Starts it again after [`kill`](Self::kill), with the same objects.
    pub async fn restart(&self) {
        let (port, data) = (self.port.number(), self.directory.path().join("data"));
        let log = self.directory.path().join("log");
        let [gcs, s3] = programs();
        let process = match self.program {
            Program::FakeGcs => Process::spawn(gcs, &log, |command| {
                command.args(["-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"]);
                command.args(["-backend", "memory", "-data"]).arg(&data);
                command.args(["-port", &port.to_string()]);
                command.args(["-public-host", &format!("127.0.0.1:{port}")]);
            }),
            Program::Versitygw => Process::spawn(s3, &log, |command| {
                command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
                command.args(["--quiet", "--health", HEALTH]);
                command.args(["--port", &format!("127.0.0.1:{port}"), "posix"]);
                command.arg(&data);
            }),
        };
        *self.process.lock().unwrap() = Some(process.expect("the store starts"));
        let ready = match self.program {
            Program::FakeGcs => "/_internal/healthcheck",
            Program::Versitygw => HEALTH,
        };
        let ready = Message::new(format!("GET {ready} HTTP/1.1"));
        let ready = ready.with("host", format!("127.0.0.1:{port}"));
        eventually("the store is ready", async || {
            ask(port, &ready).await.filter(|answer| answer.second() == "200")
        })
        .await;
    }

    pub fn kill(&self) {
        drop(self.process.lock().unwrap().take());
    }

    pub fn pause(&self) {
        self.process.lock().unwrap().as_ref().expect("it runs").pause();
    }

    pub fn resume(&self) {
        self.process.lock().unwrap().as_ref().expect("it runs").resume();
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
