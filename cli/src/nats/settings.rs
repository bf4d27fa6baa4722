//! The settings of a connection, merged from flags, variables and context.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use incumbent::nats::{TlsFiles, connect_options, with_servers};

use super::args::{ConnectionArgs, DEFAULT_TIMEOUT};
use super::context::{self, Context};
use super::credentials::{Credentials, readable};
use crate::error::{CliError, Code};

const DEFAULT_SERVER: &str = "nats://127.0.0.1:4222";

/// The settings of a connection.
pub struct Settings {
    pub server: String,
    pub credentials: Credentials,
    pub certificate: Option<(String, String)>,
    pub authorities: Option<String>,
    pub tls_first: bool,
    pub api_prefix: Option<String>,
    pub inbox_prefix: Option<String>,
    pub timeout: Duration,
}

impl ConnectionArgs {
    fn or_selected_context(&self, variables: &Self) -> Result<Context, CliError> {
        context::load(self.context.as_deref().or(variables.context.as_deref()))
    }

    /// The variables with credentials to which the context refers.
    pub fn context_variables(&self) -> Vec<String> {
        let context = Self::variables().and_then(|found| self.or_selected_context(&found));
        // An error is one of the connection, too, and ends the program there.
        context.map(|context| context.variables().collect()).unwrap_or_default()
    }
}

impl Settings {
    /// Merges the flags with the variables and the context.
    pub fn of(flags: &ConnectionArgs) -> Result<Self, CliError> {
        if flags.is_complete {
            return Self::merge(flags, &ConnectionArgs::default(), Context::default());
        }
        let variables = ConnectionArgs::variables()?;
        let context = flags.or_selected_context(&variables)?;
        Self::merge(flags, &variables, context)
    }

    /// The first layer that has a setting wins. Credentials are one setting: a file of one layer is
    /// not combined with a password of another one.
    fn merge(
        flags: &ConnectionArgs,
        variables: &ConnectionArgs,
        context: Context,
    ) -> Result<Self, CliError> {
        let origin = context.origin.clone();
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let first = |a: &Option<String>, b: &Option<String>, c: &str| {
            a.clone().or_else(|| b.clone()).or_else(|| non_empty(c))
        };
        let certificate = first(&flags.tlscert, &variables.tlscert, &context.cert);
        let key = first(&flags.tlskey, &variables.tlskey, &context.key);
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let message = "a TLS certificate requires its key: set both --tlscert and --tlskey";
                return Err(CliError::new(Code::Usage, message));
            }
        };
        let domain = flags.js_domain.clone().or_else(|| non_empty(&context.jetstream_domain));
        let api_prefix = flags
            .js_api_prefix
            .clone()
            .or_else(|| domain.map(|domain| format!("$JS.{domain}.API")))
            .or_else(|| non_empty(&context.jetstream_api_prefix));
        Ok(Self {
            server: first(&flags.server, &variables.server, &context.url)
                .unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
            certificate,
            authorities: first(&flags.tlsca, &variables.tlsca, &context.ca),
            tls_first: context.tls_first,
            api_prefix,
            inbox_prefix: first(&flags.inbox_prefix, &None, &context.inbox_prefix),
            timeout: flags.timeout.or(variables.timeout).unwrap_or(DEFAULT_TIMEOUT),
            credentials: Credentials::choose(flags, variables, context)?.named(origin),
        })
    }

    /// The options to connect with, and the addresses, without users and passwords.
    pub fn options(&self) -> Result<(ConnectOptions, Vec<ServerAddr>), CliError> {
        let credentials = &self.credentials;
        let file =
            |text: &String, what| readable(text, what).map_err(|why| credentials.invalid(&why));
        let mut tls = TlsFiles::default();
        if let Some((certificate, key)) = &self.certificate {
            tls.client = Some((file(certificate, "TLS certificate")?, file(key, "TLS key")?));
        }
        if let Some(authorities) = &self.authorities {
            tls.authorities = Some(file(authorities, "TLS authorities")?);
        }
        let servers: Vec<&str> = self.server.split(',').map(str::trim).collect();
        let (options, addresses) =
            with_servers(connect_options(), &servers[..], &tls).map_err(|error| {
                let message = format!("server address: {error}; write it as nats://127.0.0.1:4222");
                CliError::new(Code::Usage, message)
            })?;
        let mut options = credentials.apply(options)?;
        if self.tls_first {
            options = options.tls_first();
        }
        if let Some(prefix) = &self.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        Ok((options, addresses))
    }

    /// Whether a server without TLS is refused.
    pub fn requires_tls(&self, addresses: &[ServerAddr]) -> bool {
        let by_address = addresses.iter().any(ServerAddr::tls_required);
        self.tls_first || self.certificate.is_some() || self.authorities.is_some() || by_address
    }
}
