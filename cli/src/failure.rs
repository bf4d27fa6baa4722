//! Why a command fails, and the exit code that scripts see.

use std::fmt;
use std::process::ExitCode;

use incumbent::StartError;
use incumbent::nats::{BucketError, BucketErrorKind};

/// What scripts can rely on. Success is 0, and a signal ends a program with 128 and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Failed = 1,
    Usage = 2,
    /// No such thing, or not the leader.
    NotFound = 3,
    /// No server in reach.
    Unreachable = 4,
    Denied = 5,
}

/// One line that says what is wrong and how to mend it.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<BucketError> for Failure {
    fn from(error: BucketError) -> Self {
        let code = match error.kind() {
            BucketErrorKind::Missing => Code::NotFound,
            BucketErrorKind::Denied => Code::Denied,
            BucketErrorKind::Unavailable => Code::Unreachable,
            _ => Code::Failed,
        };
        Self::new(code, one_line(&error))
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(Code::Usage, one_line(&error))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Code::Failed, one_line(&error))
    }
}

/// An error with all that led to it.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        line = format!("{line}: {error}");
        source = error.source();
    }
    line
}
