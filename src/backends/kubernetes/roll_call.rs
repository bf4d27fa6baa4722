//! Roll calls: a call is an annotation of the election's Lease, which all candidates watch already.
//!
//! The answers are annotations of a second Lease, which only the caller watches. So an answer
//! wakes no candidate, the answers of many cost the leader no conflict, and a Role can name both.

use std::time::Duration;

use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;

use super::codec::{ANSWERS_OF, CALL};
use super::record::{RecordLocation, annotation};
use super::resource::{MAX_NAME_LEN, check_object_name};
use super::store::ResourceLockState;
use crate::lock::codec::parse_hex;
use crate::lock::roll_call::{MAX_ANSWERS, distinct, no_calls, parse, parse_call, to_json};
use crate::lock::{CallId, CandidateInfo, CandidateRequest, LockError, RollCall};
use crate::time::timer::deadline_after;
use crate::util::since_unix_epoch;

/// The prefix of annotations with an answer; the call and the candidate follow.
const ANSWER: &str = "incumbent/answer.";
/// What the name of the Lease with the answers adds to that of the election's object.
const SUFFIX: &str = "-roll-call";
/// The timeout of each step of a call: calling, and then reading the answers and removing them. A
/// call that takes longer than [`RollCall::MARGIN`] loses the answers that it has.
const STEP_TIMEOUT: Duration = Duration::from_millis(1_900);
/// How long after the end of a call its answers are kept, if its caller did not remove them. Wall
/// clocks may differ by as much.
const KEPT_SECONDS: u64 = 90;

/// The calls that a watch on an election's object has seen.
#[derive(Debug, Default)]
pub(super) struct SeenCalls {
    last: Option<CallId>,
}

impl SeenCalls {
    /// The call of an object as the watch found it, which is old: it is not to be answered.
    pub(super) fn found(&mut self, object: &Value) {
        self.changed(object);
    }

    /// The call of an object that was changed; `None` if it was seen before, or is none. A renewal
    /// cannot bring back an earlier call, because it replaces the newest version only.
    pub(super) fn changed(&mut self, object: &Value) -> Option<RollCall> {
        let call = parse_call(annotation(object, CALL)?.as_bytes())?;
        let is_new = self.last.replace(call.id) != Some(call.id);
        is_new.then_some(call)
    }
}

/// The id of a call: when it ends, by the caller's wall clock, and a random number.
fn new_id(within: Duration) -> CallId {
    let ends = now_seconds().saturating_add(within.as_secs());
    let ends = u32::try_from(ends).unwrap_or(u32::MAX);
    CallId(u64::from(ends) << 32 | u64::from(fastrand::u32(..)))
}

fn now_seconds() -> u64 {
    since_unix_epoch().as_secs()
}

/// Whether the call of an answer ended long ago. A clock that is wrong costs a call its answers,
/// and no more.
fn is_left_over(call: Option<CallId>, now: u64) -> bool {
    call.is_none_or(|CallId(number)| now.abs_diff(number >> 32) > KEPT_SECONDS)
}

/// The answers that an object carries: the call, the key, and the value.
fn answers_in(object: &Value) -> impl Iterator<Item = (Option<CallId>, &str, &Value)> {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    annotations.filter_map(|(key, value)| {
        let call = key.strip_prefix(ANSWER)?.split('.').next();
        Some((call.and_then(parse_hex).map(CallId), key.as_str(), value))
    })
}

/// The answers to one call.
fn answers_to(object: &Value, id: CallId) -> Vec<CandidateInfo> {
    let answers = answers_in(object).filter(|(call, ..)| *call == Some(id)).take(MAX_ANSWERS);
    distinct(answers.filter_map(|(.., value)| parse(value.as_str()?.as_bytes())))
}

impl ResourceLockState {
    /// The name of the Lease that carries the answers.
    fn answers_name(&self, object: &str) -> String {
        format!("{object}{SUFFIX}")
    }

    /// Checks that there can be a Lease for the answers.
    pub(super) fn check_answers_name(&self, name: &str) -> Result<(), String> {
        let answers = self.answers_name(self.object_of(name));
        if !self.carries_calls() || check_object_name(&answers).is_ok() {
            return Ok(());
        }
        let longest = MAX_NAME_LEN - SUFFIX.len();
        Err(format!(
            "the Lease has a name of more than {longest} characters: NAME{SUFFIX}, which carries the answers to roll calls, would be too long"
        ))
    }

    /// Candidates of the other kinds of objects hear no calls.
    pub(super) fn carries_calls(&self) -> bool {
        self.location == RecordLocation::Spec
    }

    pub(super) async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        if !self.carries_calls() {
            return no_calls();
        }
        let object = self.object_of(name);
        let answers = self.answers_name(object);
        let call = RollCall { id: new_id(within), within, request };
        let deadline = deadline_after(STEP_TIMEOUT);
        if !self.prepare_answers(object, &answers, deadline).await? {
            return Ok(Vec::new());
        }
        match self.objects.annotate(object, &json!({ CALL: to_json(&call) }), deadline).await {
            Ok(_) => {}
            Err(failure) if failure.is_absence_of(object) => return Ok(Vec::new()),
            Err(failure) => {
                return Err(self.objects.lock_error(failure, object, "roll call", "patch", false));
            }
        }
        let end = deadline_after(within);
        match call.request.has_one_answer() {
            true => self.until_answered(&answers, &call, end).await,
            false => sleep_until(end).await,
        }
        let deadline = deadline_after(STEP_TIMEOUT);
        let read = self.objects.get(&answers, deadline).await;
        let read = read
            .map_err(|failure| self.objects.lock_error(failure, &answers, "read", "get", false))?;
        let Some(read) = read else { return Ok(Vec::new()) };
        self.remove_answers(&answers, call.id, &read, deadline).await;
        Ok(answers_to(&read, call.id))
    }

    /// Creates the Lease for answers, unless there is one. `false`: there is no election.
    async fn prepare_answers(
        &self,
        object: &str,
        answers: &str,
        deadline: Instant,
    ) -> Result<bool, LockError> {
        let unread = |failure, name| self.objects.lock_error(failure, name, "read", "get", false);
        let found = self.objects.get(answers, deadline).await;
        if found.map_err(|failure| unread(failure, answers))?.is_some() {
            return Ok(true);
        }
        let election = self.objects.get(object, deadline).await;
        let Some(election) = election.map_err(|failure| unread(failure, object))? else {
            return Ok(false);
        };
        // It goes with the election. Without a holder no candidate takes it for an election.
        let owner = json!({
            "apiVersion": self.api_version,
            "kind": self.objects.kind(),
            "name": object,
            "uid": election.pointer("/metadata/uid"),
        });
        let new = json!({
            "apiVersion": self.api_version,
            "kind": self.objects.kind(),
            "metadata": {
                "name": answers,
                "annotations": { ANSWERS_OF: object },
                "ownerReferences": [owner],
            },
        });
        match self.objects.create(&new, deadline).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code() == 409 => Ok(true), // another call has created it
            Err(failure) => {
                Err(self.objects.lock_error(failure, answers, "create", "create", false))
            }
        }
    }

    /// Waits until the leader has answered, at most until `end`.
    async fn until_answered(&self, answers: &str, call: &RollCall, end: Instant) {
        if let Ok(mut events) = self.objects.watch(answers, None, end).await {
            while let Ok(Some(Ok(event))) = timeout_at(end, events.next()).await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && answers_to(&object, call.id)
                        .iter()
                        .any(|info| call.request.is_answered_by(info))
                {
                    return;
                }
            }
        }
        sleep_until(end).await; // without the permission to watch, or with a watch that ended
    }

    /// Removes the answers to this call, and those that others left over. An answer that comes even
    /// later waits for the next call.
    async fn remove_answers(&self, answers: &str, id: CallId, read: &Value, deadline: Instant) {
        let now = now_seconds();
        let over =
            answers_in(read).filter(|(call, ..)| *call == Some(id) || is_left_over(*call, now));
        let over: Map<_, _> = over.map(|(_, key, _)| (key.to_owned(), Value::Null)).collect();
        if over.is_empty() {
            return;
        }
        if let Err(failure) = self.objects.annotate(answers, &Value::Object(over), deadline).await {
            debug!(object = %answers, ?failure, "the answers to a roll call stay");
        }
    }

    pub(super) async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        let RecordLocation::Spec = self.location else { return Ok(()) };
        let answers = self.answers_name(self.object_of(name));
        let key = format!("{ANSWER}{}.{}", call.id, info.nonce);
        let answer = json!({ key: to_json(info) });
        match self.objects.annotate(&answers, &answer, deadline_after(STEP_TIMEOUT)).await {
            Ok(_) => Ok(()),
            Err(failure) => {
                Err(self.objects.lock_error(failure, &answers, "write", "patch", false))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Nonce, Successor};

    const ID: &str = "6abcdef000000001";

    fn lease(annotations: Value) -> Value {
        json!({ "metadata": { "annotations": annotations } })
    }

    fn calling(id: &str) -> Value {
        let call = json!({ "id": id, "within_ms": u64::MAX, "request": { "hand_over": "any" } });
        lease(json!({ CALL: call.to_string() }))
    }

    #[test]
    fn a_call_is_answered_once_and_never_if_it_is_old() {
        let mut seen = SeenCalls::default();
        seen.found(&calling(ID));
        assert_eq!(seen.changed(&calling(ID)), None, "it was there before");
        let next = "6abcdef000000002";
        let call = seen.changed(&calling(next)).expect("a new call");
        assert_eq!((&*call.id.to_string(), call.within), (next, RollCall::MAX_WITHIN));
        assert_eq!(call.request, CandidateRequest::HandOver(Successor::Any));
        assert_eq!(seen.changed(&calling(next)), None, "a renewal keeps it");
        assert_eq!(seen.changed(&lease(json!({}))), None, "a renewal removed it");
        assert_eq!(seen.changed(&calling(next)), None);
    }

    #[test]
    fn what_is_no_call_is_ignored() {
        let mut seen = SeenCalls::default();
        let long =
            json!({ "id": ID, "within_ms": 1, "request": "identify", "x": "x".repeat(9000) });
        for text in [
            "",
            "[[[[",
            &long.to_string(),
            r#"{"id":"6abcdef000000001","within_ms":-1}"#,
            r#"{"id":"6abcdef000000001","within_ms":1,"request":"explode"}"#,
            r#"{"id":"6abcdef00000000/","within_ms":1}"#,
            r#"{"id":"1","within_ms":1}"#,
        ] {
            assert_eq!(seen.changed(&lease(json!({ CALL: text }))), None, "{text}");
        }
        assert_eq!(seen.changed(&lease(json!({ CALL: 7 }))), None);
        assert_eq!(seen.changed(&json!("junk")), None);
        let plain = json!({ CALL: r#"{"id":"6abcdef000000001","within_ms":1}"# });
        let call = seen.changed(&lease(plain)).expect("a call");
        assert_eq!(call.request, CandidateRequest::Identify);
    }

    #[test]
    fn answers_of_other_calls_and_junk_do_not_count() {
        let answer = |identity: &str| to_json(&CandidateInfo::new(identity, Nonce(1)));
        let object = lease(json!({
            format!("{ANSWER}{ID}.1"): answer("x\u{1b}[2J"),
            format!("{ANSWER}{ID}.2"): "junk",
            format!("{ANSWER}{ID}.3"): answer(&"y".repeat(9_000)),
            format!("{ANSWER}{ID}.4"): 7,
            format!("{ANSWER}6abcdef000000002.1"): answer("other"),
            "incumbent/mark": answer("mark"),
        }));
        let found = answers_to(&object, CallId(0x6abc_def0_0000_0001));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(&*only.identity, "x [2J");
    }

    #[test]
    fn answers_are_left_over_when_their_call_ended_long_ago() {
        let now = now_seconds();
        let id = Some(new_id(RollCall::MAX_WITHIN));
        assert!(!is_left_over(id, now));
        assert!(!is_left_over(id, now + 60));
        assert!(is_left_over(id, now + 200));
        let keys = ["", "é", "zzzzzzzz", "ffffffffffffffff.1", "6abcdef00000001.1"];
        let junk: Map<_, _> =
            keys.map(|key| (format!("{ANSWER}{key}"), Value::Null)).into_iter().collect();
        let junk = lease(Value::Object(junk));
        assert_eq!(answers_in(&junk).filter(|(call, ..)| is_left_over(*call, now)).count(), 5);
    }
}
