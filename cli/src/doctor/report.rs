//! Findings and their levels.

use std::process::ExitCode;

use incumbent::lock::{Finding as Diagnosis, Severity};
use serde::Serialize;
use serde_json::json;

use crate::error::CliError;
use crate::output::text;
use crate::output::{self, Format};

/// The level of a finding.
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
    /// The lock, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    level: Level,
    check: &'static str,
    message: String,
}

/// All findings, in order.
#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    lock: Option<String>,
    best_effort: bool,
}

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
        // A term continues without a best-effort lock.
        let level = if self.best_effort { level.min(Level::Warning) } else { level };
        let lock = self.lock.clone();
        self.findings.push(Finding { lock, level, check, message: message.into() });
    }

    /// Reports what a lock found of itself. `notice`: the level of what is for information.
    pub fn diagnosed(&mut self, check: &'static str, found: &Diagnosis, notice: Level) {
        let level = match (found.code(), found.severity()) {
            ("unread", _) => Level::Unknown,
            (_, Severity::Critical) => Level::Error,
            (_, Severity::Warning) => Level::Warning,
            _ => notice,
        };
        self.find(level, check, found.to_string());
    }

    /// Starts the findings of one of several locks.
    pub fn begin(&mut self, lock: String, best_effort: bool) {
        self.lock = Some(lock);
        self.best_effort = best_effort;
    }

    /// Starts the findings of this machine.
    #[cfg(target_os = "linux")]
    pub fn begin_machine(&mut self) {
        self.lock = None;
        self.best_effort = false;
    }

    fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.worst() {
            Level::Ok | Level::Unknown => 0,
            Level::Warning => 1,
            Level::Error => 2,
        })
    }

    pub fn print(&self, format: Format) -> Result<(), CliError> {
        if format == Format::Json {
            return output::json(&json!({ "worst": self.worst(), "findings": self.findings }));
        }
        let mut last = &None;
        self.findings.iter().try_for_each(|Finding { lock, level, check, message }| {
            if lock != last {
                output::line(match lock {
                    Some(lock) => format!("Lock {}", output::bold(text::printable(lock))),
                    None => "This machine".to_owned(),
                })?;
            }
            last = lock;
            let level = match level {
                Level::Ok => "ok      ".to_owned(),
                Level::Unknown => "unknown ".to_owned(),
                Level::Warning => output::yellow("warning "),
                Level::Error => output::red("error   "),
            };
            output::line(format!("{level} {check:<10}  {}", text::printable(message)))
        })
    }
}
