//! The bucket of the elections: its flags, and how to open it.

use clap::Args;
use incumbent::lock_url::NatsBucket;

use super::args::ConnectionArgs;
use crate::error::CliError;

/// The bucket of the elections.
#[derive(Debug, Clone, Args)]
pub struct BucketArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// The key-value bucket of the elections [default: CHORIA_LEADER_ELECTION].
    #[arg(long, global = true, help_heading = "Connection")]
    bucket: Option<String>,
}

impl BucketArgs {
    /// The bucket, without a request to the server.
    pub fn target(&self) -> Result<NatsBucket, CliError> {
        Ok(NatsBucket::new(self.connection.settings()?, self.bucket.as_deref()))
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
