//! `election`: who leads and stands by, and changes; the end, the move and the pause of a term.

use std::time::Duration;

use async_nats::{HeaderMap, jetstream};
use futures_util::StreamExt;
use incumbent_test_support::{eventually, jetstream_on};
use serde_json::Value;

use crate::shell::{Running, Shell};

/// With a lease whose end no test waits for.
const CAMPAIGN: [&str; 5] = ["campaign", "my_app", "--lease", "30s", "--identity"];

#[test]
fn advertised_address_with_a_blank_is_refused() {
    let campaign = ["campaign", "other", "--advertise", "a b", "--lock", "sqlite:elections.db"];
    let text = "the address has a blank or a control character";
    Shell::bare().expect_refusal(&campaign, text, 2);
}

/// Its entry states that it leads.
#[tokio::test]
async fn info_of_a_leader_asks_no_candidate() {
    let (server, shell) = Shell::serving().await;
    let mut leader = shell.start(&["campaign", "my_app", "--lease", "24s"]);
    leader.line_with("won");
    eventually("it states its priority", async || {
        let found = shell.json(&["election", "list", "-o", "json"]);
        found[0]["priority"].is_number().then_some(())
    })
    .await;
    let client = server.connect().await;
    let mut calls = client.subscribe("incumbent-roll-call.>").await.expect("a subscription");
    client.flush().await.expect("a server");
    shell.out(&["election", "info", "my_app"]);
    client.publish("incumbent-roll-call.end", "".into()).await.expect("it is sent");
    let first = calls.next().await.expect("a message");
    assert_eq!(first.subject.as_str(), "incumbent-roll-call.end");
}

/// A bucket that is unfit for elections is shown, not refused.
#[tokio::test]
async fn info_reports_a_bucket_without_a_ttl() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "-q"]);
    let output = shell.out(&["election", "info", "--bucket", "B"]);
    assert!(
        output.contains("  critical: no TTL: the entry of a dead leader would never expire"),
        "{output}"
    );
    let colored = shell.out(&["election", "info", "--bucket", "B", "--color", "always"]);
    assert!(colored.contains("\u{1b}[") && !output.contains("\u{1b}["), "{colored}");
}

#[tokio::test]
async fn candidates_are_listed_by_their_role() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.start(&[&CAMPAIGN[..], &["first"]].concat());
    first.line_with("won");
    let _second = shell.start(&[&CAMPAIGN[..], &["second"]].concat());
    let list = ["election", "members", "my_app", "--within", "300ms"];
    let has_row = |text: &str, words: &[&str]| {
        text.lines().any(|line| words.iter().all(|word| line.contains(word)))
    };
    eventually("both answer, and see the leader", async || {
        let found = shell.out(&list);
        let both = has_row(&found, &["first", "leader", "first ("])
            && has_row(&found, &["second", "standby", "first ("]);
        both.then_some(())
    })
    .await;

    let members = eventually("both answer", async || {
        let members = shell.json(&[&list[..], &["-o", "json"]].concat());
        members.as_array().is_some_and(|both| both.len() == 2).then_some(members)
    })
    .await;
    assert_eq!((&members[0]["identity"], &members[0]["role"]), (&"first".into(), &"leader".into()));
    assert_eq!(members[1]["leader"], "first");
    assert_eq!(members[1]["token"], members[0]["token"]);

    let unknown = ["election", "members", "other", "--within", "100ms"];
    shell.expect_refusal(&unknown, "election other: nobody answers, and there is no record", 3);
    shell.out(&["kv", "put", "CHORIA_LEADER_ELECTION", "other", "of another program"]);
    assert_eq!(shell.out(&[&unknown[..], &["-o", "json"]].concat()).trim(), "[]");
}

#[tokio::test]
async fn lock_without_roll_calls_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let (_server, shell) = Shell::serving().await;
    shell.out(&["run", "my_app", "--lock", &url, "--", "true"]);
    let (refused, _) = shell.refusal(&["election", "members", "my_app", "--lock", &url]);
    assert!(refused.contains("this lock carries no roll calls"), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

/// A bucket of a Choria broker republishes nothing and leaves no marker of an expired entry.
#[tokio::test]
async fn bucket_without_notifications_is_polled() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--ttl", "20s", "-q"]);
    shell.out(&["kv", "put", "B", "e", "theirs"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: theirs leads");
    watch.line_with("e: no leader: theirs did not renew: expired");
}

#[tokio::test]
async fn watch_continues_after_a_server_restart() {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    shell.out(&["kv", "put", "B", "e", "one"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    server.restart().await;
    shell.out(&["kv", "put", "B", "e", "two"]);
    watch.line_with("e: two leads, succeeding one");
}

#[tokio::test]
async fn watch_needs_only_the_rights_of_an_observer() {
    let (_server, admin, observer) = Shell::with_observer(&[]).await;
    admin.out(&["kv", "add", "B", "--election", "-q"]);
    admin.out(&["kv", "put", "B", "e", "one"]);
    observer.out(&["election", "info", "--bucket", "B"]);
    let mut watch = observer.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    admin.out(&["kv", "put", "B", "e", "two"]);
    watch.line_with("e: two leads");
    let (line, code) = observer.refusal(&["election", "evict", "e", "--bucket", "B", "--force"]);
    assert!(line.contains("denies") && line.contains("$KV.B.e"), "{line}");
    assert_eq!(code, 5);
    assert_eq!(admin.out(&["kv", "get", "B", "e", "--raw"]), "two");
}

/// The refusal ends the wait, and names the subject.
#[tokio::test]
async fn inbox_without_permission_is_reported_at_once() {
    let (_server, admin, observer) = Shell::with_observer(&[]).await;
    admin.out(&["kv", "add", "B", "--election", "-q"]);
    for command in [&["election", "list"][..], &["election", "info", "e"], &["leader", "e"]] {
        let flags = ["--bucket", "B", "--inbox-prefix", "_INBOX", "--timeout", "40s"];
        observer.expect_refusal(&[command, &flags].concat(), "_INBOX.", 5);
    }
}

/// A message that any candidate may send beside the bucket, as if the server had stored it.
#[tokio::test]
async fn forged_message_neither_names_nor_hides_a_leader() {
    let (server, shell) = Shell::serving().await;
    let client = server.connect().await;
    for (bucket, forger) in [("B", "forger"), ("C", "one")] {
        shell.out(&["kv", "add", bucket, "--election", "--ttl", "1h", "-q"]);
        shell.out(&["kv", "put", bucket, "e", "one"]);
        let all = ["election", "watch", "--bucket", bucket];
        let mut watches = [shell.start(&all), shell.start(&[&all[..], &["e"]].concat())];
        watches.iter_mut().for_each(|watch| drop(watch.line_with("e: one leads")));
        let stored = shell.json(&["kv", "get", bucket, "e", "-o", "json"])["revision"].to_string();
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Stream", format!("KV_{bucket}"));
        headers.insert("Nats-Sequence", u64::MAX.to_string());
        headers.insert("Nats-Last-Sequence", stored);
        headers.insert("Nats-Time-Stamp", "2026-01-01T00:00:00Z");
        let subject = format!("incumbent.{bucket}.e");
        client.publish_with_headers(subject, headers, forger.into()).await.expect("it is sent");
        client.flush().await.expect("it is sent");
        shell.out(&["kv", "put", bucket, "e", "two"]);
        for watch in &mut watches {
            let line = watch.line();
            assert!(line.contains("e: two leads, succeeding one"), "{line}");
        }
    }
}

#[tokio::test]
async fn bucket_made_anew_with_lower_revisions_shows_its_leaders() {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    shell.out(&["kv", "put", "B", "e", "one"]);
    let mut watch = shell.start(&["election", "watch", "--bucket", "B"]);
    watch.line_with("e: one leads");
    let context = jetstream_on(server.connect().await);
    let mut stream = context.get_stream("KV_B").await.expect("a stream");
    let config = stream.info().await.expect("a stream").config.clone();
    // It would read in between that there is no bucket, or no leader.
    watch.signal("STOP");
    context.delete_stream("KV_B").await.expect("it is deleted");
    let config = jetstream::stream::Config { first_sequence: None, ..config };
    context.create_stream(config).await.expect("it is created");
    shell.out(&["kv", "put", "B", "e", "two"]);
    watch.signal("CONT");
    watch.line_with("e: two leads, succeeding one");
}

#[tokio::test(flavor = "multi_thread")]
async fn successor_and_duration_are_reported() {
    let (_server, shell) = Shell::serving().await;
    let mut first = shell.start(&[&CAMPAIGN[..], &["first"]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second"]].concat());
    second.line_with("leader: first");

    let (line, code) = shell.refusal(&["election", "evict", "my_app"]);
    assert!(line.contains("Evict first, who leads my_app") && line.contains("--force"), "{line}");
    assert_eq!(code, 1);
    let mut terminal = shell.on_terminal(&["election", "evict", "my_app"]);
    terminal.wait_for("who leads my_app? [y/N] ");
    terminal.type_line("n");
    assert_eq!(terminal.wait().1, Some(1));

    let output = shell.out(&["election", "evict", "my_app", "--force"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "evicted first from my_app");
    first.line_with("lost: evicted");
    let token = second.line_with("won").rsplit(' ').next().unwrap().to_owned();
    assert!(lines[1].starts_with("second holds the entry after "), "{output}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{output}");
    first.line_with("leader: second");
    // For so long it lets others go first, as the second one does after its own eviction.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let evicted = shell.json(&["election", "evict", "my_app", "--force", "-o", "json"]);
    let fields = ["election", "evicted", "holder"].map(|field| evicted[field].as_str());
    assert_eq!(fields, ["my_app", "second", "first"].map(Some), "{evicted}");
    assert_eq!(evicted["evicted_token"].to_string(), token);
}

#[tokio::test]
async fn missing_successor_is_reported() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.out(&["kv", "put", "B", "e", "c1"]);
    let args = ["election", "evict", "e", "--bucket", "B", "--force", "--wait", "1s"];
    let output = shell.run(&args);
    assert_eq!((&*output.stdout, output.code), ("evicted c1 from e\n", Some(1)), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    assert!(output.stderr.contains("no successor within 1s"), "{output:?}");
    shell.expect_refusal(&args, "election e: no leader", 3);
}

#[tokio::test]
async fn successor_is_awaited_while_the_server_is_away() {
    let (server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let wait = ["--force", "--wait", "5m", "--timeout", "20s"];
    let mut evict = shell.start_with_errors(&[&["election", "evict", "e"][..], &wait].concat());
    evict.line_with("evicted one from e");
    server.stop().await;
    evict.line_with("lock failing: ");
    server.start_again().await;
    shell.put("e", "two");
    evict.line_with("two holds the entry after ");
}

/// A leader `first` at site `a`, and a standby `second` at site `b`.
fn two(shell: &Shell) -> [Running; 2] {
    let mut first = shell.start(&[&CAMPAIGN[..], &["first", "--site", "a"]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second", "--site", "b"]].concat());
    second.line_with("leader: first");
    [first, second]
}

/// Standard output of `election move`, which is repeated while its successor answers the leader too
/// late.
async fn moved(shell: &Shell, flags: &[&str]) -> String {
    let args = [&["election", "move", "my_app"], flags].concat();
    let output = eventually("a candidate is ready", async || {
        let output = shell.run(&args);
        let nobody = output.stderr.contains("no candidate that may lead next is ready");
        (!nobody).then_some(output)
    })
    .await;
    assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
    output.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_to_the_named_candidate_or_site() {
    let (_server, shell) = Shell::serving().await;
    let [mut first, mut second] = two(&shell);
    let output = moved(&shell, &["--to", "second"]).await;
    first.line_with("lost: handed over to second");
    let token = second.line_with("won").rsplit(' ').next().expect("a token").to_owned();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "handing over to second");
    assert!(lines[1].starts_with("second leads after "), "{output}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{output}");

    let output = moved(&shell, &["--to-site", "a"]).await;
    assert!(output.starts_with("handing over to first\nfirst leads after "), "{output}");
    first.line_with("won");
    let output = moved(&shell, &["--wait", "0s"]).await;
    assert_eq!(output, "handing over to second\n");
    second.line_with("won");
    let json = moved(&shell, &["-o", "json"]).await;
    let moved: Value = serde_json::from_str(&json).expect("JSON");
    let fields = ["election", "from", "to", "leader"].map(|field| moved[field].as_str());
    assert_eq!(fields, ["my_app", "second", "first", "first"].map(Some), "{moved}");
    assert!(moved["token"].is_u64() && moved["took_ms"].is_u64(), "{moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_one_line_and_the_leader_continues() {
    let (_server, shell) = Shell::serving().await;
    let [_first, mut second] = two(&shell);
    let command = ["election", "move", "my_app"];
    shell.expect_refusal(&["election", "move", "other"], "election other: no leader", 3);
    for flags in [&["--to", "third"][..], &["--to", "first"], &["--to-site", "c"]] {
        let (line, code) = eventually("the leader answers in time", async || {
            let refused = shell.refusal(&[&command[..], flags].concat());
            (!refused.0.contains("does not answer")).then_some(refused)
        })
        .await;
        assert!(line.contains("first continues to lead: "), "{line}");
        assert!(line.contains("no candidate that may lead next is ready"), "{line}");
        assert_eq!(code, 1, "{line}");
    }
    let both = shell.run(&[&command[..], &["--to", "second", "--to-site", "b"]].concat());
    assert_eq!(both.code, Some(2), "{both:?}");
    let output = moved(&shell, &["--to", "second"]).await;
    assert!(output.contains("second leads after "), "{output}");
    second.line_with("won");
}

/// As one of Choria.
#[tokio::test]
async fn leader_that_does_not_answer_is_reported() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.out(&["kv", "put", "B", "e", "c1"]);
    let line = shell.expect_refusal(
        &["election", "move", "e", "--bucket", "B"],
        "move of e: c1, who leads, does not answer",
        1,
    );
    assert!(line.contains("`election evict`"), "{line}");
}

const MEMBERS: [&str; 5] = ["election", "members", "my_app", "--within", "300ms"];

#[tokio::test(flavor = "multi_thread")]
async fn sick_leader_moves_only_after_the_pause() {
    let (_server, shell) = Shell::serving().await;
    let sick = shell.home().join("sick");
    let check = format!("[ ! -e {sick} ] || {{ echo disk full; exit 1; }}", sick = sick.display());
    // The interval is the limit of a check, too.
    let check = ["--check", &check, "--check-interval", "1s", "--check-failures", "2"];
    // No term moves by itself before it has lasted a lease.
    let campaign = ["campaign", "my_app", "--lease", "20s", "--identity"];
    let mut first = shell.start(&[&campaign[..], &["first"], &check[..]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&campaign[..], &["second"]].concat());
    second.line_with("leader: first");

    let within = ["--within", "20s"];
    let pause = ["election", "pause", "my_app", "--for", "10m"];
    let output = shell.out(&[&pause[..], &within].concat());
    assert!(output.starts_with("paused until 20"), "{output}");
    assert!(output.ends_with(": first states it in its entry\n"), "{output}");
    shell.write("sick", "");
    first.line_with("sick: disk full");
    let table = eventually("the leader is seen to be sick, and paused", async || {
        let is_shown = |table: &String| table.contains("sick") && table.contains("paused");
        Some(shell.out(&MEMBERS)).filter(is_shown)
    })
    .await;
    let last = table.lines().last().expect("a line");
    assert!(table.contains("STANDING") && !table.contains("SITE"), "{table}");
    assert!(last.starts_with("paused until 20"), "{table}");
    let members = eventually("the leader answers in time", async || {
        let members = shell.json(&[&MEMBERS[..], &["-o", "json"]].concat());
        (members[0]["role"] == "leader").then_some(members)
    })
    .await;
    let leader = &members[0];
    let fields = (&leader["identity"], &leader["standing"]);
    assert_eq!(fields, (&"first".into(), &"sick".into()));
    assert!(leader["site"].is_null(), "{members}");
    let info = shell.json(&["election", "info", "my_app", "-o", "json"]);
    assert!(info["elections"][0]["paused_until"].is_string(), "{info}");

    let output = shell.out(&[&["election", "resume", "my_app"][..], &within].concat());
    assert_eq!(output, "resumed: first states it in its entry\n");
    first.line_with("lost: handed over to second");
    second.line_with("won");
    assert!(!shell.out(&MEMBERS).contains("paused"));
    let call =
        |verb| shell.json(&[&["election", verb, "my_app", "-o", "json"][..], &within].concat());
    let (paused, resumed) = (call("pause"), call("resume"));
    assert_eq!((&paused["leader"], &resumed["leader"]), (&"second".into(), &"second".into()));
    assert!(paused["paused_until"].is_string() && resumed["paused_until"].is_null(), "{paused}");
}

#[tokio::test]
async fn unknown_pause_is_reported() {
    let (_server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    let pause = ["election", "pause", "e", "--bucket", "B", "--within", "1s"];
    shell.expect_refusal(&pause, "election e: no leader of this library answered", 1);
    for span in ["0s", "25h", "1"] {
        let output = shell.run(&[&pause[..], &["--for", span]].concat());
        assert_eq!(output.code, Some(2), "{output:?}");
    }
    // A leader of another program.
    shell.out(&["kv", "put", "B", "e", "c1"]);
    let mut standby = shell.start(&["campaign", "e", "--bucket", "B", "--identity", "c2"]);
    standby.line_with("leader: c1");
    shell.expect_refusal(&pause, "election e: no leader of this library answered", 1);
}
