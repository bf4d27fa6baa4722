//! Command lines that are refused in one line.

use crate::env::incumbent;

/// The line and the exit code of `incumbent set run arguments`.
fn refusal(arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = incumbent();
    let output = command.args(["set", "run"]).args(arguments).output().expect("it starts");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (stderr, output.status.code())
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let unreachable = ["--timeout", "1s", "--server", "nats://127.0.0.1:1", "--", "true"];
    let unreachable = [&["shop", "--shards", "2"][..], &unreachable].concat();
    for (arguments, text, code) in [
        (&["shop", "--shards", "0", "--", "true"][..], "0 shards: give 1 to 100000", 2),
        (&["shop", "--shards", "100001", "--lock", "memory:", "--", "true"], "100001 shards", 2),
        (&["shop", "--shards", "4", "--resizing", "6", "--", "true"], "a multiple of it", 2),
        (&["shop", "--shards", "8", "--resizing", "4", "--", "true"], "give the lower number", 2),
        (&["shop", "--shards", "4", "--resizing", "0", "--", "true"], "between 4 and 0 shards", 2),
        (&["a b", "--shards", "2", "--", "true"], "is not a valid election name", 2),
        (&["shop", "--shards", "2", "--", "no-such-command"], "no command no-such-command", 127),
        (&["shop", "--shards", "2", "--with-choria", "--", "true"], "--with-choria cannot", 2),
        (&["shop", "--shards", "2", "--http", "x", "--", "true"], "invalid --http", 2),
        (&unreachable, "cannot reach a NATS server", 4),
    ] {
        let (stderr, exit_code) = refusal(arguments);
        assert!(stderr.starts_with("incumbent: ") && stderr.contains(text), "{stderr}");
        assert_eq!((stderr.lines().count(), exit_code), (1, Some(code)), "{stderr}");
    }
}

#[test]
fn lock_without_messages_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let set = ["set", "run", "shop", "--shards", "2", "--lock", &url, "--", "true"];
    let seats = ["run", "shop", "--seats", "2", "--lock", &url, "--", "true"];
    for arguments in [&set[..], &seats] {
        let output = incumbent().args(arguments).output().expect("it starts");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert!(stderr.starts_with("incumbent: this lock carries no messages"), "{stderr}");
        assert!(stderr.contains("use a lock on NATS, PostgreSQL"), "{stderr}");
        assert_eq!((stderr.lines().count(), output.status.code()), (1, Some(2)), "{stderr}");
    }
}

#[test]
fn missing_and_malformed_flags_are_refused() {
    for (arguments, text) in [
        (&["shop", "--", "true"][..], "--shards <N>"),
        (&["--shards", "2", "--", "true"], "<NAME>"),
        (&["shop", "--shards", "2"], "<COMMAND>"),
        (&["shop", "--shards", "two", "--", "true"], "'two' for '--shards <N>': give 1 to 100000"),
        (&["shop", "--shards", "-1", "--", "true"], "'-1' for '--shards <N>': give 1 to 100000"),
        (&["shop", "--shards", "99999999999", "--", "true"], "give 1 to 100000"),
        (&["shop", "--shards", "2", "--weight", "-1", "--", "true"], "give 1 to 1000"),
        (&["shop", "--shards", "2", "--resizing", "-4", "--", "true"], "give 1 to 100000"),
        (&["shop", "--shards", "2", "--max-shards", "0", "--", "true"], "--max-shards"),
        (&["shop", "--shards", "2", "--moves-at-once", "0", "--", "true"], "--moves-at-once"),
    ] {
        let (stderr, exit_code) = refusal(arguments);
        assert!(stderr.contains(text), "{stderr}");
        assert_eq!(exit_code, Some(2), "{stderr}");
    }
}
