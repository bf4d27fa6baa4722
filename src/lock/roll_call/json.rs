//! Requests and answers as JSON.

use serde::Serialize;

#[cfg(any(feature = "nats", feature = "kubernetes"))]
use super::RollCall;
use super::{CandidateInfo, CoolDownLeft, HandoverAnswer, MAX_SITE_LEN};
use crate::lock::codec::{MAX_IDENTITY_LEN, bounded_duration, ceil_millis, display_identity};

/// The most bytes of a call or an answer that are read.
const MAX_LEN: usize = 6 * 1024;
/// The most bytes of a version.
const MAX_VERSION_LEN: usize = 64;

/// The most bytes of the reason of a refusal or a wait.
const MAX_REASON_LEN: usize = 256;

/// A call or an answer; their keys are strings.
pub(crate) fn to_json(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

/// Reads a call, which anybody may have sent; `None` if it is none.
#[cfg(any(feature = "nats", feature = "kubernetes"))]
pub(crate) fn parse_call(call: &[u8]) -> Option<RollCall> {
    if call.len() > MAX_LEN {
        return None;
    }
    serde_json::from_slice(call).ok()
}

/// Reads an answer, which anybody may have sent; `None` if it is none.
pub(crate) fn parse(answer: &[u8]) -> Option<CandidateInfo> {
    if answer.len() > MAX_LEN {
        return None;
    }
    let info: CandidateInfo = serde_json::from_slice(answer).ok()?;
    Some(CandidateInfo {
        identity: display_identity(&info.identity, MAX_IDENTITY_LEN),
        version: display_identity(&info.version, MAX_VERSION_LEN),
        leader: info.leader.map(|leader| display_identity(&leader, MAX_IDENTITY_LEN)),
        site: info.site.map(|site| display_identity(&site, MAX_SITE_LEN)),
        handover: info.handover.map(|answer| match answer {
            HandoverAnswer::To(to) => HandoverAnswer::To(display_identity(&to, MAX_IDENTITY_LEN)),
            HandoverAnswer::Refused(why) => {
                HandoverAnswer::Refused(display_identity(&why, MAX_REASON_LEN))
            }
        }),
        cool_down: info.cool_down.map(|CoolDownLeft { left_ms, reason }| CoolDownLeft {
            left_ms: ceil_millis(bounded_duration(left_ms)),
            reason: display_identity(&reason, MAX_REASON_LEN),
        }),
        ..info
    })
}
