//! `election pause` and `resume`.

use incumbent_test_support::eventually;

use crate::shell::Shell;

const CAMPAIGN: [&str; 5] = ["campaign", "my_app", "--lease", "2s", "--identity"];
const MEMBERS: [&str; 5] = ["election", "members", "my_app", "--within", "300ms"];

#[tokio::test(flavor = "multi_thread")]
async fn sick_leader_moves_only_after_the_pause() {
    let (_server, shell) = Shell::serving().await;
    let sick = shell.home().join("sick");
    let check = format!("[ ! -e {sick} ] || {{ echo disk full; exit 1; }}", sick = sick.display());
    let check = ["--check", &check, "--check-interval", "100ms", "--check-failures", "2"];
    let mut first = shell.start(&[&CAMPAIGN[..], &["first"], &check[..]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second"]].concat());
    second.line_with("leader: first");

    let output = shell.out(&["election", "pause", "my_app", "--for", "10m"]);
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

    let output = shell.out(&["election", "resume", "my_app"]);
    assert_eq!(output, "resumed: first states it in its entry\n");
    first.line_with("lost: handed over to second");
    second.line_with("won");
    assert!(!shell.out(&MEMBERS).contains("paused"));
    let call = |verb| shell.json(&["election", verb, "my_app", "-o", "json"]);
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
