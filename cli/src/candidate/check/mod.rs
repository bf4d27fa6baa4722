//! `--check`: whether this process can do the work of a leader, by a command or a URL.

#[cfg(target_os = "linux")]
mod command;
mod fetch;
mod output;
#[cfg(target_os = "linux")]
mod processes;

use incumbent::HealthCheck;

use self::fetch::Fetch;
use crate::error::CliError;

#[cfg(target_os = "linux")]
pub use self::processes::CheckProcesses;

/// Commands are checked on Linux, where all that they start can be ended.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Default)]
pub struct CheckProcesses;

#[cfg(not(target_os = "linux"))]
impl CheckProcesses {
    pub fn close(&self) {}
}

/// What is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    #[cfg(target_os = "linux")]
    Command(String),
    Url(axum::http::Uri),
}

impl Check {
    /// Parses the argument of the flag.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("write a command, or a URL".to_owned());
        }
        if !text.starts_with("http://") && !text.starts_with("https://") {
            #[cfg(target_os = "linux")]
            return Ok(Self::Command(text.to_owned()));
            #[cfg(not(target_os = "linux"))]
            return Err("a command is checked on Linux only: write a URL".to_owned());
        }
        let url: axum::http::Uri = text.parse().map_err(|error| format!("{error}"))?;
        match url.authority() {
            Some(host) if host.as_str().contains('@') => {
                Err("a URL with a password: use a command, such as curl".to_owned())
            }
            _ => Ok(Self::Url(url)),
        }
    }

    /// The check, as an election runs it. `withheld`: variables that the command does not inherit.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    pub fn start(
        &self,
        withheld: Vec<String>,
        processes: &CheckProcesses,
    ) -> Result<HealthCheck, CliError> {
        Ok(match self {
            #[cfg(target_os = "linux")]
            Self::Command(text) => {
                use std::sync::Arc;
                crate::process::hide_credentials();
                let command = command::CheckCommand::new(text, withheld, processes.clone());
                let command = Arc::new(command);
                HealthCheck::new(move || {
                    let command = Arc::clone(&command);
                    async move { command.run().await }
                })
            }
            Self::Url(url) => {
                let fetch = Fetch::new(url.clone())?;
                HealthCheck::new(move || {
                    let fetch = fetch.clone();
                    async move { fetch.run().await }
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_is_a_url_or_a_command() {
        let url = |text: &str| Ok(Check::Url(text.parse().expect("a URL")));
        for text in ["http://[::1]:8080/healthz?all", "https://c1.example.net"] {
            assert_eq!(Check::parse(text), url(text));
        }
        for text in ["pg_isready", "curl -f http://c1", "ftp://c1", "HTTP://c1"] {
            assert_eq!(Check::parse(text), Ok(Check::Command(text.to_owned())));
        }
        for text in ["", " ", "http://", "http:///x", "https://u:p@c1", "http://a b"] {
            assert!(Check::parse(text).is_err(), "{text}");
        }
    }
}
