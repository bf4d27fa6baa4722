//! The settings of a connection, merged from flags, variables and context.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

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

impl Settings {
    /// Merges the flags with the variables and the context.
    pub fn of(flags: &ConnectionArgs) -> Result<Self, CliError> {
        if flags.is_complete {
            return Self::merge(flags, &ConnectionArgs::default(), Context::default());
        }
        let variables = ConnectionArgs::variables()?;
        let named = flags.context.as_deref().or(variables.context.as_deref());
        let context = context::load(named)?;
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
            inbox_prefix: non_empty(&context.inbox_prefix),
            timeout: flags.timeout.or(variables.timeout).unwrap_or(DEFAULT_TIMEOUT),
            credentials: Credentials::choose(flags, variables, context)?.named(origin),
        })
    }

    /// The options to connect with.
    pub fn options(&self) -> Result<ConnectOptions, CliError> {
        let mut options = incumbent::nats::connect_options();
        for server in self.addresses()? {
            if let (Some(user), Some(password)) = (server.username(), server.password()) {
                options = options.user_and_password(user.to_owned(), password.to_owned());
            } else if let Some(token) = server.username().filter(|user| !user.is_empty()) {
                options = options.token(token.to_owned());
            }
        }
        let credentials = &self.credentials;
        options = credentials.apply(options)?;
        if let Some((certificate, key)) = &self.certificate {
            let file = |text, what| readable(text, what).map_err(|why| credentials.invalid(&why));
            options = options.add_client_certificate(
                file(certificate, "TLS certificate")?,
                file(key, "TLS key")?,
            );
        }
        if let Some(authorities) = &self.authorities {
            let file = readable(authorities, "TLS authorities")
                .map_err(|why| credentials.invalid(&why))?;
            options = options.add_root_certificates(file);
        }
        if self.tls_first {
            options = options.tls_first();
        }
        if let Some(prefix) = &self.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        Ok(options)
    }

    /// The addresses of the servers.
    pub fn addresses(&self) -> Result<Vec<ServerAddr>, CliError> {
        let addresses: Result<Vec<ServerAddr>, _> =
            self.server.split(',').map(|server| server.trim().parse()).collect();
        // The text may contain a password.
        addresses.map_err(|_| {
            let message = "invalid server address: write it as in nats://127.0.0.1:4222";
            CliError::new(Code::Usage, message)
        })
    }

    /// The addresses without users and passwords, which the client would log.
    pub fn bare_addresses(&self) -> Result<Vec<ServerAddr>, CliError> {
        let bare = |address: ServerAddr| {
            let mut url = address.into_inner();
            // An error: this address cannot have a user.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            ServerAddr::from_url(url).map_err(CliError::from)
        };
        self.addresses()?.into_iter().map(bare).collect()
    }
}
