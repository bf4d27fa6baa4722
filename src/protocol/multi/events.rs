//! What an event means for one of several locks.

use crate::lock::LockErrorKind;
use crate::protocol::types::{Event, Response};

/// What a member receives when the joint term ends. A successor is named on the first required lock
/// alone, which decides who takes the others: on those its number is another one.
pub(super) fn leave_of(is_first: bool, leave: &Event) -> Event {
    match leave {
        Event::HandOver { .. } if !is_first => Event::Resign,
        leave => leave.clone(),
    }
}

/// Whether the lock refuses a request, which another try soon will not fix.
pub(super) fn is_refusal(event: &Event) -> bool {
    let Event::Response {
        response: Response::Read(Err(failure)) | Response::Written(Err(failure)),
        ..
    } = event
    else {
        return false;
    };
    matches!(failure.kind, LockErrorKind::Denied | LockErrorKind::Misconfigured)
}
