//! Requests and answers as JSON, and the answers to a call as they arrive.

use serde::Serialize;

use super::{
    CandidateInfo, CandidateRequest, CoolDownLeft, HandoverAnswer, MAX_ANSWERS, MAX_SITE_LEN,
    RollCall, distinct,
};
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

/// Collects the answers to a call, which anybody may send.
pub(crate) struct Answers {
    request: CandidateRequest,
    found: Vec<CandidateInfo>,
}

impl Answers {
    pub(crate) fn to(request: CandidateRequest) -> Self {
        Self { request, found: Vec::new() }
    }

    /// Takes an answer, unless it is none. Returns whether no further one is awaited.
    pub(crate) fn take(&mut self, answer: &[u8]) -> bool {
        let info = parse(answer).filter(|_| self.found.len() < MAX_ANSWERS);
        let complete = info.as_ref().is_some_and(|info| self.request.is_answered_by(info));
        self.found.extend(info);
        complete
    }

    /// The last answer of each candidate.
    pub(crate) fn into_vec(self) -> Vec<CandidateInfo> {
        distinct(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{
        CandidateRequest, HandoverAnswer, MemberLoad, Nonce, Pause, Readiness, Role, Successor,
        TakeRequest, Token,
    };

    /// Candidates of other releases read them: a name that is changed here is renamed for serde.
    #[test]
    fn wire_format_of_requests_is_that_of_earlier_releases() {
        let nonce = Nonce(0xab);
        let load = MemberLoad::new(4, 1);
        let take = TakeRequest { by: nonce, identity: "host-1".into(), load };
        let requests = [
            (CandidateRequest::Identify, r#""identify""#),
            (CandidateRequest::WhoCanSucceed(Successor::Any), r#"{"succeed":"any"}"#),
            (
                CandidateRequest::WhoCanSucceed(Successor::Candidate(nonce)),
                r#"{"succeed":{"candidate":"00000000000000ab"}}"#,
            ),
            (
                CandidateRequest::HandOver(Successor::Identity("host-1".into())),
                r#"{"hand_over":{"identity":"host-1"}}"#,
            ),
            (
                CandidateRequest::HandOver(Successor::Site("eu".into())),
                r#"{"hand_over":{"site":"eu"}}"#,
            ),
            (
                CandidateRequest::Prefer { by: nonce, priority: 7 },
                r#"{"prefer":{"by":"00000000000000ab","priority":7}}"#,
            ),
            (
                CandidateRequest::Take(take),
                r#"{"take":{"by":"00000000000000ab","identity":"host-1","load":{"shards":4,"load":0,"weight":1,"max":null,"resizing":null}}}"#,
            ),
            (
                CandidateRequest::Pause(Pause { until_unix_ms: 1 }),
                r#"{"pause":{"until_unix_ms":1}}"#,
            ),
        ];
        for (request, text) in requests {
            assert_eq!(to_json(&request), text);
            let call = format!(r#"{{"id":"0000000000000001","within_ms":250,"request":{text}}}"#);
            let read = parse_call(call.as_bytes());
            assert_eq!(read.as_ref().map(|call| &call.request), Some(&request), "{text}");
            assert_eq!(to_json(&read.unwrap()), call);
        }
    }

    #[test]
    fn wire_format_of_answers_is_that_of_earlier_releases() {
        let answer = CandidateInfo {
            role: Role::CoolingDown,
            version: "1.2.3".into(),
            token: Some(Token(5)),
            readiness: Readiness::Cordoned,
            handover: Some(HandoverAnswer::Refused("busy".into())),
            cool_down: Some(CoolDownLeft { left_ms: 3, reason: "a new lock".into() }),
            ..CandidateInfo::new("host-1", Nonce(0xab))
        };
        let text = r#"{"identity":"host-1","nonce":"00000000000000ab","role":"cooling_down","priority":0,"version":"1.2.3","since_unix_ms":0,"leader":null,"token":5,"site":null,"standing":"aside","handover":{"refused":"busy"},"load":null,"cool_down":{"left_ms":3,"reason":"a new lock"}}"#;
        assert_eq!(to_json(&answer), text);
        assert_eq!(parse(text.as_bytes()), Some(answer));
    }
}
