use super::*;

fn api() -> Api {
    // Never connects: the tests use only its error texts.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let client = runtime.block_on(options.connect("nats://127.0.0.1:1")).unwrap();
    Api::new(client.into(), &BucketConfig::new("B"))
}

#[test]
fn error_10164_is_a_conflict() {
    let api = api();
    for (err_code, kind) in [
        (10071, LockErrorKind::Conflict),
        (10164, LockErrorKind::Conflict),
        (10054, LockErrorKind::Misconfigured),
        (10165, LockErrorKind::Misconfigured),
        (10166, LockErrorKind::Unavailable),
        (10059, LockErrorKind::Unavailable),
        (10077, LockErrorKind::Unavailable),
        (10008, LockErrorKind::Unavailable),
        (99999, LockErrorKind::Unavailable),
    ] {
        let answer = format!(
            r#"{{"error":{{"code":400,"err_code":{err_code},"description":"no"}},"stream":"KV_B","seq":0}}"#
        );
        let failure = decode::<Ack>(answer.as_bytes()).unwrap_err();
        assert_eq!(api.lock_error(failure, "write of a", Effect::Write).kind(), kind, "{err_code}");
    }
}

#[test]
fn malformed_response_leaves_the_outcome_unknown() {
    let api = api();
    let ack = decode::<Ack>(br#"{"stream":"KV_B","seq":7,"later":{"words":[]}}"#).unwrap();
    assert_eq!(ack.sequence_in("B").unwrap(), 7);
    for answer in ["", "{", "[]", "7", "null", r#"{"seq":"x"}"#, r#"{"error":7}"#, "\u{0}"] {
        let failure = decode::<Ack>(answer.as_bytes()).unwrap_err();
        assert_eq!(
            api.lock_error(failure, "write of a", Effect::Write).kind(),
            LockErrorKind::OutcomeUnknown
        );
    }
}

#[test]
fn long_server_texts_are_truncated() {
    let junk = "\u{1b}\n".repeat(1 << 19);
    let error = serde_json::json!({ "error": { "description": junk } });
    for answer in [error, serde_json::json!({ "seq": junk })] {
        let failure = decode::<Ack>(answer.to_string().as_bytes()).unwrap_err();
        let error = api().lock_error(failure, "write of a", Effect::Write);
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let words = format!("{error}: {}", source.unwrap_or_default());
        assert!(words.len() < 500 && !words.contains(char::is_control), "{} bytes", words.len());
    }
}

#[test]
fn acknowledgement_of_another_stream_is_malformed() {
    for (stream, seq) in [("KV_C", 7), ("B", 7), ("KV_B", 0)] {
        let ack = Ack { stream: stream.to_owned(), seq };
        let failure = ack.sequence_in("B").unwrap_err();
        assert_eq!(
            api().lock_error(failure, "write of a", Effect::Write).kind(),
            LockErrorKind::OutcomeUnknown
        );
    }
}
