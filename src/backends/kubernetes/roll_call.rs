//! Roll calls: a call is an annotation of the election's Lease, which all candidates watch already.
//!
//! The answers are annotations of a second Lease, which only the caller watches. So an answer
//! wakes no candidate, the answers of many cost the leader no conflict, and a Role can name both.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::StreamExt;
use kube::core::WatchEvent;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;

use super::codec::{ANSWERS_OF, CALL};
use super::record::{RecordLocation, annotation};
use super::resource::check_object_name;
use super::state::ResourceLockState;
use crate::lock::roll_call::{MAX_ANSWERS, distinct, no_calls, parse, to_json};
use crate::lock::{CandidateInfo, CandidateRequest, LockError, LockErrorKind, RollCall};
use crate::time::timer::deadline_after;

/// The prefix of annotations with an answer; the call and the candidate follow.
const ANSWER: &str = "incumbent/answer.";
/// What the name of the Lease with the answers adds to that of the election's object.
const SUFFIX: &str = "-roll-call";
/// The most bytes of a call that are read.
const MAX_CALL_LEN: usize = 6 * 1024;
/// The timeout of each step of a call: calling, reading the answers, removing them.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after the end of a call its answers are kept, if its caller did not remove them. Wall
/// clocks may differ by as much.
const KEPT_SECONDS: u64 = 90;

/// The value of the annotation that calls the roll.
#[derive(Debug, Serialize, Deserialize)]
struct Call {
    id: String,
    within_ms: u64,
    #[serde(default)]
    request: CandidateRequest,
}

/// The calls that a watch on an election's object has seen.
#[derive(Debug, Default)]
pub(super) struct SeenCalls {
    last: Option<String>,
}

impl SeenCalls {
    /// The call of an object as the watch found it, which is old: it is not to be answered.
    pub(super) fn found(&mut self, object: &Value) {
        self.changed(object);
    }

    /// The call of an object that was changed; `None` if it was seen before, or is none. A renewal
    /// cannot bring back an earlier call, because it replaces the newest version only.
    pub(super) fn changed(&mut self, object: &Value) -> Option<RollCall> {
        let text = annotation(object, CALL).filter(|text| text.len() <= MAX_CALL_LEN)?;
        let Call { id, within_ms, request } = serde_json::from_str(text).ok()?;
        if !is_id(&id) || self.last.as_ref() == Some(&id) {
            return None;
        }
        let call = RollCall::new(id.as_str(), within_ms, request);
        self.last = Some(id);
        Some(call)
    }
}

/// The id of a call: when it ends, by the caller's wall clock, and a random number.
fn new_id(within: Duration) -> String {
    let ends = now_seconds().saturating_add(within.as_secs());
    format!("{:08x}{:08x}", u32::try_from(ends).unwrap_or(u32::MAX), fastrand::u32(..))
}

fn is_id(id: &str) -> bool {
    id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether the call of this answer ended long ago. A clock that is wrong costs a call its answers,
/// and no more.
fn is_left_over(answer: &str, now: u64) -> bool {
    let ends = answer.get(..8).and_then(|ends| u64::from_str_radix(ends, 16).ok());
    ends.is_none_or(|ends| now.abs_diff(ends) > KEPT_SECONDS)
}

/// The answers that an object carries: the key without its prefix, and the value.
fn answers_in(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    annotations.filter_map(|(key, value)| Some((key.strip_prefix(ANSWER)?, value)))
}

/// The answers to one call.
fn answers_to(object: &Value, id: &str) -> Vec<CandidateInfo> {
    let answers = answers_in(object).filter(|(key, _)| key.starts_with(id)).take(MAX_ANSWERS);
    distinct(answers.filter_map(|(_, value)| parse(value.as_str()?.as_bytes())))
}

impl ResourceLockState {
    /// The name of the Lease that carries the answers.
    fn answers_name(&self, object: &str) -> Result<String, LockError> {
        let name = format!("{object}{SUFFIX}");
        check_object_name(&name).map(|()| name).map_err(|rule| {
            LockError::new(LockErrorKind::Misconfigured, format!("no roll calls: {rule}"))
        })
    }

    /// Candidates of the other kinds of objects hear no calls.
    pub(super) fn carries_messages(&self) -> bool {
        self.place == RecordLocation::Spec
    }

    pub(super) async fn call_roll(
        &self,
        name: &str,
        request: CandidateRequest,
        within: Duration,
    ) -> Result<Vec<CandidateInfo>, LockError> {
        if !self.carries_messages() {
            return no_calls();
        }
        let object = self.object_of(name);
        let answers = self.answers_name(object)?;
        let id = new_id(within);
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let call = Call { id: id.clone(), within_ms, request: request.clone() };
        let call = serde_json::to_string(&call).unwrap_or_default(); // its keys are strings
        let by = deadline_after(STEP_TIMEOUT);
        if !self.prepare_answers(object, &answers, by).await? {
            return Ok(Vec::new());
        }
        match self.objects.annotate(object, &json!({ CALL: call }), by).await {
            Ok(_) => {}
            Err(failure) if failure.is_absence_of(object) => return Ok(Vec::new()),
            Err(failure) => {
                return Err(self.objects.lock_error(failure, object, "roll call", "patch", false));
            }
        }
        let end = deadline_after(within);
        match request.has_one_answer() {
            true => self.until_answered(&answers, &id, &request, end).await,
            false => sleep_until(end).await,
        }
        let read = self.objects.get(&answers, deadline_after(STEP_TIMEOUT)).await;
        let read = read
            .map_err(|failure| self.objects.lock_error(failure, &answers, "read", "get", false))?;
        let Some(read) = read else { return Ok(Vec::new()) };
        self.remove_answers(&answers, &id, &read).await;
        Ok(answers_to(&read, &id))
    }

    /// Creates the Lease for answers, unless there is one. `false`: there is no election.
    async fn prepare_answers(
        &self,
        object: &str,
        answers: &str,
        by: Instant,
    ) -> Result<bool, LockError> {
        let unread = |failure, name| self.objects.lock_error(failure, name, "read", "get", false);
        let found = self.objects.get(answers, by).await;
        if found.map_err(|failure| unread(failure, answers))?.is_some() {
            return Ok(true);
        }
        let election = self.objects.get(object, by).await;
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
        match self.objects.create(&new, by).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code() == 409 => Ok(true), // another call has created it
            Err(failure) => {
                Err(self.objects.lock_error(failure, answers, "create", "create", false))
            }
        }
    }

    /// Waits until the leader has answered, at most until `end`.
    async fn until_answered(
        &self,
        answers: &str,
        id: &str,
        request: &CandidateRequest,
        end: Instant,
    ) {
        if let Ok(mut events) = self.objects.watch(answers, None, end).await {
            while let Ok(Some(Ok(event))) = timeout_at(end, events.next()).await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && answers_to(&object, id).iter().any(|info| request.is_answered_by(info))
                {
                    return;
                }
            }
        }
        sleep_until(end).await; // without the right to watch, or with a watch that ended
    }

    /// Removes the answers to this call, and those that others left over. An answer that comes even
    /// later waits for the next call.
    async fn remove_answers(&self, answers: &str, id: &str, read: &Value) {
        let now = now_seconds();
        let over =
            answers_in(read).filter(|(key, _)| key.starts_with(id) || is_left_over(key, now));
        let over: Map<_, _> =
            over.map(|(key, _)| (format!("{ANSWER}{key}"), Value::Null)).collect();
        if over.is_empty() {
            return;
        }
        let by = deadline_after(STEP_TIMEOUT);
        if let Err(failure) = self.objects.annotate(answers, &Value::Object(over), by).await {
            debug!(object = %answers, ?failure, "the answers to a roll call stay");
        }
    }

    pub(super) async fn answer_roll_call(
        &self,
        name: &str,
        call: &RollCall,
        info: &CandidateInfo,
    ) -> Result<(), LockError> {
        let RecordLocation::Spec = self.place else { return Ok(()) };
        let answers = self.answers_name(self.object_of(name))?;
        if !is_id(&call.reply_to) {
            return Err(LockError::new(LockErrorKind::Misconfigured, "no call of this lock"));
        }
        let key = format!("{ANSWER}{}.{}", call.reply_to, info.nonce);
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
        assert_eq!((&*call.reply_to, call.within), (next, RollCall::MAX_WITHIN));
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
        let found = answers_to(&object, ID);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(&*only.identity, "x [2J");
    }

    #[test]
    fn answers_are_left_over_when_their_call_ended_long_ago() {
        let now = now_seconds();
        let id = new_id(RollCall::MAX_WITHIN);
        assert!(is_id(&id));
        assert!(!is_left_over(&format!("{id}.1"), now));
        assert!(!is_left_over(&id, now + 60));
        assert!(is_left_over(&id, now + 200));
        for junk in ["", "é", "zzzzzzzz", "ffffffffffffffff.1"] {
            assert!(is_left_over(junk, now), "{junk}");
        }
    }
}
