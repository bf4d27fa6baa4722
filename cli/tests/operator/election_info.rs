//! `election list` and `info`.

use futures_util::StreamExt;
use incumbent_test_support::{Server, eventually};

use crate::shell::Shell;

const BUCKET: &str = "CHORIA_LEADER_ELECTION";

#[tokio::test]
async fn info_shows_bucket_health_and_leaders() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut leader = shell.start(&["campaign", "my_app", "--identity", "c1.example.net"]);
    let token = leader.line_with("won").rsplit(' ').next().unwrap().to_owned();
    // An entry of Choria's candidates, which has no token.
    shell.out(&["kv", "put", BUCKET, "theirs", "c2.example.net"]);

    let output = shell.out(&["election", "info"]);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], format!("Bucket {BUCKET}, TTL 1m"));
    assert!(lines[1].starts_with("  warning: values of another kind at theirs"), "{output}");
    assert_eq!(lines[2], "");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(lines[3]), ["ELECTION", "LEADER", "SINCE", "TOKEN", "RENEWED"]);
    let ours = cells(lines[4]);
    assert_eq!(ours[..2], ["my_app", "c1.example.net"]);
    assert!(ours.contains(&token) && lines[4].ends_with(" ago"), "{output}");
    assert_eq!(cells(lines[5])[..4], ["theirs", "c2.example.net", "-", "-"]);

    let json = shell.json(&["election", "info", "my_app", "-o", "json"]);
    assert_eq!(json["bucket"], BUCKET);
    assert_eq!(json["findings"][0]["severity"], "warning");
    let election = &json["elections"][0];
    assert_eq!(election["leader"], "c1.example.net");
    assert_eq!(election["token"].to_string(), token);
    assert!(election["since"].as_str().unwrap().ends_with('Z'));
    assert!(json["elections"][1].is_null());
}

#[tokio::test]
async fn advertised_address_is_shown() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let advertisement = ["--advertise", "c1.example.net:50051", "--metadata", "zone=größer"];
    let mut leader = shell.start(&[&["campaign", "my_app"], &advertisement[..]].concat());
    leader.line_with("won");
    let output = shell.out(&["election", "info"]);
    let (heads, row) = (output.lines().nth(3).unwrap(), output.lines().nth(4).unwrap());
    assert!(heads.ends_with("ADDRESS") && row.ends_with("  c1.example.net:50051"), "{output}");
    let json = shell.json(&["election", "info", "my_app", "-o", "json"]);
    let election = &json["elections"][0];
    assert_eq!(election["address"], "c1.example.net:50051");
    assert_eq!(election["metadata"]["zone"], "größer");

    let (line, code) = shell.refusal(&["campaign", "other", "--advertise", "a b"]);
    assert!(line.contains("the address has a blank or a control character"), "{line}");
    assert_eq!(code, 2);
}

#[tokio::test]
async fn cool_down_of_a_winner_is_shown_with_its_reason() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut creator = shell.start(&["campaign", "other"]);
    creator.line_with("won");
    // The TTL of the bucket is a minute: so long it may have led on.
    shell.out(&["kv", "put", BUCKET, "my_app", "an unknown holder"]);
    shell.out(&["kv", "del", BUCKET, "my_app", "--force"]);
    let mut winner = shell.campaign("my_app", "c1");
    let reason = "an earlier holder of which too little is known";
    let line = winner.line_with("cooling down for ");
    assert!(line.ends_with(reason), "{line}");
    let mut watch = shell.start(&["election", "watch", "my_app"]);
    let line = watch.line_with("my_app: c1 is cooling down for ");
    assert!(line.ends_with(reason), "{line}");
    let info = ["election", "info", "my_app"];
    let output = eventually("the winner answers", async || {
        Some(shell.run(&info).stdout).filter(|output| output.contains("does not lead yet"))
    })
    .await;
    assert!(output.lines().last().is_some_and(|line| line.ends_with(reason)), "{output}");
    let cool_down = eventually("it answers again", async || {
        let json = shell.json(&[&info[..], &["-o", "json"]].concat());
        Some(json["elections"][0]["cool_down"].clone()).filter(|left| left.is_object())
    })
    .await;
    assert_eq!(cool_down["reason"], reason);
    assert!(cool_down["left_ms"].is_u64(), "{cool_down}");
}

/// Its entry states that it leads.
#[tokio::test]
async fn info_of_a_leader_asks_no_candidate() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut leader = shell.start(&["campaign", "my_app", "--lease", "2s"]);
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

#[tokio::test]
async fn vacant_election_shows_its_cause() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    leader.end_with("TERM");
    let output = shell.out(&["election", "list"]);
    assert!(output.ends_with("\nmy_app    none (stopped)\n"), "{output}");
    let (line, code) = shell.refusal(&["election", "info", "absent"]);
    assert!(line.contains("election absent: no leader"), "{line}");
    assert_eq!(code, 3);
    let (line, code) = shell.refusal(&["election", "info", "--bucket", "ABSENT"]);
    assert!(line.contains("bucket ABSENT: the bucket does not exist"), "{line}");
    assert_eq!(code, 3);
    assert_eq!(shell.refusal(&["election", "info", "a name"]).1, 2);
}

/// A bucket that is unfit for elections is shown, not refused.
#[tokio::test]
async fn info_reports_a_bucket_without_a_ttl() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "-q"]);
    let output = shell.out(&["election", "info", "--bucket", "B"]);
    assert!(
        output.contains("  critical: no TTL: the entry of a dead leader would never expire"),
        "{output}"
    );
    let colored = shell.out(&["election", "info", "--bucket", "B", "--color", "always"]);
    assert!(colored.contains("\u{1b}[") && !output.contains("\u{1b}["), "{colored}");
}

/// An identity of another candidate must not move the cursor.
#[tokio::test]
async fn control_characters_of_an_identity_are_replaced() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "-q"]);
    shell.run_with_input(&["kv", "put", "B", "k"], b"evil\x1b[2J\nname");
    for args in [["election", "list"], ["election", "info"]] {
        let output = shell.out(&[&args[..], &["--bucket", "B"]].concat());
        assert!(output.contains("evil\u{fffd}[2J\u{fffd}name"), "{output}");
    }
}
