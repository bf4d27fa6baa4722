//! `election file`.

use std::path::Path;

use incumbent_test_support::eventually;

use crate::shell::Shell;

const FILE: [&str; 5] = ["election", "file", "my_app", "leads.json", "--lease=30s"];

fn content(file: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(serde_json::from_str(&text).expect("a complete file"))
}

#[tokio::test(flavor = "multi_thread")]
async fn file_exists_while_its_candidate_leads() {
    let (_server, shell) = Shell::serving().await;
    let file = shell.home().join("leads.json");
    shell.write("leads.json", "of an earlier run");
    let candidate = shell.start(&[&FILE[..], &["--identity", "a", "--interval", "20ms"]].concat());
    let first = eventually("the file of this candidate", async || {
        let text = std::fs::read_to_string(&file).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()
    })
    .await;
    assert_eq!((&first["election"], &first["leader"]), (&"my_app".into(), &"a".into()));
    let count = first["count"].as_u64().expect("a count");
    eventually("a later write", async || {
        (content(&file)?["count"].as_u64()? > count + 3).then_some(())
    })
    .await;
    let ok = shell.out(&["election", "file", "my_app", "leads.json", "--check", "1m"]);
    assert!(ok.starts_with("OK: my_app: a wrote leads.json ") && ok.lines().count() == 1, "{ok}");

    // An eviction removes the file. The next win, 5 s later, creates it again, with a new count.
    let before = content(&file).expect("it leads")["count"].as_u64().expect("a count");
    shell.out(&["election", "evict", "my_app", "--force", "--wait", "0s"]);
    eventually("no file, or a new one", async || match content(&file) {
        None => Some(()),
        Some(content) => (content["count"].as_u64()? < before).then_some(()),
    })
    .await;
    eventually("a file again", async || content(&file)).await;

    // A leader removes its file before it releases the lock.
    assert_eq!(candidate.end_with("TERM"), Some(15));
    assert!(!file.exists());
    let output = shell.run(&["election", "file", "my_app", "leads.json", "--check", "1m"]);
    assert_eq!(output.stdout, "NOT LEADER: my_app: no file leads.json\n");
    assert_eq!((output.stderr.as_str(), output.code), ("", Some(3)));
}

/// As when its terminal is closed.
#[tokio::test(flavor = "multi_thread")]
async fn hangup_removes_the_file_and_releases_the_lock() {
    let (_server, shell) = Shell::serving().await;
    let file = shell.home().join("leads.json");
    let candidate = shell.start(&[&FILE[..], &["--identity", "a"]].concat());
    eventually("the file", async || content(&file)).await;
    assert_eq!(candidate.end_with("HUP"), Some(1));
    assert!(!file.exists());
    assert_eq!(shell.run(&["leader", "my_app"]).stdout, "", "nobody leads");
}

#[test]
fn failed_check_is_reported_in_one_line() {
    let shell = Shell::bare();
    let file = |timestamp: &str| {
        format!(
            r#"{{"election": "my_app", "leader": "a", "timestamp": "{timestamp}", "count": 1}}"#
        )
    };
    for (text, expected) in [
        (file("2021-11-01T17:30:00Z"), "STALE: my_app: a wrote"),
        (file("2921-11-01T17:30:00Z"), "STALE: my_app: a wrote"),
        (file("yesterday"), "FAILED: my_app: kept has no time"),
        ("junk".to_owned(), "FAILED: my_app: kept was not written"),
        (file("2021-11-01T17:30:00Z").replace("my_app", "other"), "is of election other"),
    ] {
        shell.write("kept", &text);
        let output = shell.run(&["election", "file", "my_app", "kept", "--check", "1m"]);
        assert!(
            output.stdout.contains(expected) && output.stdout.lines().count() == 1,
            "{output:?}"
        );
        assert_eq!(output.code, Some(1));
    }
}

#[tokio::test]
async fn candidate_that_cannot_write_does_not_campaign() {
    let (_server, shell) = Shell::serving().await;
    shell.expect_refusal(
        &["election", "file", "my_app", "/does/not/exist/f"],
        "cannot keep /does/not/exist/f",
        1,
    );
    assert_eq!(shell.refusal(&["election", "list"]).1, 3, "no bucket was created");
}
