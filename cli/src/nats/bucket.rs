//! The bucket of the elections: its flags, and how to open it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use incumbent::lock_url::NatsBucket;
use incumbent::nats::{Bucket, DEFAULT_BUCKET, Finding};

use super::args::ConnectionArgs;
use super::session::Session;
use crate::error::CliError;

/// The bucket of the elections.
#[derive(Debug, Clone, Args)]
pub struct BucketArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The key-value bucket of the elections [default: CHORIA_LEADER_ELECTION].
    #[arg(long, global = true, help_heading = "Connection")]
    bucket: Option<String>,
}

impl BucketArgs {
    /// The bucket of a URL.
    pub fn named(named: NatsBucket, timeout: Duration) -> Self {
        let file = |path: PathBuf| path.to_string_lossy().into_owned();
        let servers = named.servers.iter().map(|server| server.clone().into_inner().to_string());
        let connection = ConnectionArgs {
            server: Some(servers.collect::<Vec<_>>().join(",")),
            creds: named.creds.map(file),
            tlsca: named.ca.map(file),
            js_domain: named.domain,
            inbox_prefix: named.inbox_prefix,
            timeout: Some(timeout),
            is_complete: true,
            ..ConnectionArgs::default()
        };
        Self { connection, bucket: Some(named.bucket) }
    }

    /// Connects to the server.
    pub async fn session(&self) -> Result<Session, CliError> {
        Session::connect(&self.connection).await
    }

    /// The variables with credentials to which the context refers.
    pub fn context_variables(&self) -> Vec<String> {
        self.connection.context_variables()
    }

    /// The timeout of the flag or the variable.
    pub fn explicit_timeout(&self) -> Option<Duration> {
        self.connection.explicit_timeout()
    }

    /// The timeout of the flag, which is not specific to NATS.
    pub fn timeout_flag(&self) -> Option<Duration> {
        self.connection.timeout
    }

    /// The context of the flag, which is not specific to NATS.
    pub fn context_flag(&self) -> Option<&str> {
        self.connection.context.as_deref()
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &str {
        self.bucket.as_deref().unwrap_or(DEFAULT_BUCKET)
    }

    /// The bucket, without a request to the server.
    pub fn deferred(&self, session: &Session) -> Result<Bucket, CliError> {
        Ok(Bucket::deferred(session.connection(), session.config(self.bucket()))?)
    }

    /// The bucket, which must exist.
    pub async fn existing(&self, session: &Session) -> Result<Bucket, CliError> {
        Ok(Bucket::open_with(session.connection(), session.config(self.bucket())).await?)
    }

    /// Problems of the bucket, which may be unfit for elections.
    pub async fn health(&self, session: &Session) -> Result<Vec<Finding>, CliError> {
        Ok(self.deferred(session)?.health().await?)
    }

    /// The first given flag of NATS.
    pub fn given(&self) -> Option<&'static str> {
        self.bucket.as_ref().map(|_| "--bucket").or_else(|| self.connection.given())
    }

    /// Opens the bucket, or creates it with this TTL unless it must exist.
    pub async fn open(
        &self,
        ttl: Option<Duration>,
        must_exist: bool,
        queue_groups: Option<u8>,
    ) -> Result<Bucket, CliError> {
        let session = self.session().await?;
        let mut config = session.config(self.bucket());
        if let Some(ttl) = ttl {
            config = config.ttl(ttl);
        }
        if let Some(groups) = queue_groups {
            config = config.queue_groups(groups);
        }
        Ok(match must_exist {
            true => Bucket::open_with(session.connection(), config).await?,
            false => Bucket::create_or_open(session.connection(), config).await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::*;

    #[test]
    fn debug_output_contains_no_secret() {
        let secret = || Some("s3cret".to_owned());
        let connection = ConnectionArgs {
            server: Some("nats://me:s3cret@host".to_owned()),
            user: secret(),
            password: secret(),
            ..ConnectionArgs::default()
        };
        let args = BucketArgs { connection: connection.clone(), bucket: None };
        let mut context = Context::default();
        context.password = "s3cret".to_owned();
        let text = format!("{connection:?} {args:?} {context:?}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
