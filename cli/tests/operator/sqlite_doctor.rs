//! `doctor` of elections in a SQLite file, and of several locks at once.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use incumbent_test_support::{Server, SmallDisk, not_run};
use rustix::process::geteuid;
use serde_json::Value;

use crate::doctor::{doctor, expect_line};
use crate::shell::Shell;

const LOCK: [&str; 2] = ["--lock", "sqlite:elections.db"];

#[test]
fn file_is_checked_and_not_created() {
    let shell = Shell::bare();
    let report = doctor(&shell, &LOCK, 0);
    expect_line(&report, "ok       sqlite ", "SQLite 3.");
    expect_line(&report, "ok       file ", "no elections.db yet: the first candidate creates it");
    expect_line(&report, "ok       room ", "free on its disk");
    for role in ["an observer", "a candidate", "an administrator"] {
        expect_line(&report, "ok       rights ", &format!("all rights of {role}"));
    }
    assert_eq!(std::fs::read_dir(shell.home()).unwrap().count(), 0, "no file is created");
    let report = doctor(&shell, &["--lock", "sqlite:elections.db?create=no"], 2);
    expect_line(&report, "error    file ", "no elections.db: remove create=no");
    let report = doctor(&shell, &["--lock", "sqlite:absent/elections.db"], 2);
    expect_line(&report, "error    file ", "there is no directory for absent/elections.db");

    let mut leader = shell.start(&[&["campaign", "my_app", "--lease", "20s"][..], &LOCK].concat());
    leader.line_with("won");
    let report = doctor(&shell, &[&LOCK[..], &["my_app"]].concat(), 0);
    expect_line(&report, "ok       file ", "it has the tables, with a maximum lease of 20s");
    expect_line(&report, "ok       journal ", "wal");
    let report = doctor(&shell, &[&LOCK[..], &["--lease", "30s"]].concat(), 2);
    expect_line(&report, "error    round trip ", "a lease of 30s is longer");
    leader.end_with("TERM");

    shell.write("junk.db", &"no database ".repeat(100));
    let report = doctor(&shell, &["--lock", "sqlite:junk.db"], 2);
    expect_line(&report, "error    file ", "junk.db is not a SQLite database, or is damaged");
}

/// Creates the file by a campaign.
fn create_file(shell: &Shell, lock: &[&str]) {
    let mut leader = shell.start(&[&["campaign", "my_app"][..], lock].concat());
    leader.line_with("won");
    leader.end_with("TERM");
}

#[test]
fn full_or_read_only_disk_is_an_error() {
    let Some(disk) = SmallDisk::mount("doctor on a full disk") else { return };
    let shell = Shell::bare();
    let lock = format!("sqlite:{}/elections.db", disk.path().display());
    let report = doctor(&shell, &["--lock", &lock], 1);
    expect_line(&report, "warning  room ", "free some space");
    create_file(&shell, &["--lock", &lock]);
    std::fs::write(disk.path().join("filler"), vec![0; 1_500_000]).unwrap();
    let report = doctor(&shell, &["--lock", &lock], 2);
    expect_line(
        &report,
        "error    room ",
        "a leader that cannot renew stops at its deadline; free some space",
    );

    disk.remount_read_only();
    let report = doctor(&shell, &["--lock", &lock], 2);
    expect_line(
        &report,
        "error    file ",
        "cannot be opened: check that it and its directory may be written",
    );
    let missing = lock.replace("elections.db", "other.db");
    let report = doctor(&shell, &["--lock", &missing], 2);
    expect_line(&report, "error    rights ", "a candidate needs creating files in");
    doctor(&shell, &["--lock", &missing, "--role", "observer"], 2);
}

/// Root can write every file that is not immutable.
fn make_read_only(file: &Path) -> bool {
    if !geteuid().is_root() {
        std::fs::set_permissions(file, Permissions::from_mode(0o444)).unwrap();
        return true;
    }
    let marked = Command::new("chattr").arg("+i").arg(file).status();
    if !marked.is_ok_and(|status| status.success()) {
        not_run("doctor on a read-only file", "chattr +i fails here");
        return false;
    }
    true
}

#[test]
fn read_only_file_is_an_error_for_candidates() {
    let shell = Shell::bare();
    create_file(&shell, &LOCK);
    let file = shell.home().join("elections.db");
    // The last process to close the file removes its journal.
    doctor(&shell, &LOCK, 0);
    let before = std::fs::read(&file).unwrap();
    doctor(&shell, &LOCK, 0);
    assert!(std::fs::read(&file).unwrap() == before, "nothing is written");
    if !make_read_only(&file) {
        return;
    }
    let report = doctor(&shell, &LOCK, 2);
    let _ = Command::new("chattr").arg("-i").arg(&file).status();
    expect_line(&report, "error    rights ", "a candidate needs writing to elections.db (");
    expect_line(&report, "ok       rights ", "all rights of an observer");
}

#[tokio::test]
async fn each_of_several_locks_is_checked_separately() {
    let server = Server::start().await;
    let shell = Shell::bare();
    let bucket = format!("{}/MINE", server.url());
    shell.out(&["kv", "add", "MINE", "--election", "-q", "--server", &server.url()]);
    let both = format!("{bucket} sqlite:elections.db memory:mine");
    let report = doctor(&shell, &["--lock", &both], 0);
    let at =
        |text: &str| report.stdout.find(text).unwrap_or_else(|| panic!("no {text}: {report:?}"));
    assert!(at(&format!("Lock {bucket}\n")) < at("with bucket MINE"));
    assert!(at("with bucket MINE") < at("Lock sqlite:elections.db\n"));
    assert!(at("Lock memory:mine\n") < at("nothing to check"));
    assert!(at("nothing to check") < at("This machine\n"));
    let broken = "sqlite:absent/x.db?need=best-effort";
    let output = shell.run(&["doctor", "-o", "json", "--lock", &format!("memory: {broken}")]);
    assert_eq!(output.code, Some(1), "a best-effort lock is not required: {output:?}");
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let mut findings = json["findings"].as_array().unwrap().iter();
    let last = findings.rfind(|finding| finding["check"] != "clock rate").unwrap();
    assert_eq!((&last["lock"], &last["level"]), (&broken.into(), &"warning".into()));
}
