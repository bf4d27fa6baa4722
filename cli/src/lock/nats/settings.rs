//! The settings of a connection, merged from flags, variables and context.

use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use incumbent::nats::{ConnectionSettings, Credentials};

use super::args::{ConnectionArgs, DEFAULT_TIMEOUT};
use super::context::{self, Context, REFERENCE};
use crate::error::{CliError, Code};

const DEFAULT_SERVER: &str = "nats://127.0.0.1:4222";

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

    /// Merges the flags with the variables and the context.
    pub fn settings(&self) -> Result<ConnectionSettings, CliError> {
        let variables = Self::variables()?;
        let context = self.or_selected_context(&variables)?;
        let origin = context.origin.clone();
        self.merge(&variables, context).map_err(|why| {
            let origin = if origin.is_empty() { origin } else { format!(" ({origin})") };
            CliError::new(Code::Usage, why + &origin)
        })
    }

    /// The first layer that has a setting wins. Credentials are one setting: a file of one layer is
    /// not combined with a password of another one.
    fn merge(&self, variables: &Self, context: Context) -> Result<ConnectionSettings, String> {
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let first = |a: &Option<String>, b: &Option<String>, c: &str| {
            a.clone().or_else(|| b.clone()).or_else(|| non_empty(c))
        };
        let server = first(&self.server, &variables.server, &context.url);
        let mut settings = ConnectionSettings::new(server.as_deref().unwrap_or(DEFAULT_SERVER))
            .map_err(|error| error.to_string())?;
        let certificate = first(&self.tlscert, &variables.tlscert, &context.cert);
        let key = first(&self.tlskey, &variables.tlskey, &context.key);
        settings.tls.client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((path(&certificate)?, path(&key)?)),
            (None, None) => None,
            _ => {
                return Err(
                    "a TLS certificate requires its key: set both --tlscert and --tlskey".into()
                );
            }
        };
        let authorities = first(&self.tlsca, &variables.tlsca, &context.ca);
        settings.tls.authorities = authorities.map(|file| path(&file)).transpose()?;
        settings.tls_first = context.tls_first;
        let domain = self.js_domain.clone().or_else(|| non_empty(&context.jetstream_domain));
        settings.api_prefix = (self.js_api_prefix.clone())
            .or_else(|| domain.map(|domain| format!("$JS.{domain}.API")))
            .or_else(|| non_empty(&context.jetstream_api_prefix));
        settings.inbox_prefix = first(&self.inbox_prefix, &None, &context.inbox_prefix);
        settings.timeout = Some(self.timeout.or(variables.timeout).unwrap_or(DEFAULT_TIMEOUT));
        settings.origin = non_empty(&context.origin);
        settings.credentials = self.credentials(variables, context)?;
        Ok(settings)
    }

    /// The credentials of the first layer that has any.
    fn credentials(&self, variables: &Self, context: Context) -> Result<Credentials, String> {
        let password = self.password.as_ref().or(variables.password.as_ref());
        for (layer, what) in [(self, "flags"), (variables, "variables")] {
            let given = [&layer.creds, &layer.nkey, &layer.user];
            if given.iter().filter(|value| value.is_some()).count() > 1 {
                return Err(format!(
                    "conflicting credentials in the {what}: use one of creds, nkey and user"
                ));
            }
            return match (given, password) {
                ([Some(file), _, _], _) => file_of_credentials(file),
                ([_, Some(file), _], _) => seed(file),
                ([_, _, Some(user)], Some(password)) => user_of(user, password),
                ([_, _, Some(token)], None) => Ok(Credentials::Token(literal(token)?)),
                _ => continue,
            };
        }
        if !context.user.is_empty() {
            user_of(&context.user, password.unwrap_or(&context.password))
        } else if !context.creds.is_empty() {
            file_of_credentials(&context.creds)
        } else if !context.nkey.is_empty() {
            seed(&context.nkey)
        } else if !context.user_jwt.is_empty() && !context.user_seed.is_empty() {
            let (jwt, seed) = (literal(&context.user_jwt)?, literal(&context.user_seed)?);
            let text = format!(
                "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            );
            content(text, "user_jwt")
        } else if !context.token.is_empty() {
            Ok(Credentials::Token(literal(&context.token)?))
        } else {
            Ok(Credentials::None)
        }
    }
}

fn file_of_credentials(reference: &str) -> Result<Credentials, String> {
    match reference.starts_with(REFERENCE) {
        true => content(literal(reference)?, "the reference"),
        false => path(reference).map(Credentials::File),
    }
}

fn content(text: String, location: &str) -> Result<Credentials, String> {
    match ConnectOptions::new().credentials(&text) {
        Ok(_) => Ok(Credentials::Content(text)),
        Err(_) => Err(format!("no credentials in {location}")),
    }
}

fn user_of(name: &str, password: &str) -> Result<Credentials, String> {
    Ok(Credentials::User(name.to_owned(), literal(password)?))
}

/// The seed in a variable, or in a file that may have the lines of a credentials file around it.
fn seed(reference: &str) -> Result<Credentials, String> {
    let (text, location) = if reference.starts_with(REFERENCE) {
        (literal(reference)?, "the reference".to_owned())
    } else {
        let path = path(reference)?;
        let location = path.display().to_string();
        let text = std::fs::read_to_string(&path);
        (text.map_err(|error| format!("cannot read NKey in {location}: {error}"))?, location)
    };
    let mut lines = text.lines().map(str::trim);
    let seed = lines.find(|line| line.len() > 50 && line.starts_with('S') && !line.contains(' '));
    let seed = seed.ok_or_else(|| format!("no NKey seed in {location}"))?;
    Ok(Credentials::Seed(seed.to_owned()))
}

/// A value, or a reference to an environment variable.
fn literal(reference: &str) -> Result<String, String> {
    let Some(name) = reference.strip_prefix(REFERENCE) else { return Ok(reference.to_owned()) };
    std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))
}

/// A path, with `~` and `$VARIABLE` expanded as the `nats` program does.
fn path(reference: &str) -> Result<PathBuf, String> {
    if let Some((scheme, rest)) = reference.split_once("://") {
        return match scheme {
            "file" => Ok(PathBuf::from(rest)),
            _ => Err(format!("{scheme}:// references are not supported: use a file or env://NAME")),
        };
    }
    if reference.starts_with("data:") {
        return Err("data: references are not supported: use a file or env://NAME".to_owned());
    }
    let text = with_variables(reference);
    match text.strip_prefix("~/") {
        Some(rest) => Ok(std::env::home_dir().unwrap_or_default().join(rest)),
        None => Ok(Path::new(&text).to_owned()),
    }
}

fn with_variables(text: &str) -> String {
    let mut parts = text.split('$');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = match part.strip_prefix('{').and_then(|part| part.split_once('}')) {
            Some(braced) => braced,
            None => {
                let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                part.split_at(end.unwrap_or(part.len()))
            }
        };
        out += &std::env::var(name).unwrap_or_default();
        out += rest;
    }
    out
}
