//! Errors of commands, and the exit codes that scripts rely on.

use std::error::Error;
use std::fmt;

use async_nats::jetstream;
use incumbent::StartError;
use incumbent::kubernetes::LifeErrorKind;
use incumbent::lock::{self, LockErrorKind};
use incumbent::lock_url::LockUrlErrorKind;
use incumbent::nats::{AdminFailure, BucketErrorKind};

/// The exit codes, for `--help` and the manual.
pub const EXIT_CODES: &str = "\
Exit codes:
  0      done
  1      failed
  2      wrong usage
  3      not the leader, or not found
  4      no server reachable
  5      permission denied by the server
  128+n  ended by signal n";

/// What to do without a response from JetStream.
const IF_WITHOUT_JETSTREAM: &str = "enable it on the server, or set --js-domain";

/// What to do without a response in time.
const IF_TIMED_OUT: &str = "the server is slow, or denies the permission silently; see --timeout";

/// An exit code. Success is 0; a signal ends the program with 128 plus its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Failed = 1,
    Usage = 2,
    /// The entry, bucket or namespace does not exist, or this process is not the leader.
    NotFound = 3,
    /// No server is reachable.
    Unreachable = 4,
    Denied = 5,
}

/// The reason why a command fails.
#[derive(Debug, Clone)]
pub enum CliError {
    /// One line: what failed, why, and what to do.
    Message { code: Code, message: String },
    /// An exit code without a message.
    Silent(Code),
    /// The reader of standard output closed the pipe.
    ClosedPipe,
    /// Ended by this signal, after an orderly stop.
    Signal(i32),
}

impl CliError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Message { code, message: message.into() }
    }

    /// The exit code, if the error has one of its own.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Message { code, .. } | Self::Silent(code) => Some(*code),
            Self::ClosedPipe | Self::Signal(_) => None,
        }
    }

    /// An error of a request to JetStream.
    pub fn from_request(operation: &str, error: &(dyn Error + 'static)) -> Self {
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(failure) = Self::known(operation, error) {
                return failure;
            }
            source = error.source();
        }
        Self::new(Code::Failed, format!("{operation}: {}", one_line(error)))
    }

    /// The client wraps the server's error in one error type per function.
    fn known(operation: &str, error: &(dyn Error + 'static)) -> Option<Self> {
        use jetstream::context::{
            GetStreamError, GetStreamErrorKind, PublishError, PublishErrorKind, RequestError,
            RequestErrorKind,
        };
        use jetstream::stream::{LastRawMessageError, LastRawMessageErrorKind as Last};
        if let Some(error) = error.downcast_ref::<jetstream::Error>() {
            return Some(Self::from_response(operation, error));
        }
        if let Some(error) = error.downcast_ref::<GetStreamError>()
            && let GetStreamErrorKind::JetStream(error) = error.kind()
        {
            return Some(Self::from_response(operation, &error));
        }
        if let Some(error) = error.downcast_ref::<LastRawMessageError>() {
            return match error.kind() {
                Last::NoMessageFound => Some(Self::no_entry(operation)),
                Last::JetStream(error) => Some(Self::from_response(operation, &error)),
                _ => None,
            };
        }
        if let Some(error) = error.downcast_ref::<RequestError>() {
            return match error.kind() {
                RequestErrorKind::NoResponders => Some(Self::no_jetstream(operation)),
                RequestErrorKind::TimedOut => Some(Self::timed_out(operation)),
                _ => None,
            };
        }
        let error = error.downcast_ref::<PublishError>()?;
        (error.kind() == PublishErrorKind::TimedOut).then(|| Self::timed_out(operation))
    }

    /// An error response of JetStream.
    pub fn from_response(operation: &str, error: &jetstream::Error) -> Self {
        use jetstream::ErrorCode;
        match error.error_code() {
            ErrorCode::STREAM_NOT_FOUND => {
                Self::new(Code::NotFound, format!("{operation}: the bucket does not exist"))
            }
            ErrorCode::NO_MESSAGE_FOUND => Self::no_entry(operation),
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                Self::no_jetstream(operation)
            }
            _ => Self::new(Code::Failed, format!("{operation}: {error}")),
        }
    }

    fn no_entry(operation: &str) -> Self {
        Self::new(Code::NotFound, format!("{operation}: no such entry"))
    }

    pub fn timed_out(operation: &str) -> Self {
        Self::new(Code::Unreachable, format!("{operation}: timed out: {IF_TIMED_OUT}"))
    }

    fn no_jetstream(operation: &str) -> Self {
        let hint = IF_WITHOUT_JETSTREAM;
        Self::new(Code::Unreachable, format!("{operation}: no response from JetStream: {hint}"))
    }
}

/// An error with its causes on one line. A cause that its parent already contains is left out.
pub fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
        source = error.source();
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The kind of a library error, which determines the exit code.
pub trait ExitKind: Copy + fmt::Debug + 'static {
    fn exit_code(&self) -> Code;
}

impl<K: ExitKind> From<lock::Error<K>> for CliError {
    fn from(error: lock::Error<K>) -> Self {
        let code = error.kind().exit_code();
        match error.source().and_then(|source| source.downcast_ref()) {
            Some(AdminFailure::NoJetStream) => {
                Self::new(code, format!("{error}: {IF_WITHOUT_JETSTREAM}"))
            }
            Some(AdminFailure::TimedOut) => Self::new(code, format!("{error}: {IF_TIMED_OUT}")),
            Some(AdminFailure::Refused) => Self::new(Code::Failed, error.to_string()),
            _ => Self::new(code, one_line(&error)),
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { message, .. } => f.write_str(message),
            Self::Silent(code) => write!(f, "{code:?}"),
            Self::ClosedPipe => f.write_str("standard output was closed"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl ExitKind for BucketErrorKind {
    fn exit_code(&self) -> Code {
        match self {
            BucketErrorKind::Missing => Code::NotFound,
            BucketErrorKind::Denied => Code::Denied,
            BucketErrorKind::Unavailable => Code::Unreachable,
            _ => Code::Failed,
        }
    }
}

impl ExitKind for LockErrorKind {
    fn exit_code(&self) -> Code {
        match self {
            LockErrorKind::Denied => Code::Denied,
            LockErrorKind::Missing => Code::NotFound,
            LockErrorKind::Unavailable | LockErrorKind::OutcomeUnknown => Code::Unreachable,
            _ => Code::Failed,
        }
    }
}

impl ExitKind for LockUrlErrorKind {
    fn exit_code(&self) -> Code {
        match self {
            LockUrlErrorKind::Malformed | LockUrlErrorKind::NotBuilt => Code::Usage,
            LockUrlErrorKind::Unavailable => Code::Unreachable,
            LockUrlErrorKind::Denied => Code::Denied,
            LockUrlErrorKind::Missing => Code::NotFound,
            _ => Code::Failed,
        }
    }
}

impl ExitKind for LifeErrorKind {
    fn exit_code(&self) -> Code {
        match self {
            LifeErrorKind::Denied => Code::Denied,
            LifeErrorKind::Misconfigured => Code::Usage,
            LifeErrorKind::PodEnded => Code::NotFound,
            _ => Code::Failed,
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::new(Code::Usage, one_line(&error))
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::new(Code::Failed, one_line(&error))
    }
}
