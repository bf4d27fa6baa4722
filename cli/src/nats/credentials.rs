//! Who we are for the server.

use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;

use super::args::ConnectionArgs;
use super::context::Context;
use crate::error::{CliError, Code};

/// Who we are, and who says so.
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
    /// What the first layer says that says anything.
    pub fn choose(
        flags: &ConnectionArgs,
        variables: &ConnectionArgs,
        context: Context,
    ) -> Result<Self, CliError> {
        let password = flags.password.as_ref().or(variables.password.as_ref());
        for (layer, what) in [(flags, "flags"), (variables, "variables")] {
            let told = [&layer.creds, &layer.nkey, &layer.user];
            if told.iter().filter(|told| told.is_some()).count() > 1 {
                let message =
                    format!("the {what} say twice who we are: give one of creds, nkey and user");
                return Err(CliError::new(Code::Usage, message));
            }
            let proof = match told {
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

    /// Says who says so.
    pub fn named(self, origin: String) -> Self {
        Self { origin, ..self }
    }

    /// Adds them to what is connected with.
    pub fn apply(&self, options: ConnectOptions) -> Result<ConnectOptions, CliError> {
        Ok(match &self.proof {
            Proof::None => options,
            Proof::File(file) => {
                let text = secret(file, "credentials").map_err(|why| self.complain(&why))?;
                options
                    .credentials(&text)
                    .map_err(|_| self.complain(&format!("no credentials in {}", shown(file))))?
            }
            Proof::Seed(file) => {
                let text = secret(file, "NKey").map_err(|why| self.complain(&why))?;
                let seed = seed(&text)
                    .ok_or_else(|| self.complain(&format!("no NKey seed in {}", shown(file))))?;
                options.nkey(seed)
            }
            Proof::User { user, password } => {
                let password = literal(password).map_err(|why| self.complain(&why))?;
                options.user_and_password(user.clone(), password)
            }
            Proof::Token(token) => {
                options.token(literal(token).map_err(|why| self.complain(&why))?)
            }
            Proof::Jwt { jwt, seed } => {
                let jwt = literal(jwt).map_err(|why| self.complain(&why))?;
                let seed = literal(seed).map_err(|why| self.complain(&why))?;
                // The form of a credentials file, which is how the client takes the two together.
                let text = format!(
                    "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
                     -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
                );
                options
                    .credentials(&text)
                    .map_err(|_| self.complain("no credentials in user_jwt"))?
            }
        })
    }

    /// What is wrong with them, and where they come from.
    pub fn complain(&self, what: &str) -> CliError {
        let origin =
            if self.origin.is_empty() { String::new() } else { format!(" ({})", self.origin) };
        CliError::new(Code::Usage, format!("{what}{origin}"))
    }
}

/// The content of a file, or of what a context names in its place: `file://…` and `env://NAME`.
fn secret(reference: &str, what: &str) -> Result<String, String> {
    if reference.starts_with("env://") {
        return literal(reference);
    }
    let path = path(reference)?;
    std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {what} in {}: {error}", path.display()))
}

/// A value that may name the variable that holds it.
fn literal(reference: &str) -> Result<String, String> {
    let Some(name) = reference.strip_prefix("env://") else { return Ok(reference.to_owned()) };
    std::env::var(name).map_err(|_| format!("the variable {name} is not set"))
}

/// What may be shown of a reference.
fn shown(reference: &str) -> String {
    path(reference).map_or_else(|_| "what it names".to_owned(), |path| path.display().to_string())
}

/// The path of a file that can be read.
pub fn readable(reference: &str, what: &str) -> Result<PathBuf, String> {
    let path = path(reference)?;
    match std::fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(format!("cannot read {what} in {}: {error}", path.display())),
    }
}

/// A path, with `~` and `$VARIABLE` replaced as the `nats` program does.
fn path(reference: &str) -> Result<PathBuf, String> {
    if let Some((scheme, rest)) = reference.split_once("://") {
        return match scheme {
            "file" => Ok(PathBuf::from(rest)),
            _ => Err(format!("secrets by {scheme}:// are not supported: use a file or env://NAME")),
        };
    }
    if reference.starts_with("data:") {
        return Err("secrets by data: are not supported: use a file or env://NAME".to_owned());
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

/// The seed in a file that may be decorated as credentials are.
fn seed(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| line.len() > 50 && line.starts_with('S') && !line.contains(' '))
        .map(str::to_owned)
}
