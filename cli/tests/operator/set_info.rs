//! `incumbent set info`.

use incumbent_test_support::eventually;

use crate::shell::{Running, Shell};

/// Starts a member of the set `shop`, whose command does nothing.
fn member(shell: &Shell, identity: &str, flags: &[&str]) -> Running {
    let arguments = ["set", "run", "shop", "--shards", "4", "--lease", "30s", "--settle", "100ms"];
    let arguments = [&arguments[..], &["--identity", identity], flags].concat();
    let command = ["--", "/bin/sh", "-c", "echo up $1; exec /bin/sleep 1000", "sh", "{shard}"];
    shell.start(&[&arguments[..], &command].concat())
}

#[tokio::test]
async fn leaders_loads_and_idle_members_are_shown() {
    let (_server, shell) = Shell::serving().await;
    let mut first = member(&shell, "first", &[]);
    for _ in 0..4 {
        first.line_with("up");
    }
    let idle = member(&shell, "idle", &["--stand-aside", "--weight", "2"]);
    let info = ["set", "info", "shop", "--within", "300ms"];
    let as_json = [&info[..], &["-o", "json"]].concat();
    let found = eventually("both members answer", async || {
        let found = shell.json(&as_json);
        let members = found["members"].as_array()?;
        let answers = members.iter().filter(|member| member["shards"].is_number());
        (answers.count() == 2).then_some(found)
    })
    .await;
    assert_eq!(found["set"], "shop");
    assert_eq!(found["shards"].as_array().map(Vec::len), Some(4), "as the members state");
    assert_eq!(found["shards"][3]["leader"], "first");
    assert!(found["shards"][3]["token"].as_u64().is_some_and(|token| token > 0), "{found}");
    assert_eq!((&found["imbalance"], &found["leaderless"]), (&0.0.into(), &serde_json::json!([])));
    let expected = serde_json::json!([
        {"identity": "first", "leads": 4, "weight": 1, "standing": "ready", "shards": 4, "resizing": null},
        {"identity": "idle", "leads": 0, "weight": 2, "standing": "aside", "shards": 4, "resizing": null},
    ]);
    assert_eq!(found["members"], expected);

    let with_six = [&info[..], &["--shards", "6"]].concat();
    let has_row = |text: &str, words: &[&str]| {
        text.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()))
    };
    let text = eventually("both members answer", async || {
        let text = shell.out(&with_six);
        let both = has_row(&text, &["first", "4", "1", "ready"])
            && has_row(&text, &["idle", "0", "2", "aside", "4"]);
        both.then_some(text)
    })
    .await;
    assert!(text.starts_with("Set shop: 6 shards, 2 members, imbalance 0\n"), "{text}");
    assert!(has_row(&text, &["no", "leader:", "4-5"]), "{text}");
    assert!(has_row(&text, &["3", "first"]) && has_row(&text, &["5", "none", "-"]), "{text}");

    drop((first, idle));
    let line = "no member answers, and no shard was found";
    shell.expect_refusal(&["set", "info", "other", "--within", "100ms"], line, 3);
    shell.expect_refusal(&["set", "info", "a b"], "is not a valid election name", 2);
    shell.expect_refusal(&["set", "info", "shop", "--within", "1h"], "--within is at most 30s", 2);
}

#[tokio::test]
async fn members_whose_numbers_of_shards_do_not_go_together_are_shown() {
    let (_server, shell) = Shell::serving().await;
    let mut first = member(&shell, "first", &["--resizing", "8"]);
    for _ in 0..4 {
        first.line_with("up");
    }
    let info = ["set", "info", "shop", "--within", "300ms"];
    let found = eventually("the member answers", async || {
        let found = shell.json(&[&info[..], &["-o", "json"]].concat());
        found["members"][0]["shards"].is_number().then_some(found)
    })
    .await;
    assert_eq!(
        (&found["members"][0]["shards"], &found["members"][0]["resizing"]),
        (&4.into(), &8.into())
    );
    assert_eq!(found["differing"], serde_json::json!([]));
    let flags = ["set", "run", "shop", "--shards", "6", "--lease", "30s", "--identity", "other"];
    let _other = shell.start(&[&flags[..], &["--", "/bin/sleep", "1000"]].concat());
    let text = eventually("both members answer", async || {
        let text = shell.out(&[&info[..], &["--shards", "4"]].concat());
        let first = text.lines().any(|line| line.ends_with("4, resizing 8"));
        (first && text.contains("other ")).then_some(text)
    })
    .await;
    assert!(text.contains("different numbers of shards (4, 6)"), "{text}");
}
