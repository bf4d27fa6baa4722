//! Flags and environment variables of a connection to NATS.

use std::fmt;
use std::time::Duration;

use clap::Args;

use crate::error::{CliError, Code};

/// The timeout of requests, unless another one is given.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server and the credentials. A flag overrides its variable, which overrides the context.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The NATS servers, separated by commas [env: NATS_URL] [default: nats://127.0.0.1:4222].
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// A file with the user's credentials [env: NATS_CREDS].
    #[arg(long, global = true, value_name = "FILE")]
    pub creds: Option<String>,
    /// A file with the user's NKey seed [env: NATS_NKEY].
    #[arg(long, global = true, value_name = "FILE")]
    pub nkey: Option<String>,
    /// The user; without a password, a token [env: NATS_USER].
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// The user's password; prefer the variable, which the list of processes does not show [env:
    /// NATS_PASSWORD].
    #[arg(long, global = true)]
    pub password: Option<String>,
    /// A file with the client's TLS certificate [env: NATS_CERT].
    #[arg(long, global = true, value_name = "FILE")]
    pub tlscert: Option<String>,
    /// A file with the key of the client's TLS certificate [env: NATS_KEY].
    #[arg(long, global = true, value_name = "FILE")]
    pub tlskey: Option<String>,
    /// A file with the trusted TLS authorities [env: NATS_CA].
    #[arg(long, global = true, value_name = "FILE")]
    pub tlsca: Option<String>,
    /// A context of the `nats` program [env: NATS_CONTEXT] [default: the selected one]; with
    /// Kubernetes, of the kubeconfig [default: the current one].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The JetStream domain.
    #[arg(long, global = true, value_name = "DOMAIN", conflicts_with = "js_api_prefix")]
    pub js_domain: Option<String>,
    /// The prefix of the JetStream API.
    #[arg(long, global = true, value_name = "PREFIX")]
    pub js_api_prefix: Option<String>,
    /// The prefix of the subjects on which responses arrive [default: _INBOX].
    #[arg(long, global = true, value_name = "PREFIX")]
    pub inbox_prefix: Option<String>,
    /// The timeout of the connection and of each request [env: NATS_TIMEOUT] [default: 5s].
    #[arg(long, global = true, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub timeout: Option<Duration>,
    /// Whether variables and contexts are ignored.
    #[arg(skip)]
    pub is_complete: bool,
}

/// Flags may contain a password or a token, and so may a server's address.
impl fmt::Debug for ConnectionArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionArgs")
            .field("context", &self.context)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl ConnectionArgs {
    /// The values of the environment variables.
    pub fn variables() -> Result<Self, CliError> {
        Ok(Self {
            server: variable("NATS_URL"),
            creds: variable("NATS_CREDS"),
            nkey: variable("NATS_NKEY"),
            user: variable("NATS_USER"),
            password: variable("NATS_PASSWORD"),
            tlscert: variable("NATS_CERT"),
            tlskey: variable("NATS_KEY"),
            tlsca: variable("NATS_CA"),
            context: variable("NATS_CONTEXT"),
            timeout: timeout_variable()?,
            ..Self::default()
        })
    }

    /// The timeout of the flag or the variable.
    pub fn explicit_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| timeout_variable().ok().flatten())
    }

    /// The first given flag of NATS.
    pub fn given(&self) -> Option<&'static str> {
        let Self {
            server,
            creds,
            nkey,
            user,
            password,
            tlscert,
            tlskey,
            tlsca,
            context: _, // a kubeconfig has contexts, too
            js_domain,
            js_api_prefix,
            inbox_prefix,
            timeout: _,
            is_complete: _,
        } = self;
        let flags = [
            ("--server", server),
            ("--creds", creds),
            ("--nkey", nkey),
            ("--user", user),
            ("--password", password),
            ("--tlscert", tlscert),
            ("--tlskey", tlskey),
            ("--tlsca", tlsca),
            ("--js-domain", js_domain),
            ("--js-api-prefix", js_api_prefix),
            ("--inbox-prefix", inbox_prefix),
        ];
        flags.into_iter().find(|(_, value)| value.is_some()).map(|(flag, _)| flag)
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn timeout_variable() -> Result<Option<Duration>, CliError> {
    let Some(text) = variable("NATS_TIMEOUT") else { return Ok(None) };
    let unread = |error| CliError::new(Code::Usage, format!("NATS_TIMEOUT {text:?}: {error}"));
    humantime::parse_duration(&text).map(Some).map_err(unread)
}
