//! The meaning of etcd's errors.

use std::borrow::Cow;
use std::error::Error;

use tonic::{Code, ConnectError, Status};

use crate::lock::{Effect, LockError, LockErrorKind};
use crate::util::text::{causes, escape_line};

/// The maximum length of a text of a server.
const MAX_MESSAGE_LEN: usize = 200;
/// Errors with which a member refuses a write before it proposes it to the others.
const NOT_PROPOSED: [&str; 4] = [
    "etcdserver: no leader",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
    "etcdserver: too many requests",
];

/// The error of a member that did not respond in time.
pub(super) fn silence(address: &str, effect: Effect) -> LockError {
    LockError::new(effect.lost(), format!("no response from etcd at {address} in time"))
}

/// Whether the request did not leave this process.
pub(super) fn was_not_sent(status: &Status) -> bool {
    causes(status).any(|error| error.is::<ConnectError>())
}

/// Whether the member does not answer, or says that it cannot: another one may. Who leads the
/// cluster is the same for all.
pub(super) fn is_of_member(status: &Status) -> bool {
    may_pass(status) && !status.message().contains("leader changed")
}

/// Whether a request that is repeated may be answered.
pub(super) fn may_pass(status: &Status) -> bool {
    // An error of this process, as of the connection, has a source.
    status.source().is_some()
        || matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded)
        || status.message().contains("learner")
}

/// Whether the cluster does not know the token of the user any more, or requires one by now. A
/// signed token is too old once any user or role has changed.
pub(super) fn is_old_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated
        || status.message().contains("user name is empty")
        || status.message().contains("revision of auth store is old")
}

/// Whether the cluster authenticates nobody.
pub(super) fn needs_no_user(status: &Status) -> bool {
    status.message().contains("authentication is not enabled")
}

/// The text of a server, for people.
pub(super) fn said(text: &str) -> Cow<'_, str> {
    escape_line(text, MAX_MESSAGE_LEN)
}

/// Converts a refusal. `hint`: what to do where the connection was lost, or nothing.
pub(super) fn refused(status: &Status, address: &str, effect: Effect, hint: &str) -> LockError {
    let said = said(status.message());
    let not_proposed = NOT_PROPOSED.iter().any(|text| said.contains(text));
    let (kind, what) = match status.code() {
        _ if was_not_sent(status) => {
            let what = format!("no connection to etcd at {address}");
            return LockError::with_source(LockErrorKind::Unavailable, what, cause(status));
        }
        _ if status.source().is_some() => {
            let what = format!("the connection to etcd at {address} was lost{hint}");
            return LockError::with_source(effect.lost(), what, cause(status));
        }
        _ if not_proposed => {
            (LockErrorKind::Unavailable, format!("etcd at {address} cannot respond: {said}"))
        }
        Code::PermissionDenied => (
            LockErrorKind::Denied,
            format!("etcd at {address} denies it: grant the role readwrite on the prefix"),
        ),
        Code::Unauthenticated => {
            (LockErrorKind::Denied, format!("etcd at {address} refuses the user: {said}"))
        }
        Code::InvalidArgument if said.contains("user name is empty") => {
            (LockErrorKind::Denied, format!("etcd at {address} requires a user"))
        }
        Code::InvalidArgument if said.contains("authentication failed") => {
            (LockErrorKind::Denied, format!("etcd at {address} refuses the user or the password"))
        }
        Code::Unimplemented => (
            LockErrorKind::Misconfigured,
            format!("the server at {address} is no etcd of version 3.4 or later: {said}"),
        ),
        // More than this process decodes, as of many large keys.
        Code::OutOfRange => {
            (effect.lost(), format!("a response of etcd at {address} is too large: {said}"))
        }
        Code::InvalidArgument | Code::FailedPrecondition => {
            (LockErrorKind::Misconfigured, format!("etcd at {address} refuses the request: {said}"))
        }
        // The write that reaches the limit is applied, and refused in words.
        _ if said.contains("database space exceeded") => (
            effect.lost(),
            format!(
                "etcd at {address} accepts no writes, its space is used up: compact, defragment, disarm the alarm"
            ),
        ),
        _ => (effect.lost(), format!("etcd at {address} failed: {said}")),
    };
    LockError::new(kind, what)
}

/// The cause of an error of this process, as text: an error of the transport is not `Clone`.
fn cause(status: &Status) -> String {
    let last = causes(status).skip(1).last();
    let text = last.map_or_else(|| status.message().to_owned(), ToString::to_string);
    said(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_a_write_may_have_been_applied() {
        use LockErrorKind::{Denied, Misconfigured, OutcomeUnknown, Unavailable};
        for (code, message, read, write) in [
            (Code::Unavailable, "etcdserver: request timed out", Unavailable, OutcomeUnknown),
            (Code::Unavailable, "etcdserver: leader changed", Unavailable, OutcomeUnknown),
            (Code::Unavailable, "etcdserver: no leader", Unavailable, Unavailable),
            (Code::ResourceExhausted, "etcdserver: too many requests", Unavailable, Unavailable),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                Unavailable,
                OutcomeUnknown,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: rpc not supported for learner",
                Unavailable,
                Unavailable,
            ),
            (Code::PermissionDenied, "etcdserver: permission denied", Denied, Denied),
            (Code::InvalidArgument, "etcdserver: user name is empty", Denied, Denied),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Denied,
                Denied,
            ),
            (Code::Unimplemented, "unknown service", Misconfigured, Misconfigured),
            (Code::Internal, "x", Unavailable, OutcomeUnknown),
        ] {
            let status = Status::new(code, message);
            let kind = |effect| refused(&status, "h:1", effect, "").kind();
            assert_eq!((kind(Effect::Read), kind(Effect::Write)), (read, write), "{message}");
        }
    }

    /// A member that serves is kept: the next one may be one that hangs.
    #[test]
    fn a_member_is_left_if_another_one_may_answer() {
        for (code, message, leaves, repeats) in [
            (Code::Unavailable, "etcdserver: no leader", true, true),
            (Code::Unavailable, "etcdserver: server stopped", true, true),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", true, true),
            (Code::Unavailable, "etcdserver: leader changed", false, true),
            (Code::ResourceExhausted, "etcdserver: too many requests", false, false),
            (Code::Unauthenticated, "etcdserver: invalid auth token", false, false),
        ] {
            let status = Status::new(code, message);
            assert_eq!((is_of_member(&status), may_pass(&status)), (leaves, repeats), "{message}");
        }
    }
}
