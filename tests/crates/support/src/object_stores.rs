//! Object stores: fake-gcs-server for Google Cloud Storage, versitygw for S3, Azurite for Azure
//! Blob Storage.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use tempfile::TempDir;

use crate::checkout;
use crate::http_message::{HttpMessage, http_request};
use crate::poll::eventually;
use crate::ports::Port;
use crate::process::Process;

/// The access key of all clients.
pub const ACCESS_KEY: &str = "administrator";
/// The secret that belongs to [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "the-secret-of-the-tests";
/// The key of the Azure account [`ACCESS_KEY`].
pub const ACCOUNT_KEY: &str = "dGhlLXNlY3JldC1vZi10aGUtdGVzdHM=";
/// The one bucket of each store.
pub const BUCKET: &str = "bucket";
/// An account SAS: every permission of the account of [`ACCESS_KEY`], signed with [`ACCOUNT_KEY`].
pub const ACCOUNT_SAS: &str = "sv=2020-12-06&ss=b&srt=sco&sp=rwdlac&se=2999-01-01T00%3A00%3A00Z&sig=Uj%2FdVXwexbJpxALIBw0K5K85i9s3a3RkOASapStoinc%3D";

const HEALTH: &str = "/health";

/// The program of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Google Cloud Storage.
    FakeGcs,
    /// S3.
    Versitygw,
    /// Azure Blob Storage.
    Azurite,
}

/// The paths of the programs, which are installed where missing.
fn programs() -> &'static [PathBuf; 3] {
    static PROGRAMS: OnceLock<[PathBuf; 3]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let script = checkout().join("scripts/install-object-stores.sh");
        let output = Command::new(&script).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = said.lines().map(PathBuf::from);
        ["fake-gcs-server", "versitygw", "azurite"].map(|program| lines.next().expect(program))
    })
}

/// A store with one bucket. Dropping it kills it.
#[derive(Debug)]
pub struct StoreServer {
    program: Program,
    port: Port,
    process: Mutex<Option<Process>>,
    directory: TempDir,
}

impl StoreServer {
    /// Starts a store, and waits until it serves.
    ///
    /// # Panics
    ///
    /// If its program cannot be installed or started.
    pub async fn start(program: Program) -> Self {
        tokio::task::spawn_blocking(programs).await.expect("the programs");
        // versitygw keeps ETags in extended attributes, which a /tmp in memory need not have.
        let program_of_tests = std::env::current_exe().expect("this program");
        let beside = program_of_tests.parent().expect("its directory");
        let directory = tempfile::tempdir_in(beside).expect("a directory");
        std::fs::create_dir_all(directory.path().join("data").join(BUCKET)).unwrap();
        let server = Self { program, port: Port::pick(), process: Mutex::new(None), directory };
        server.restart().await;
        server
    }

    /// Starts it again after [`kill`](Self::kill): versitygw with the same objects, the others with
    /// none.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub async fn restart(&self) {
        let (port, data) = (self.port.number(), self.directory.path().join("data"));
        let log = self.directory.path().join("log");
        let [gcs, s3, azure] = programs();
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
            // Neither `--loose` nor `--skipApiVersionCheck`: it refuses what it does not know.
            Program::Azurite => Process::spawn(azure, &log, |command| {
                command.env("AZURITE_ACCOUNTS", format!("{ACCESS_KEY}:{ACCOUNT_KEY}"));
                command.args(["--inMemoryPersistence", "--silent", "--disableTelemetry"]);
                command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
                command.current_dir(&data);
            }),
        };
        *self.process.lock().unwrap() = Some(process.expect("the store starts"));
        // Azurite has no health; what is wanted of it is a container.
        let (ready, answer) = match self.program {
            Program::FakeGcs => ("GET /_internal/healthcheck".to_owned(), "200"),
            Program::Versitygw => (format!("GET {HEALTH}"), "200"),
            Program::Azurite => {
                let container = format!("/{ACCESS_KEY}/{BUCKET}?restype=container");
                (format!("PUT {container}&{ACCOUNT_SAS}"), "201")
            }
        };
        let ready = HttpMessage::new(format!("{ready} HTTP/1.1"));
        let ready = ready.with("host", format!("127.0.0.1:{port}"));
        eventually("the store is ready", async || {
            http_request(port, &ready).await.filter(|said| said.second() == answer)
        })
        .await;
    }

    /// The names of versitygw's objects.
    ///
    /// # Panics
    ///
    /// If its files cannot be read.
    pub fn objects(&self) -> Vec<String> {
        let bucket = std::fs::read_dir(self.directory.path().join("data").join(BUCKET)).unwrap();
        let names = bucket.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).collect() // hidden files belong to the server
    }

    /// Kills it.
    pub fn kill(&self) {
        drop(self.process.lock().unwrap().take());
    }

    /// Stops its clock.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn pause(&self) {
        self.process.lock().unwrap().as_ref().expect("it runs").pause();
    }

    /// Continues after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn resume(&self) {
        self.process.lock().unwrap().as_ref().expect("it runs").resume();
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
