//! `election move`.

use crate::shell::{Running, Shell};

const CAMPAIGN: [&str; 5] = ["campaign", "my_app", "--lease", "2s", "--identity"];

/// A leader `first` at site `a`, and a standby `second` at site `b`.
fn two(shell: &Shell) -> [Running; 2] {
    let mut first = shell.start(&[&CAMPAIGN[..], &["first", "--site", "a"]].concat());
    first.line_with("won");
    let mut second = shell.start(&[&CAMPAIGN[..], &["second", "--site", "b"]].concat());
    second.line_with("leader: first");
    [first, second]
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_to_the_named_candidate_or_site() {
    let (_server, shell) = Shell::serving().await;
    let [mut first, mut second] = two(&shell);
    let output = shell.out(&["election", "move", "my_app", "--to", "second"]);
    first.line_with("lost: handed over to second");
    let token = second.line_with("won").rsplit(' ').next().expect("a token").to_owned();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "handing over to second");
    assert!(lines[1].starts_with("second leads after "), "{output}");
    assert!(lines[1].ends_with(&format!(" with token {token}")), "{output}");

    let output = shell.out(&["election", "move", "my_app", "--to-site", "a"]);
    assert!(output.starts_with("handing over to first\nfirst leads after "), "{output}");
    first.line_with("won");
    let output = shell.out(&["election", "move", "my_app", "--wait", "0s"]);
    assert_eq!(output, "handing over to second\n");
    second.line_with("won");
    let moved = shell.json(&["election", "move", "my_app", "-o", "json"]);
    let fields = ["election", "from", "to", "leader"].map(|field| moved[field].as_str());
    assert_eq!(fields, ["my_app", "second", "first", "first"].map(Some), "{moved}");
    assert!(moved["token"].is_u64() && moved["took_ms"].is_u64(), "{moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_one_line_and_the_leader_leads_on() {
    let (_server, shell) = Shell::serving().await;
    let [_first, mut second] = two(&shell);
    let command = ["election", "move", "my_app"];
    shell.expect_refusal(&["election", "move", "other"], "election other: no leader", 3);
    for flags in [&["--to", "third"][..], &["--to", "first"], &["--to-site", "c"]] {
        let line = shell.expect_refusal(&[&command[..], flags].concat(), "first leads on: ", 1);
        assert!(line.contains("no candidate that may lead next is ready"), "{line}");
    }
    let both = shell.run(&[&command[..], &["--to", "second", "--to-site", "b"]].concat());
    assert_eq!(both.code, Some(2), "{both:?}");
    let output = shell.out(&[&command[..], &["--to", "second"]].concat());
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
