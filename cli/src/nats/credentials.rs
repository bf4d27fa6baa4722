//! NATS credentials: file, nkey seed, user, token or JWT.

use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;

use super::args::ConnectionArgs;
use super::context::{Context, REFERENCE};
use crate::error::{CliError, Code};

/// Credentials, and the context that they come from.
pub struct Credentials {
    proof: Proof,
    origin: String,
}

/// Never printed.
enum Proof {
    None,
    File(String),
    Seed(String),
    User { user: String, password: String },
    Token(String),
    Jwt { jwt: String, seed: String },
}

impl Credentials {
    /// The credentials of the first layer that has any.
    pub fn choose(
        flags: &ConnectionArgs,
        variables: &ConnectionArgs,
        context: Context,
    ) -> Result<Self, CliError> {
        let password = flags.password.as_ref().or(variables.password.as_ref());
        for (layer, what) in [(flags, "flags"), (variables, "variables")] {
            let given = [&layer.creds, &layer.nkey, &layer.user];
            if given.iter().filter(|value| value.is_some()).count() > 1 {
                let message = format!(
                    "conflicting credentials in the {what}: use one of creds, nkey and user"
                );
                return Err(CliError::new(Code::Usage, message));
            }
            let proof = match given {
                [Some(file), _, _] => Proof::File(file.clone()),
                [_, Some(file), _] => Proof::Seed(file.clone()),
                [_, _, Some(user)] => match password {
                    Some(password) => {
                        Proof::User { user: user.clone(), password: password.clone() }
                    }
                    None => Proof::Token(user.clone()),
                },
                _ => continue,
            };
            return Ok(Self { proof, origin: String::new() });
        }
        let proof = if !context.user.is_empty() {
            let password = password.cloned().unwrap_or(context.password);
            Proof::User { user: context.user, password }
        } else if !context.creds.is_empty() {
            Proof::File(context.creds)
        } else if !context.nkey.is_empty() {
            Proof::Seed(context.nkey)
        } else if !context.user_jwt.is_empty() && !context.user_seed.is_empty() {
            Proof::Jwt { jwt: context.user_jwt, seed: context.user_seed }
        } else if !context.token.is_empty() {
            Proof::Token(context.token)
        } else {
            Proof::None
        };
        Ok(Self { proof, origin: String::new() })
    }

    /// Sets the context for error messages.
    pub fn named(self, origin: String) -> Self {
        Self { origin, ..self }
    }

    /// Adds the credentials to the options of a connection.
    pub fn apply(&self, options: ConnectOptions) -> Result<ConnectOptions, CliError> {
        Ok(match &self.proof {
            Proof::None => options,
            Proof::File(file) => {
                let text = secret(file, "credentials").map_err(|why| self.invalid(&why))?;
                options.credentials(&text).map_err(|_| {
                    self.invalid(&format!("no credentials in {}", display_reference(file)))
                })?
            }
            Proof::Seed(file) => {
                let text = secret(file, "NKey").map_err(|why| self.invalid(&why))?;
                let seed = seed(&text).ok_or_else(|| {
                    self.invalid(&format!("no NKey seed in {}", display_reference(file)))
                })?;
                options.nkey(seed)
            }
            Proof::User { user, password } => {
                let password = literal(password).map_err(|why| self.invalid(&why))?;
                options.user_and_password(user.clone(), password)
            }
            Proof::Token(token) => options.token(literal(token).map_err(|why| self.invalid(&why))?),
            Proof::Jwt { jwt, seed } => {
                let jwt = literal(jwt).map_err(|why| self.invalid(&why))?;
                let seed = literal(seed).map_err(|why| self.invalid(&why))?;
                // The client takes a JWT and a seed in the format of a credentials file.
                let text = format!(
                    "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
                     -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
                );
                options
                    .credentials(&text)
                    .map_err(|_| self.invalid("no credentials in user_jwt"))?
            }
        })
    }

    /// The error for invalid credentials, with their origin.
    pub fn invalid(&self, what: &str) -> CliError {
        let origin =
            if self.origin.is_empty() { String::new() } else { format!(" ({})", self.origin) };
        CliError::new(Code::Usage, format!("{what}{origin}"))
    }
}

/// The content of a file, or of the reference in a context: `file://…` and `env://NAME`.
fn secret(reference: &str, what: &str) -> Result<String, String> {
    if reference.starts_with(REFERENCE) {
        return literal(reference);
    }
    let path = path(reference)?;
    std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {what} in {}: {error}", path.display()))
}

/// A value, or a reference to an environment variable.
fn literal(reference: &str) -> Result<String, String> {
    let Some(name) = reference.strip_prefix(REFERENCE) else { return Ok(reference.to_owned()) };
    std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))
}

/// A reference without secrets.
fn display_reference(reference: &str) -> String {
    path(reference).map_or_else(|_| "the reference".to_owned(), |path| path.display().to_string())
}

/// The path of a readable file.
pub fn readable(reference: &str, what: &str) -> Result<PathBuf, String> {
    let path = path(reference)?;
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(format!("cannot read {what} in {}: {error}", path.display())),
    }
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

/// The seed in a file, which may have the header and footer of a credentials file.
fn seed(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| line.len() > 50 && line.starts_with('S') && !line.contains(' '))
        .map(str::to_owned)
}
