//! `kv backup` and `restore`.

use incumbent_test_support::Server;

use crate::shell::Shell;

#[tokio::test(flavor = "multi_thread")]
async fn restored_bucket_has_its_revisions_and_settings() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--election", "--ttl", "1h", "-q"]);
    // More than one chunk.
    let large: Vec<u8> =
        (0..700_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert_eq!(shell.run_with_input(&["kv", "put", "B", "large"], &large).code, Some(0));
    let revision = shell.out(&["kv", "put", "B", "k", "v"]);
    let before = shell.json(&["kv", "status", "B", "-o", "json"]);
    let output = shell.run(&["kv", "backup", "B", "saved"]);
    assert!(output.stderr.starts_with("saved bucket B in saved: "), "{output:?}");
    assert_eq!((output.stdout.as_str(), output.code), ("", Some(0)));
    let (line, code) = shell.refusal(&["kv", "backup", "B", "saved"]);
    assert!(line.contains("already contains a backup"), "{line}");
    assert_eq!(code, 1);
    let (line, _) = shell.refusal(&["kv", "restore", "saved"]);
    assert!(line.contains("bucket B exists; delete it first"), "{line}");

    shell.out(&["kv", "del", "B", "--force"]);
    shell.out(&["kv", "restore", "saved"]);
    assert_eq!(shell.out(&["kv", "get", "B", "k", "--raw"]), "v");
    let entry = shell.json(&["kv", "get", "B", "k", "-o", "json"]);
    assert_eq!(entry["revision"].to_string(), revision.trim());
    let raw = shell.command(&["kv", "get", "B", "large", "--raw"]).output().unwrap();
    assert!(raw.stdout == large);
    let after = shell.json(&["kv", "status", "B", "-o", "json"]);
    for field in ["last_revision", "republish", "ttl_seconds", "entries"] {
        assert_eq!(after[field], before[field], "{field}");
    }

    // A terminal shows the progress.
    shell.out(&["kv", "del", "B", "--force"]);
    let (seen, code) = shell.on_terminal(&["kv", "restore", "saved"]).wait();
    assert!(seen.contains("/s") && seen.contains("restored bucket B"), "{seen:?}");
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn failed_backup_or_restore_is_reported_in_one_line() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    assert_eq!(shell.refusal(&["kv", "backup", "ABSENT", "saved"]).1, 3);
    shell.out(&["kv", "add", "M", "--storage", "memory", "-q"]);
    let (line, _) = shell.refusal(&["kv", "backup", "M", "saved"]);
    assert!(line.contains("buckets in memory"), "{line}");
    shell.out(&["kv", "add", "B", "-q"]);
    shell.write("file", "");
    let (line, code) = shell.refusal(&["kv", "backup", "B", "file"]);
    assert!(line.contains("cannot write"), "{line}");
    assert_eq!(code, 1);
    for (text, expected) in [("junk", "backup.json"), ("{}", "not the backup of a bucket")] {
        shell.write("broken/backup.json", text);
        let (line, code) = shell.refusal(&["kv", "restore", "broken"]);
        assert!(line.contains(expected), "{line}");
        assert_eq!(code, 1);
    }
    // The content is not a stream.
    shell.out(&["kv", "backup", "B", "torn", "-q"]);
    shell.out(&["kv", "del", "B", "--force"]);
    shell.write("torn/stream.tar.s2", "junk");
    let (line, code) = shell.refusal(&["kv", "restore", "torn"]);
    assert!(line.contains("restoration of bucket B"), "{line}");
    assert_eq!(code, 1);
}
