//! What flags, variables and context come to.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use super::args::{ConnectionArgs, PATIENCE};
use super::context::{self, Context};
use super::credentials::{Credentials, readable};
use crate::error::{CliError, Code};

const NEAREST: &str = "nats://127.0.0.1:4222";

/// What flags, variables and context come to.
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
    /// What the flags, the variables and the context come to.
    pub fn of(flags: &ConnectionArgs) -> Result<Self, CliError> {
        if flags.told_whole {
            return Self::merge(flags, &ConnectionArgs::default(), Context::default());
        }
        let variables = ConnectionArgs::variables()?;
        let named = flags.context.as_deref().or(variables.context.as_deref());
        let context = context::load(named)?;
        Self::merge(flags, &variables, context)
    }

    /// The first layer that says something is the one that counts. Who we are is one thing: a layer that says it with a
    /// file of credentials is not mixed with another that says it with a password.
    fn merge(
        flags: &ConnectionArgs,
        variables: &ConnectionArgs,
        context: Context,
    ) -> Result<Self, CliError> {
        let origin = context.origin.clone();
        let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let first = |a: &Option<String>, b: &Option<String>, c: &str| {
            a.clone().or_else(|| b.clone()).or_else(|| told(c))
        };
        let certificate = first(&flags.tlscert, &variables.tlscert, &context.cert);
        let key = first(&flags.tlskey, &variables.tlskey, &context.key);
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let message = "a TLS certificate needs its key: give both --tlscert and --tlskey";
                return Err(CliError::new(Code::Usage, message));
            }
        };
        let domain = flags.js_domain.clone().or_else(|| told(&context.jetstream_domain));
        let api_prefix = flags
            .js_api_prefix
            .clone()
            .or_else(|| domain.map(|domain| format!("$JS.{domain}.API")))
            .or_else(|| told(&context.jetstream_api_prefix));
        Ok(Self {
            server: first(&flags.server, &variables.server, &context.url)
                .unwrap_or_else(|| NEAREST.to_owned()),
            certificate,
            authorities: first(&flags.tlsca, &variables.tlsca, &context.ca),
            tls_first: context.tls_first,
            api_prefix,
            inbox_prefix: told(&context.inbox_prefix),
            timeout: flags.timeout.or(variables.timeout).unwrap_or(PATIENCE),
            credentials: Credentials::choose(flags, variables, context)?.named(origin),
        })
    }

    /// How to connect.
    pub fn options(&self) -> Result<ConnectOptions, CliError> {
        let mut options = ConnectOptions::new();
        for server in self.addresses()? {
            if let (Some(user), Some(password)) = (server.username(), server.password()) {
                options = options.user_and_password(user.to_owned(), password.to_owned());
            } else if let Some(token) = server.username().filter(|user| !user.is_empty()) {
                options = options.token(token.to_owned());
            }
        }
        let who = &self.credentials;
        options = who.apply(options)?;
        if let Some((certificate, key)) = &self.certificate {
            let file = |text, what| readable(text, what).map_err(|why| who.complain(&why));
            options = options.add_client_certificate(
                file(certificate, "TLS certificate")?,
                file(key, "TLS key")?,
            );
        }
        if let Some(authorities) = &self.authorities {
            let file =
                readable(authorities, "TLS authorities").map_err(|why| who.complain(&why))?;
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

    /// The servers.
    pub fn addresses(&self) -> Result<Vec<ServerAddr>, CliError> {
        let addresses: Result<Vec<ServerAddr>, _> =
            self.server.split(',').map(|server| server.trim().parse()).collect();
        // The text may hold a password.
        addresses.map_err(|_| {
            let message = "the address of the server is not one like nats://127.0.0.1:4222";
            CliError::new(Code::Usage, message)
        })
    }

    /// The same without users and passwords, which the client would write into its log.
    pub fn bare_addresses(&self) -> Result<Vec<ServerAddr>, CliError> {
        let bare = |address: ServerAddr| {
            let mut url = address.into_inner();
            // An error: an address that cannot have a user.
            let _ = url.set_username("").and_then(|()| url.set_password(None));
            ServerAddr::from_url(url).map_err(CliError::from)
        };
        self.addresses()?.into_iter().map(bare).collect()
    }
}
