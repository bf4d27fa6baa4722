//! How a command reaches its bucket.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use incumbent::nats::{self, Bucket, BucketConfig};

use crate::failure::{Code, Failure, one_line};

/// Where the elections are.
#[derive(Debug, Args)]
pub struct Connection {
    /// The NATS server.
    #[arg(short, long, env = "NATS_URL", default_value = "nats://127.0.0.1:4222")]
    server: String,
    /// A file with the user's credentials.
    #[arg(long, env = "NATS_CREDS", value_name = "FILE")]
    creds: Option<PathBuf>,
    /// The key-value bucket of the elections.
    #[arg(long, default_value = "CHORIA_LEADER_ELECTION")]
    bucket: String,
}

/// The bucket in which a command stands.
#[derive(Debug, Args)]
pub struct Standing {
    #[command(flatten)]
    connection: Connection,
    /// Use the bucket only if it is there; else it is made.
    #[arg(long)]
    no_create: bool,
}

impl Connection {
    pub async fn connect(&self) -> Result<nats::Connection, Failure> {
        let options = match &self.creds {
            Some(file) => {
                async_nats::ConnectOptions::with_credentials_file(file).await.map_err(|error| {
                    let file = file.display();
                    Failure::new(Code::Usage, format!("cannot read credentials in {file}: {error}"))
                })?
            }
            None => async_nats::ConnectOptions::new(),
        };
        nats::connect(self.server.as_str(), options).await.map_err(|error| {
            let (server, why) = (self.address(), one_line(&error));
            Failure::new(
                Code::Unreachable,
                format!("cannot reach a NATS server at {server}: {why}"),
            )
        })
    }

    /// The bucket's settings as far as they are told here.
    pub fn config(&self) -> BucketConfig {
        BucketConfig::new(&self.bucket)
    }

    /// The server's address without the user and password that a URL may carry.
    fn address(&self) -> &str {
        let address = self.server.rsplit('@').next().unwrap_or_default();
        address.rsplit("//").next().unwrap_or_default()
    }
}

impl Standing {
    /// Opens the bucket, or makes it with this TTL.
    pub async fn open(&self, ttl: Option<Duration>) -> Result<Bucket, Failure> {
        let connection = self.connection.connect().await?;
        let mut config = self.connection.config();
        if let Some(ttl) = ttl {
            config = config.ttl(ttl);
        }
        Ok(if self.no_create {
            Bucket::open_with(connection, config).await?
        } else {
            Bucket::create_or_open(connection, config).await?
        })
    }
}
