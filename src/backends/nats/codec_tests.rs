use proptest::prelude::*;

use super::*;
use crate::backends::nats::stream::MAX_HEADERS_LEN;
use crate::lock::Nonce;
use crate::lock::codec::MAX_DURATION;

const EXPIRY: Expiry =
    Expiry { max_age: Some(Duration::from_secs(60)), slack: Duration::from_millis(250), own: true };

fn block(headers: &HeaderMap) -> Block {
    let mut text = String::from("NATS/1.0\r\n");
    for (name, values) in headers.iter() {
        for value in values {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    text.push_str("\r\n");
    Block::new(text.as_bytes())
}

fn writes() -> impl Strategy<Value = Write> {
    let mark = (any::<u64>(), any::<u64>(), 0_u64..=7_200_000, any::<Option<u64>>(), any::<u64>());
    let moves = (any::<Option<u8>>(), proptest::option::of("[!-~]{1,128}"), any::<Option<u64>>());
    let advertisement = proptest::option::of(("[!-~]{1,80}", "\\PC{1,40}", "\\PC{0,200}"));
    (any::<Option<u64>>(), "\\PC{0,200}", mark, moves, 0_u64..10_000_000, advertisement).prop_map(
        |(
            expected,
            identity,
            (nonce, number, lease, token, since_unix_ms),
            (priority, site, paused_until),
            life,
            advertisement,
        )| Write {
            expected: expected.map(Revision),
            identity: identity.into(),
            mark: Mark {
                write: WriteId { nonce: Nonce(nonce), number },
                lease: Duration::from_millis(lease),
                token: token.map(Token),
                since_unix_ms,
                moves: Box::new(MoveInfo {
                    priority,
                    site: site.map(Arc::from),
                    pause: paused_until.map(|until_unix_ms| Pause { until_unix_ms }),
                }),
            },
            ttl: Duration::from_millis(life),
            advertisement: advertisement.map(|(address, key, value)| {
                Arc::new(Advertisement::new(address).with(key, value))
            }),
            timeout: Duration::from_secs(1),
        },
    )
}

proptest! {
    #[test]
    fn entry_round_trips(write in writes(), ttl in any::<bool>()) {
        let headers = entry_headers(&write, ttl, usize::MAX);
        for read in [
            content(&headers, write.identity.as_bytes(), EXPIRY),
            content(&block(&headers), write.identity.as_bytes(), EXPIRY),
        ] {
            let Content::Held(entry) = read else { panic!("not held") };
            prop_assert_eq!(&entry.identity, &write.identity);
            prop_assert_eq!(entry.mark.as_ref(), Some(&write.mark));
            prop_assert_eq!(&entry.advertisement, &write.advertisement);
            if ttl {
                prop_assert!(entry.ttl >= write.ttl.min(Duration::from_secs(60)));
            } else {
                prop_assert_eq!(entry.ttl, Duration::from_millis(60_250));
            }
        }
        let site = write.mark.moves.site.as_ref().map_or(0, |site| line_len(SITE, site));
        let most = MAX_HEADERS_LEN + advertisement_len(&write);
        prop_assert!(block(&headers).0.len() <= most + site);
        // A bucket of Choria's takes 1,024 bytes.
        for (room, is_stated) in [(site, site > 0), (site.saturating_sub(1), false)] {
            let headers = entry_headers(&write, ttl, room);
            prop_assert!(block(&headers).0.len() <= most + room);
            prop_assert_eq!(headers.get(SITE).is_some(), is_stated);
        }
    }

    #[test]
    fn release_round_trips(
        expected in any::<u64>(), by in any::<u64>(), left in 0_u64..=7_200_000,
        ttl in proptest::option::of(0_u64..100_000), to in proptest::option::of(any::<u64>()),
        paused_until in any::<Option<u64>>(),
    ) {
        let left = Duration::from_millis(left);
        let pause = paused_until.map(|until_unix_ms| Pause { until_unix_ms });
        let release = Release {
            expected: Revision(expected), by: Nonce(by), left, cause: "stop\r\nInjected: yes",
            to: to.map(Nonce), pause, timeout: Duration::from_secs(1),
        };
        let headers = release_headers(&release, ttl.map(Duration::from_secs));
        let vacant = Content::Vacant(Tombstone::Released { by: Nonce(by), left, cause: Some("stopInjected:yes".into()), to: to.map(Nonce), pause });
        prop_assert_eq!(content(&headers, b"", EXPIRY), vacant.clone());
        prop_assert_eq!(content(&block(&headers), b"", EXPIRY), vacant);
        prop_assert!(block(&headers).0.len() <= MAX_HEADERS_LEN);
    }

    #[test]
    fn step_down_notice_round_trips(
        by in any::<u64>(), token in any::<u64>(), revision in any::<u64>(), left in 0_u64..=7_200_000,
    ) {
        let written = StepDownNotice {
            by: Nonce(by), token: Token(token), revision: Revision(revision),
            left: Duration::from_millis(left),
        };
        prop_assert_eq!(notice(&step_down_headers(&written)), Some(written));
    }

    #[test]
    fn no_stored_message_panics(hdrs in ".*", raw in any::<Vec<u8>>(), data in any::<Vec<u8>>()) {
        let base64 = |bytes: &[u8]| Some(base64::engine::general_purpose::STANDARD.encode(bytes));
        for hdrs in [Some(hdrs.clone()), base64(&raw), base64(hdrs.as_bytes()), None] {
            let message = StoredMessage { seq: 1, time: String::new(), hdrs, data: base64(&data) };
            let _ = stored_content(&message, EXPIRY);
        }
    }

    #[test]
    fn no_headers_panic(
        fields in proptest::collection::vec((0_usize..17, "[0-9a-fA-F.:\\-hmsTZnever]{0,40}|\\PC{0,20}"), 0..12),
        value in any::<Vec<u8>>(),
    ) {
        const NAMES: [HeaderName; 17] = [
            EXPECTED, TTL, MARKER, OPERATION, WRITE, LEASE, TOKEN, SINCE, VERSION, RELEASE, BY, LEFT,
            STEPPED_DOWN, ADVERTISEMENT, header::NATS_SEQUENCE, header::NATS_LAST_SEQUENCE,
            header::NATS_TIME_STAMP,
        ];
        let mut headers = HeaderMap::new();
        for (name, text) in fields {
            put(&mut headers, NAMES[name].clone(), text);
        }
        if let Content::Held(entry) = content(&headers, &value, EXPIRY) {
            prop_assert!(entry.identity.len() <= MAX_IDENTITY_LEN);
            prop_assert!(entry.mark.is_none_or(|mark| mark.lease <= MAX_DURATION));
        }
        let _ = (notice(&headers), republished(&headers, "KV_B"), is_forced(&headers));
    }
}

#[test]
fn writes_of_others_have_no_mark() {
    let plain = content(&None::<HeaderMap>, b"c1.example.net", EXPIRY);
    let Content::Held(entry) = plain else { panic!("not held") };
    assert_eq!((&*entry.identity, entry.mark), ("c1.example.net", None));

    let mut later = HeaderMap::new();
    later.insert(VERSION, "2");
    later.insert(WRITE, "0000000000000001-1");
    later.insert(LEASE, "1000");
    assert!(!is_ours(&content(&later, b"x", EXPIRY)));
}

/// A server without message TTLs stores the header, but ignores it.
#[test]
fn message_ttl_counts_if_the_bucket_allows_it() {
    let minute = EXPIRY.max_age;
    for (ttl, own, max_age, life) in [
        ("never", true, None, FOREVER),
        ("never", true, minute, FOREVER),
        ("never", false, minute, Duration::from_secs(60)),
        ("5", true, minute, Duration::from_secs(5)),
        ("5", false, minute, Duration::from_secs(60)),
        ("90", true, minute, Duration::from_secs(60)),
        ("90", true, None, Duration::from_secs(90)),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(TTL, ttl);
        let expiry = Expiry { own, max_age, ..EXPIRY };
        let Content::Held(entry) = content(&headers, b"x", expiry) else { panic!("not held") };
        assert_eq!(entry.ttl, life + EXPIRY.slack, "{ttl}, {own}, {max_age:?}");
    }
}

#[test]
fn value_may_continue_in_the_next_line() {
    let name = HeaderName::from_static;
    let block = Block::new(b"NATS/1.0\r\nA: 1\r\n 2\r\nB: 3\r\n\r\n");
    assert_eq!((block.value(name("A")), block.value(name("B"))), (Some("1 2"), Some("3")));
}

#[test]
fn tombstones_of_others() {
    let with = |name: HeaderName, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value);
        content(&headers, b"", EXPIRY)
    };
    assert_eq!(with(MARKER, "MaxAge"), Content::Vacant(Tombstone::Expired));
    assert_eq!(with(MARKER, "Purge"), Content::Vacant(Tombstone::Deleted));
    assert_eq!(with(OPERATION, "DEL"), Content::Vacant(Tombstone::Deleted));
    assert_eq!(with(OPERATION, "PURGE"), Content::Vacant(Tombstone::Deleted));
}

/// If the span were refused, the entry would count as another writer's, also for its own writer.
#[test]
fn excessive_durations_are_capped() {
    let mut headers = HeaderMap::new();
    headers.insert(VERSION, "1");
    headers.insert(WRITE, "0000000000000001-1");
    headers.insert(LEASE, u64::MAX.to_string().as_str());
    headers.insert(BY, "0000000000000001");
    headers.insert(LEFT, "7200001");
    let Content::Held(entry) = content(&headers, b"x", EXPIRY) else { panic!("not held") };
    assert_eq!(entry.mark.map(|mark| mark.lease), Some(MAX_DURATION));
    headers.insert(OPERATION, "DEL");
    let released = Tombstone::Released {
        by: Nonce(1),
        left: MAX_DURATION,
        cause: None,
        to: None,
        pause: None,
    };
    assert_eq!(content(&headers, b"", EXPIRY), Content::Vacant(released));
}

#[test]
fn cause_of_a_release_is_bounded() {
    let read = |cause: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(VERSION, "1");
        headers.insert(OPERATION, "DEL");
        headers.insert(BY, "0000000000000001");
        headers.insert(LEFT, "0");
        headers.insert(RELEASE, cause);
        let delivered = content(&headers, b"", EXPIRY);
        assert_eq!(content(&block(&headers), b"", EXPIRY), delivered);
        match delivered {
            Content::Vacant(Tombstone::Released { cause, .. }) => cause,
            content => panic!("{content:?}"),
        }
    };
    assert_eq!(read("crashed").as_deref(), Some("crashed"));
    let long = "x".repeat(1_000);
    assert_eq!(read(&format!("\u{1b}[31m {long}")), Some(format!("[31m{}", &long[..28]).into()));
    assert_eq!(read("\u{1b} \u{7f}"), None);
}

#[test]
fn invalid_text_is_truncated_and_escaped() {
    let Content::Held(entry) = content(&None::<HeaderMap>, &[0xff; 5_000], EXPIRY) else {
        panic!("not held")
    };
    assert!(entry.identity.len() <= MAX_IDENTITY_LEN && entry.identity.starts_with('\u{fffd}'));

    let junk = content(&None::<HeaderMap>, "a\r\nb\u{1b}[31m\0é".as_bytes(), EXPIRY);
    let Content::Held(entry) = junk else { panic!("not held") };
    assert_eq!(&*entry.identity, "a\u{fffd}\u{fffd}b\u{fffd}[31m\u{fffd}é");
}
