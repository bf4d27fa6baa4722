//! What was found, and how bad it is.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{self, Format};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Unknown,
    Warning,
    Error,
}

#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    message: String,
}

/// All findings, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Report(Vec<Finding>);

impl Report {
    pub fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.find(Level::Ok, check, message);
    }

    pub fn unknown(&mut self, check: &'static str, message: impl Into<String>) {
        self.find(Level::Unknown, check, message);
    }

    pub fn warning(&mut self, check: &'static str, message: impl Into<String>) {
        self.find(Level::Warning, check, message);
    }

    pub fn error(&mut self, check: &'static str, message: impl Into<String>) {
        self.find(Level::Error, check, message);
    }

    pub fn find(&mut self, level: Level, check: &'static str, message: impl Into<String>) {
        self.0.push(Finding { level, check, message: message.into() });
    }

    fn worst(&self) -> Level {
        self.0.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.worst() {
            Level::Ok | Level::Unknown => 0,
            Level::Warning => 1,
            Level::Error => 2,
        })
    }

    pub fn print(&self, format: Format) -> Result<(), Failure> {
        if format == Format::Json {
            return output::json(&json!({ "worst": self.worst(), "findings": self.0 }));
        }
        self.0.iter().try_for_each(|Finding { level, check, message }| {
            let level = match level {
                Level::Ok => "ok      ".to_owned(),
                Level::Unknown => "unknown ".to_owned(),
                Level::Warning => output::yellow("warning "),
                Level::Error => output::red("error   "),
            };
            output::line(format!("{level} {check:<10}  {}", output::printable(message)))
        })
    }
}
