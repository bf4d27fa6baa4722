//! PgBouncer in front of a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::{Port, PostgresServer, Process, eventually};

/// PgBouncer. Dropping it kills it.
#[derive(Debug)]
pub struct Pooler {
    port: Port,
    _process: Process,
    _directory: TempDir,
}

impl Pooler {
    /// In transaction mode, with two connections to the server for all who may do everything in a
    /// database.
    ///
    /// # Panics
    ///
    /// Where it is not installed, saying what to install.
    pub async fn start(server: &PostgresServer, database: &str) -> Self {
        let directory =
            tempfile::Builder::new().prefix("pgbouncer-").tempdir().expect("a directory");
        let port = Port::pick();
        let open = fs::Permissions::from_mode(0o777); // root may not run it, and nobody has to write
        fs::set_permissions(directory.path(), open).expect("a directory of everybody's");
        let settings = format!(
            "[databases]\n{database} = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\n\
            listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n\
            pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\n",
            server = server.port(),
            port = port.number(),
        );
        let file = directory.path().join("pgbouncer.ini");
        fs::write(&file, settings).expect("its settings");
        let log = directory.path().join("log");
        let program = ["/usr/sbin/pgbouncer", "/usr/local/bin/pgbouncer", "/usr/bin/pgbouncer"]
            .into_iter()
            .find(|program| Path::new(program).is_file())
            .expect("no PgBouncer: run `make tools`");
        let process = Process::spawn(Path::new(program), &log, |command| {
            if rustix::process::geteuid().is_root() {
                command.args(["--user", "nobody"]);
            }
            command.arg(&file);
        });
        let process = process.expect("PgBouncer");
        eventually("PgBouncer listens", async || {
            TcpStream::connect(("127.0.0.1", port.number())).await.ok()
        })
        .await;
        Self { port, _process: process, _directory: directory }
    }

    /// The URL of a database, by way of it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port.number())
    }
}
