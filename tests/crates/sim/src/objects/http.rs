//! Requests to a store over HTTP, and its replies.

use std::fmt;
use std::time::Duration;

use incumbent::lock::Revision;

use super::store::{Body, Object, Said, Version};
use crate::server::Time;

/// One HTTP request.
#[derive(Debug, Clone)]
pub enum Asked {
    Get,
    Put { over: Option<Version>, body: Body, newest: Option<Revision>, sent: Time },
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// What a read finds.
    Found(Option<Object>),
    /// 200.
    Stored(Version),
    /// 412, 409.
    Refused,
    /// 429, 503.
    Busy { status: u16, retry_after: Option<Duration> },
    /// 403.
    Denied,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("GET"),
            Self::Put { over, body, .. } => {
                let over = over.map_or_else(|| "nothing".to_owned(), |over| format!("{over:?}"));
                write!(f, "PUT of number {} over {over}", body.number)
            }
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(None) => f.write_str("404"),
            Self::Found(Some(Object { version, body })) => {
                write!(f, "{version:?}, number {}", body.number)?;
                match &body.said {
                    Said::Held(identity, mark, _) => {
                        write!(f, " of {identity} (write {})", mark.write.number)
                    }
                    Said::Released { left, .. } => write!(f, ", released with {left:?} left"),
                    Said::Named(identity) => write!(f, " of {identity}"),
                    Said::Nobody => f.write_str(" of nobody"),
                    Said::Junk => f.write_str(", junk"),
                }
            }
            Self::Stored(version) => write!(f, "200, {version:?}"),
            Self::Refused => f.write_str("412"),
            Self::Busy { status, retry_after } => {
                write!(f, "{status}, again after {retry_after:?}")
            }
            Self::Denied => f.write_str("403"),
        }
    }
}
