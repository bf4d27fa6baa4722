//! Responses of JetStream.

use std::time::Duration;

use bolero::TypeGenerator;
use serde::de::DeserializeOwned;

use super::hostile::{FEW, Mutations, Text};
use crate::backends::nats::api::{Ack, ApiFailure, decode};
use crate::backends::nats::config::BucketConfig;
use crate::backends::nats::events::denied_subject;
use crate::backends::nats::roll_call::answer_subject;
use crate::backends::nats::stream::{StoredMessage, StreamFacts, StreamInfo};
use crate::backends::nats::time::since_epoch;
use crate::lock::RollCall;
use crate::lock::roll_call::parse_call;

/// A server's response about a bucket, shortened.
const INFO: &str = r#"{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"offset":0,"limit":0,
"config":{"name":"KV_B","subjects":["$KV.B.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,
"max_age":60000000000,"max_msgs_per_subject":1,"max_msg_size":-1,"discard":"new","storage":"file","num_replicas":1,
"duplicate_window":60000000000,"republish":{"src":"$KV.B.>","dest":"incumbent.B.>"},"sealed":false,"deny_delete":true,
"allow_direct":true,"mirror_direct":false,"allow_msg_ttl":true,"subject_delete_marker_ttl":60000000000,
"metadata":{"_nats.level":"5","_nats.req.level":"1","_nats.ver":"2.15.1"}},"created":"2026-11-21T08:00:00.123456789Z",
"state":{"messages":0,"bytes":120,"first_seq":7,"first_ts":"2026-11-21T08:10:00Z","last_seq":7,
"last_ts":"2026-11-21T08:10:00Z","num_subjects":1,"subjects":{"$KV.B.my_app":1}},"did_create":true,
"cluster":{"name":"C","leader":"n1"},"ts":"2026-11-21T09:00:00.5+01:00"}"#;

const MESSAGE: &str = r#"{"subject":"$KV.B.my_app","seq":7,"hdrs":"TkFUUy8xLjANCg0K","data":"aG9zdA==","time":"2026-11-21T08:10:00Z"}"#;

const REFUSAL: &str = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"KV_B","seq":0}"#;

/// A value similar to JSON, with the words of a response.
#[derive(Debug, Clone, TypeGenerator)]
enum Json {
    Text(Text),
    Quoted(Text),
    Number(i64),
    Null,
    Of(u8),
    Deep(u8),
}

impl Json {
    fn get(&self) -> String {
        match self {
            Self::Text(text) => text.get(),
            Self::Quoted(text) => serde_json::Value::String(text.get()).to_string(),
            Self::Number(number) => number.to_string(),
            Self::Null => "null".to_owned(),
            Self::Of(kind) => {
                ["{}", "[]", INFO, MESSAGE, REFUSAL, "1.5"][usize::from(*kind) % 6].to_owned()
            }
            Self::Deep(depth) => "[".repeat(usize::from(*depth)) + &"]".repeat(usize::from(*depth)),
        }
    }
}

/// A replacement of the nth value.
#[derive(Debug, Clone, TypeGenerator)]
struct Swap {
    nth: u8,
    value: Json,
}

/// Returns a response with the value of one field replaced.
fn swapped(answer: &str, swap: &Swap) -> String {
    let places: Vec<_> = answer.match_indices("\":").map(|(at, _)| at + 2).collect();
    let at = places[usize::from(swap.nth) % places.len()];
    let (head, tail) = answer.split_at(at);
    let end = end_of_value(tail);
    format!("{head}{}{}", swap.value.get(), &tail[end..])
}

fn end_of_value(text: &str) -> usize {
    let (mut depth, mut quoted) = (0, false);
    for (at, char) in text.char_indices() {
        match char {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '{' | '[' => depth += 1,
            ',' if depth == 0 => return at,
            '}' | ']' if depth == 0 => return at,
            '}' | ']' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Checks that the text of a failure is fit for a log.
fn check_text(failure: &ApiFailure) {
    let words = match failure {
        ApiFailure::Server(error) => error.to_string(),
        ApiFailure::Malformed(error) => error.to_string(),
        ApiFailure::Request(_) => panic!("{failure:?}"),
    };
    assert!(words.len() < 1_000, "{} bytes", words.len());
    assert!(!words.chars().any(char::is_control), "{words:?}");
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Option<T> {
    match decode(answer) {
        Ok(read) => Some(read),
        Err(failure) => {
            check_text(&failure);
            None
        }
    }
}

fn decode_all(answer: &[u8]) {
    let _ = read::<StoredMessage>(answer);
    if let Some(Ok(sequence)) = read::<Ack>(answer).map(|ack| ack.sequence_in("B")) {
        assert!(sequence > 0);
    }
    let Some(info) = read::<StreamInfo>(answer) else { return };
    let config = BucketConfig::new("B");
    match StreamFacts::check(&config, &info) {
        Ok(facts) => {
            let lease = facts.lease;
            assert!(
                (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&lease),
                "{lease:?}"
            );
            let last = &info.state.last_ts;
            if info.state.messages == 0 && !last.starts_with("0001") && since_epoch(last).is_none()
            {
                assert!(last.is_empty() || !facts.emptiness_proves(&info), "{last:?}");
            }
            let _ =
                (facts.emptiness_proves(&info), facts.expiry(), facts.config.max_identity_len());
        }
        Err(refusal) => assert!(refusal.to_string().len() < 1_000),
    }
    let _ = (info.config.marker_ttl(), info.config.api_level(), info.config.republished_under("B"));
}

#[test]
fn any_response_is_decoded_or_refused() {
    bolero::check!().with_iterations(FEW).with_type::<Json>().for_each(|json| {
        decode_all(json.get().as_bytes());
    });
}

#[test]
fn response_with_another_value_is_decoded_or_refused() {
    bolero::check!().with_iterations(FEW).with_type::<Swap>().for_each(|swap| {
        for answer in [INFO, MESSAGE, REFUSAL] {
            decode_all(swapped(answer, swap).as_bytes());
        }
    });
}

#[test]
fn damaged_response_is_decoded_or_refused() {
    bolero::check!().with_iterations(FEW).with_type::<Mutations>().for_each(|mutations| {
        for answer in [INFO, MESSAGE, REFUSAL] {
            let mut bytes = answer.as_bytes().to_vec();
            mutations.apply(&mut bytes);
            decode_all(&bytes);
        }
    });
}

#[test]
fn any_permission_error_is_parsed_or_ignored() {
    type Input = (bool, Text, Mutations);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(
        |(subscribes, text, mutations)| {
            let verb = if *subscribes { "Subscription to" } else { "Publish to" };
            let mut bytes =
                format!("Permissions Violation for {verb} \"{}\"", text.get()).into_bytes();
            mutations.apply(&mut bytes);
            let _ = denied_subject(&String::from_utf8_lossy(&bytes));
        },
    );
}

/// A call, which anybody who may call writes.
const CALL: &str = r#"{"id":"00000000000000ff","within_ms":18446744073709551615,"request":{"hand_over":{"site":"x"}}}"#;

#[test]
fn any_call_is_answered_below_its_election_or_ignored() {
    type Input = (Swap, Mutations);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(|(swap, mutations)| {
        let mut damaged = CALL.as_bytes().to_vec();
        mutations.apply(&mut damaged);
        for call in [swapped(CALL, swap).as_bytes(), &damaged] {
            let Some(call) = parse_call(call) else { continue };
            assert!(call.within <= RollCall::MAX_WITHIN);
            let subject = answer_subject("B", "my_app", call.id);
            let id = subject.strip_prefix("incumbent-answer.B.my_app.").expect("its subject");
            assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        }
    });
}
