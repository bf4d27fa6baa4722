//! Flags and environment variables of a connection to NATS.

use std::env::VarError;
use std::fmt;
use std::sync::Once;
use std::time::Duration;

use clap::Args;

use crate::error::{CliError, Code};
use crate::output::note;

/// The timeout of requests, unless another one is given.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The variables of a connection.
const VARIABLES: [&str; 10] = [
    "NATS_URL",
    "NATS_CREDS",
    "NATS_NKEY",
    "NATS_USER",
    "NATS_PASSWORD",
    "NATS_CERT",
    "NATS_KEY",
    "NATS_CA",
    "NATS_CONTEXT",
    "NATS_TIMEOUT",
];

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
    /// The values of the environment variables. Reports those that are none of a connection once.
    pub fn variables() -> Result<Self, CliError> {
        static REPORT: Once = Once::new();
        REPORT.call_once(|| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            for name in names.filter(|name| is_unknown(name)) {
                note(format_args!("{name} is ignored: known are {}", VARIABLES.join(", ")));
            }
        });
        Ok(Self {
            server: variable("NATS_URL")?,
            creds: variable("NATS_CREDS")?,
            nkey: variable("NATS_NKEY")?,
            user: variable("NATS_USER")?,
            password: variable("NATS_PASSWORD")?,
            tlscert: variable("NATS_CERT")?,
            tlskey: variable("NATS_KEY")?,
            tlsca: variable("NATS_CA")?,
            context: variable("NATS_CONTEXT")?,
            timeout: timeout_variable()?,
            ..Self::default()
        })
    }

    /// The timeout of the flag or the variable.
    pub fn explicit_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| timeout_variable().ok().flatten())
    }
}

/// Whether a variable looks like a setting of the connection, and is none. Kubernetes sets
/// `NATS_SERVICE_HOST`, `NATS_PORT_4222_TCP` and the like for a Service of this name.
fn is_unknown(name: &str) -> bool {
    let of_kubernetes = name.contains("_SERVICE_") || name.contains("_PORT");
    name.starts_with("NATS_") && !VARIABLES.contains(&name) && !of_kubernetes
}

fn variable(name: &str) -> Result<Option<String>, CliError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(CliError::new(
            Code::Usage,
            format!("{name} is not UTF-8: set it again, or unset it"),
        )),
    }
}

fn timeout_variable() -> Result<Option<Duration>, CliError> {
    let Some(text) = variable("NATS_TIMEOUT")? else { return Ok(None) };
    let unread = |error| CliError::new(Code::Usage, format!("NATS_TIMEOUT {text:?}: {error}"));
    humantime::parse_duration(&text).map(Some).map_err(unread)
}

#[cfg(test)]
mod tests {
    use super::is_unknown;

    #[test]
    fn variables_that_kubernetes_sets_are_not_reported() {
        for known in ["NATS_URL", "NATS_TIMEOUT", "NATS_SERVICE_HOST", "NATS_PORT_4222_TCP", "PATH"]
        {
            assert!(!is_unknown(known), "{known}");
        }
        assert!(is_unknown("NATS_TOKEN") && is_unknown("NATS_USERNAME"));
    }
}
