//! `election file`.

use std::path::Path;

use incumbent_test_support::{Server, eventually};

use crate::shell::Shell;

const FILE: [&str; 5] = ["election", "file", "my_app", "leads.json", "--lease=2s"];

fn content(file: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(serde_json::from_str(&text).expect("never half-written"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_there_while_its_keeper_leads() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let file = shell.home().join("leads.json");
    shell.write("leads.json", "of an earlier life");
    let keeper = shell.start(&[&FILE[..], &["--identity", "a", "--interval", "20ms"]].concat());
    let first = eventually("a file of ours", async || {
        let text = std::fs::read_to_string(&file).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()
    })
    .await;
    assert_eq!((&first["election"], &first["leader"]), (&"my_app".into(), &"a".into()));
    let count = first["count"].as_u64().expect("a count");
    eventually("a later one", async || {
        (content(&file)?["count"].as_u64()? > count + 3).then_some(())
    })
    .await;
    let ok = shell.out(&["election", "file", "my_app", "leads.json", "--check", "1m"]);
    assert!(ok.starts_with("OK: my_app: a wrote leads.json ") && ok.lines().count() == 1, "{ok}");

    // Evicted, it goes; elected again, it comes back and counts anew.
    shell.out(&["election", "evict", "my_app", "--force", "--wait", "0s"]);
    eventually("no file, or a new one", async || match content(&file) {
        None => Some(()),
        Some(content) => (content["count"].as_u64()? < count + 3).then_some(()),
    })
    .await;
    eventually("a file again", async || content(&file)).await;

    // A stand-by keeps none, and the file of a leader that leaves is gone before the next one leads.
    assert_eq!(keeper.end_by("TERM"), Some(15));
    assert!(!file.exists());
    let told = shell.run(&["election", "file", "my_app", "leads.json", "--check", "1m"]);
    assert_eq!(told.out, "NOT LEADER: my_app: no file leads.json\n");
    assert_eq!((told.error.as_str(), told.code), ("", Some(3)));
}

#[test]
fn check_tells_what_is_wrong_in_one_line() {
    let shell = Shell::bare();
    let file = |timestamp: &str| {
        format!(
            r#"{{"election": "my_app", "leader": "a", "timestamp": "{timestamp}", "count": 1}}"#
        )
    };
    for (text, told) in [
        (file("2021-11-01T17:30:00Z"), "STALE: my_app: a wrote"),
        (file("2921-11-01T17:30:00Z"), "STALE: my_app: a wrote"),
        (file("yesterday"), "FAILED: my_app: kept has no time"),
        ("junk".to_owned(), "FAILED: my_app: kept was not written"),
        (file("2021-11-01T17:30:00Z").replace("my_app", "other"), "is of election other"),
    ] {
        shell.write("kept", &text);
        let told_now = shell.run(&["election", "file", "my_app", "kept", "--check", "1m"]);
        assert!(told_now.out.contains(told) && told_now.out.lines().count() == 1, "{told_now:?}");
        assert_eq!(told_now.code, Some(1));
    }
}

#[tokio::test]
async fn who_cannot_write_does_not_stand() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let (line, code) = shell.refusal(&["election", "file", "my_app", "/does/not/exist/f"]);
    assert!(line.contains("cannot keep /does/not/exist/f"), "{line}");
    assert_eq!(code, 1);
    assert_eq!(shell.refusal(&["election", "list"]).1, 3, "not even a bucket was made");
}
