//! `doctor` of elections in a SQLite file, and of several locks at once.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use incumbent_test_support::{Server, SmallDisk, not_run};
use rustix::process::geteuid;
use serde_json::Value;

use crate::doctor::{doctor, line};
use crate::shell::Shell;

const LOCK: [&str; 2] = ["--lock", "sqlite:elections.db"];

#[test]
fn a_file_is_judged_and_not_made() {
    let shell = Shell::bare();
    let told = doctor(&shell, &LOCK, 0);
    line(&told, "ok       sqlite ", "SQLite 3.");
    line(&told, "ok       file ", "no elections.db yet: the first candidate creates it");
    line(&told, "ok       room ", "free on its disk");
    for role in ["an observer", "a candidate", "an administrator"] {
        line(&told, "ok       rights ", &format!("all rights of {role}"));
    }
    assert_eq!(std::fs::read_dir(shell.home()).unwrap().count(), 0, "nothing is made");
    let told = doctor(&shell, &["--lock", "sqlite:elections.db?create=no"], 2);
    line(&told, "error    file ", "no elections.db: remove create=no");
    let told = doctor(&shell, &["--lock", "sqlite:absent/elections.db"], 2);
    line(&told, "error    file ", "there is no directory for absent/elections.db");

    let mut leader = shell.start(&[&["campaign", "my_app", "--lease", "2s"][..], &LOCK].concat());
    leader.line_with("won");
    let told = doctor(&shell, &[&LOCK[..], &["my_app"]].concat(), 0);
    line(&told, "ok       file ", "it has the tables, with a maximum lease of 2s");
    line(&told, "ok       journal ", "wal");
    let told = doctor(&shell, &[&LOCK[..], &["--lease", "3s"]].concat(), 2);
    line(&told, "error    round trip ", "a lease of 3s is longer");
    leader.end_by("TERM");

    shell.write("junk.db", &"no database ".repeat(100));
    let told = doctor(&shell, &["--lock", "sqlite:junk.db"], 2);
    line(&told, "error    file ", "junk.db is no SQLite database, or is damaged");
}

/// Has a campaigner make the file.
fn make(shell: &Shell, lock: &[&str]) {
    let mut leader = shell.start(&[&["campaign", "my_app"][..], lock].concat());
    leader.line_with("won");
    leader.end_by("TERM");
}

#[test]
fn a_disk_that_is_full_or_read_only_is_an_error() {
    let Some(disk) = SmallDisk::mount("what doctor says of a full disk") else { return };
    let shell = Shell::bare();
    let lock = format!("sqlite:{}/elections.db", disk.path().display());
    let told = doctor(&shell, &["--lock", &lock], 1);
    line(&told, "warning  room ", "free some space");
    make(&shell, &["--lock", &lock]);
    std::fs::write(disk.path().join("filler"), vec![0; 1_500_000]).unwrap();
    let told = doctor(&shell, &["--lock", &lock], 2);
    line(
        &told,
        "error    room ",
        "a leader that cannot renew stops at its deadline; free some space",
    );

    disk.remount_read_only();
    let told = doctor(&shell, &["--lock", &lock], 2);
    line(
        &told,
        "error    file ",
        "cannot be opened: see whether it and its directory may be written",
    );
    let missing = lock.replace("elections.db", "other.db");
    let told = doctor(&shell, &["--lock", &missing], 2);
    line(&told, "error    rights ", "a candidate needs creating files in");
    doctor(&shell, &["--lock", &missing, "--role", "observer"], 2);
}

/// Root may write to whatever is not marked as immutable.
fn make_read_only(file: &Path) -> bool {
    if !geteuid().is_root() {
        std::fs::set_permissions(file, Permissions::from_mode(0o444)).unwrap();
        return true;
    }
    let marked = Command::new("chattr").arg("+i").arg(file).status();
    if !marked.is_ok_and(|status| status.success()) {
        not_run("what doctor says of a read-only file", "no file may be made immutable here");
        return false;
    }
    true
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_for_those_who_write() {
    let shell = Shell::bare();
    make(&shell, &LOCK);
    let file = shell.home().join("elections.db");
    // Whoever closes it last tidies up what the one before has left in its journal.
    doctor(&shell, &LOCK, 0);
    let before = std::fs::read(&file).unwrap();
    doctor(&shell, &LOCK, 0);
    assert!(std::fs::read(&file).unwrap() == before, "nothing is written");
    if !make_read_only(&file) {
        return;
    }
    let told = doctor(&shell, &LOCK, 2);
    let _ = Command::new("chattr").arg("-i").arg(&file).status();
    line(&told, "error    rights ", "a candidate needs writing to elections.db (");
    line(&told, "ok       rights ", "all rights of an observer");
}

#[tokio::test]
async fn each_of_several_locks_is_judged_by_itself() {
    let server = Server::start().await;
    let shell = Shell::bare();
    let bucket = format!("{}/MINE", server.url());
    shell.out(&["kv", "add", "MINE", "--election", "-q", "--server", &server.url()]);
    let both = format!("{bucket} sqlite:elections.db memory:mine");
    let told = doctor(&shell, &["--lock", &both], 0);
    let at = |text: &str| told.out.find(text).unwrap_or_else(|| panic!("no {text}: {told:?}"));
    assert!(at(&format!("Lock {bucket}\n")) < at("with bucket MINE"));
    assert!(at("with bucket MINE") < at("Lock sqlite:elections.db\n"));
    assert!(at("Lock memory:mine\n") < at("nothing to check"));
    assert!(at("nothing to check") < at("This machine\n"));
    let broken = "sqlite:absent/x.db?need=best-effort";
    let json = shell.run(&["doctor", "-o", "json", "--lock", &format!("memory: {broken}")]);
    assert_eq!(json.code, Some(1), "a term goes on without it: {json:?}");
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    let mut findings = json["findings"].as_array().unwrap().iter();
    let last = findings.rfind(|finding| finding["check"] != "clock rate").unwrap();
    assert_eq!((&last["lock"], &last["level"]), (&broken.into(), &"warning".into()));
}
