//! Parsing of URLs, and errors.

use proptest::prelude::*;

use super::*;
use crate::Leadership;
use crate::new_election;

fn refused(url: &str) -> (LockUrlErrorKind, String) {
    let error = LockUrl::from_str(url).expect_err(url);
    (error.kind(), error.to_string())
}

#[test]
fn invalid_url_is_refused_with_the_reason() {
    use LockUrlErrorKind::Malformed;
    for (url, message) in [
        ("", "no lock is named: give a URL, as in nats://localhost/MY_BUCKET"),
        ("my_bucket", "\"my_bucket\" is not a lock URL: it has no scheme such as nats:"),
        (
            "consul:a",
            "consul:a: no lock has the scheme \"consul\": there are nats, kubernetes, postgres, sqlite, gs, s3, az, etcd, peer and memory",
        ),
        (
            "memory:a?tttl=1s",
            "memory:a?tttl=1s: there is no option \"tttl\" here, or it is given twice",
        ),
        ("memory:a?ttl=soon", "memory:a?ttl=soon: ttl=soon is not a duration such as 10s or 500ms"),
        #[cfg(feature = "peer")]
        (
            "peer:12345?peers=10.0.0.4:12345",
            "peer:12345?peers=10.0.0.4:12345: without a quorum two peers may lead at once: set the number of voters, as in quorum=3",
        ),
        #[cfg(feature = "etcd")]
        ("etcd:///a", "etcd:///a: it names no member, as etcd://localhost:2379/elections does"),
        #[cfg(feature = "etcd")]
        ("etcd://h/a#b", "etcd://h/a#b: write a # as %23"),
        #[cfg(feature = "etcd")]
        ("etcd://me:1%zz@h/a", "etcd://***@h/a: write a % as %25"),
        #[cfg(feature = "etcd")]
        (
            "etcd://h/a?ca=ca.pem",
            "etcd://h/a?ca=ca.pem: ca, cert and cert-key are of TLS: write etcds://",
        ),
        #[cfg(feature = "gcs")]
        ("gs:///a", "gs:///a: it names no bucket, as gs://my-bucket/elections does"),
        ("memory:a?need=no", "memory:a?need=no: need is required or best-effort"),
        (
            "memory:a?need=best-effort",
            "memory:a?need=best-effort: no lock is required, and nothing would keep two leaders apart",
        ),
    ] {
        assert_eq!(refused(url), (Malformed, message.to_owned()));
    }
}

#[cfg(feature = "full")]
#[test]
fn every_url_of_the_documentation_names_a_lock() {
    let documentation = include_str!("../../docs/choosing-a-lock.md");
    let urls: Vec<_> = documentation
        .split("--lock '")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('\'')?.0))
        .collect();
    assert!(urls.len() > 10, "{urls:?}");
    for url in urls {
        LockUrl::from_str(url).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_lock_that_is_not_built_in_names_its_feature() {
    let parts = Parts::of("nats://localhost/B").unwrap();
    let error = parts.not_built("nats");
    assert_eq!(error.kind(), LockUrlErrorKind::NotBuilt);
    let message =
        "locks of this kind are not built in: add the feature \"nats\" of the crate incumbent";
    assert_eq!(error.to_string(), format!("nats://localhost/B: {message}"));
}

#[test]
fn secrets_are_never_shown() {
    for url in [
        "nats://me:secret@localhost/B",
        "nats://secret@a:1,b:2/B",
        "nats://me:s@secret@localhost/B?create=never",
        "//me:secret@localhost",
        "me:secret@localhost:4222",
        "x://secret@localhost/?a=b@c",
        "postgres://me@localhost/db?sslmode=require&password=secret",
        "postgres://me:secret@localhost/db?create=never",
        "postgres://me:secret@localhost/db?polling=sometimes",
        "postgres://me:secret@localhost:99999/db",
        "postgres://me@localhost/db?password=secret&sslmode=sometimes",
        "postgres://me@localhost/db?sslpassword=secret&port=x",
        "etcd://me:secret@a:2379,b:2379/elections",
        "etcds://me:secret@a/elections?max-lease=never",
        "etcd://me:secret/x@a/elections",
        "etcd://me:x/secret@a/elections",
        "etcd://secret/x@a",
        "s3://bucket/path?access_key=secret",
        "nats://a/B?token=secret",
        "az://container?sas_token=secret",
    ] {
        let shown = match LockUrl::from_str(url) {
            Ok(url) => format!("{url} {url:?} {:?} {:?}", url.members, url.targets()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("secret"), "{shown}");
    }
}

#[cfg(feature = "nats")]
#[test]
fn nats_servers_are_parsed() {
    let place = |url: &str| format!("{:?}", LockUrl::from_str(url).map(|url| url.members));
    assert!(
        place("nats://a:4222,b:4223/MY_BUCKET?ttl=5s").contains("nats://a:4222,b:4223/MY_BUCKET")
    );
    for url in ["nats:", "nats://", "nats:///B", "nats://a:x/B", "nats://a,/B"] {
        assert!(refused(url).1.contains("names no server"), "{url}");
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn options_of_kubernetes_are_checked() {
    LockUrl::from_str("kubernetes:").unwrap();
    LockUrl::from_str("kubernetes:prod?context=staging").unwrap();
    LockUrl::from_str("kubernetes:prod?kind=configmap&object=my-app&lease=5s").unwrap();
    for (url, message) in [
        (
            "kubernetes:a/b",
            "\"a/b\" cannot be the name of a namespace: up to 63 of the letters a-z, 0-9 and '-', with no '-' at either end",
        ),
        ("kubernetes:?kind=pod", "kind is lease, configmap or endpoints"),
        (
            "kubernetes:?lease=1500ms",
            "a lease of 1.5s is not a whole number of seconds, at least one",
        ),
    ] {
        assert_eq!(refused(url).1, format!("{url}: {message}"));
    }
}

#[tokio::test]
async fn one_name_is_one_lock_in_the_whole_process() {
    let open = async |url: &str| LockUrl::from_str(url).unwrap().open().await;
    let (first, second) =
        (open("memory:one%20name?ttl=5s").await.unwrap(), open("memory:one%20name").await.unwrap());
    let election = new_election("my_app", first).identity("first").start().unwrap();
    let leadership: Leadership = election.won().await.unwrap();
    assert!(matches!(
        second.read("my_app", std::time::Duration::from_secs(1)).await,
        Ok(crate::lock::Reading::Found(_))
    ));
    let refused = open("memory:one%20name?ttl=6s").await.unwrap_err();
    assert_eq!(refused.to_string(), "memory:one name: it is open with a TTL of 5s, not 6s");
    drop(leadership);
    election.stop().await;
}

#[tokio::test]
async fn several_urls_are_all_of_their_locks() {
    let url: LockUrl =
        "memory:several_a?ttl=5s memory:several_b?ttl=7s&need=best-effort".parse().unwrap();
    assert_eq!(url.to_string(), "memory:several_a?ttl=5s memory:several_b?ttl=7s&need=best-effort");
    let lock = url.open().await.unwrap();
    let needs: Vec<Need> = lock.members().unwrap().iter().map(LockMember::need).collect();
    assert_eq!(needs, [Need::Required, Need::BestEffort]);
    let election = new_election("my_app", lock).start().unwrap();
    let leadership = election.won().await.unwrap();
    assert_eq!(leadership.tokens().len(), 2);
    drop(leadership);
    election.stop().await;
}

/// As when a fleet that moves to NATS is restarted while its servers are out of reach.
#[cfg(feature = "nats")]
#[tokio::test]
async fn a_bucket_on_best_effort_may_be_out_of_reach_when_a_candidate_starts() {
    let url = "memory:required?ttl=5s nats://127.0.0.1:1/B?need=best-effort";
    let lock = url.parse::<LockUrl>().unwrap().open().await.expect("a lock");
    let election = new_election("my_app", lock).start().unwrap();
    let leadership = election.won().await.unwrap();
    assert!(leadership.tokens()[1].is_none());
    drop(leadership);
    election.stop().await;
    let required = "memory:required?ttl=5s nats://127.0.0.1:1/B".parse::<LockUrl>().unwrap();
    assert_eq!(required.open().await.unwrap_err().kind(), LockUrlErrorKind::Unavailable);
}

proptest! {
    /// The text is untrusted: it comes from configuration.
    #[test]
    fn any_text_is_a_lock_or_refused_in_one_line(
        scheme in prop::sample::select([SCHEMES, &["tls", "etcds", ""]].concat()),
        colon in prop::sample::select(vec!["", ":"]),
        slashes in "/{0,3}",
        place in "[a-z0-9:@,%.\\[\\] /é\\x00-]{0,20}",
        options in "(\\?([a-z-]{0,8}=?[a-z0-9%&=:,]{0,8}&?){0,3})?",
    ) {
        let text = format!("{scheme}{colon}{slashes}{place}{options}");
        match LockUrl::from_str(&text) {
            Ok(url) => drop(url.to_string()),
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error),
        }
    }

    #[test]
    fn a_password_is_never_shown(
        scheme in prop::sample::select(vec!["nats", "tls", "postgres", "postgresql", "s3", "etcd", "etcds", "junk"]),
        password in "[a-z0-9:@,/%&=?]{0,6}hidden[a-z0-9:@,/%&=?]{0,6}",
        host in "[a-z0-9.-]{0,10}",
    ) {
        let shown = match LockUrl::from_str(&format!("{scheme}://me:{password}@{host}/place")) {
            Ok(url) => format!("{url} {url:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains("hidden"), "{}", shown);
    }

    /// The durations are untrusted, too.
    #[test]
    fn any_durations_are_taken_or_refused(
        spans in prop::collection::vec((prop_oneof![Just(0), Just(1), Just(60), Just(3600), Just(u64::MAX), any::<u64>()], 0_u32..1_000_000_000), 6),
        choria in any::<bool>(),
    ) {
        let span = |at: usize| std::time::Duration::new(spans[at].0, spans[at].1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut builder = new_election("any", crate::backends::memory::MemoryLock::with_ttl(span(0)))
                .lease(span(1))
                .renewal(span(2))
                .grace(span(3))
                .takeover_delay(span(4))
                .cool_down(crate::protocol::CoolDown::For(span(5)));
            if choria {
                builder = builder.with_choria();
            }
            if let Ok(election) = builder.start() {
                tokio::task::yield_now().await;
                election.stop().await;
            }
        });
    }
}
