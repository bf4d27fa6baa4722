//! `election members`.

use incumbent_test_support::eventually;

use crate::shell::Shell;

#[tokio::test]
async fn candidates_are_listed_by_their_role() {
    let (_server, shell) = Shell::serving().await;
    let campaign = ["campaign", "my_app", "--lease", "2s", "--identity"];
    let mut first = shell.start(&[&campaign[..], &["first"]].concat());
    first.line_with("won");
    let _second = shell.start(&[&campaign[..], &["second"]].concat());
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
