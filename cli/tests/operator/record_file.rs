//! The file of `record`: its size, a full disk, and files that are none.

use std::path::PathBuf;

use incumbent_test_support::{Server, SmallDisk, eventually, jetstream_on};
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

use crate::record::{FILE, history, query, record, recorded, spans};
use crate::screen::Screen;
use crate::shell::{BUCKET, Running, Shell};

#[tokio::test]
async fn file_stays_within_its_size() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    shell.put("quiet", "one");
    let recorder = record(&shell, &["--max-size", "256KiB"]);
    recorded(&shell, "quiet", &["term one -"]).await;
    let jetstream = jetstream_on(server.connect().await);
    let size = |name: &str| std::fs::metadata(shell.home().join(name)).map_or(0, |file| file.len());
    for number in 0..2000 {
        let leader = format!("{number:0500}");
        let put = jetstream.publish(format!("$KV.{BUCKET}.busy"), leader.into()).await;
        put.expect("a request").await.expect("a revision");
    }
    let last = format!("{:0500}", 1999);
    eventually("the last one", async || {
        let history = history(&shell, "busy")?;
        let spans = history["spans"].as_array()?;
        (spans.last()?["leader"] == last.as_str()).then_some(())
    })
    .await;
    assert!(size(FILE) <= 256 << 10, "{}", size(FILE));
    // The log is cut by a write that no reader is beside, and those above were.
    eventually("the log is cut", async || {
        shell.put("busy", "last");
        (size("rec.sqlite-wal") <= 4 << 20).then_some(())
    })
    .await;
    let rows = query(&shell, "SELECT count(*) FROM transition").await[0].0;
    assert!((50..1000).contains(&rows), "{rows}");
    // What it missed while it was behind is unknown, and nothing else.
    let quiet = spans(&history(&shell, "quiet").expect("its history"));
    let (first, unknown) = quiet.split_first().expect("a term");
    assert!(first == "term one -" && unknown.iter().all(|span| span == "unknown - -"), "{quiet:?}");
    recorder.end_with("TERM");
    assert_eq!(
        query(&shell, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'")
            .await,
        [(1,)]
    );
}

/// A recorder whose file is on this disk.
async fn record_on(disk: &SmallDisk) -> (Server, Shell, String, Running) {
    let (server, shell) = Shell::with_leaders(&[]).await;
    let file = disk.path().join("rec.sqlite").display().to_string();
    let mut recorder = shell.start_with_errors(&["record", "--to", &file]);
    recorder.line_with("recording ");
    (server, shell, file, recorder)
}

/// Returns the file that fills the disk.
pub fn fill(disk: &SmallDisk) -> PathBuf {
    let filler = disk.path().join("filler");
    let full = std::fs::write(&filler, vec![0; 4 << 20]).expect_err("too large");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    filler
}

#[tokio::test]
async fn recorder_waits_for_room_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("a recording on a full disk") else {
        return;
    };
    let (_server, shell, file, mut recorder) = record_on(&disk).await;
    let is_recorded = async |name: &str, leader: &str| {
        eventually("its leader is recorded", async || {
            let args = ["election", "history", name, "--from", &file, "-o", "json"];
            let history: Value = serde_json::from_str(&shell.run(&args).stdout).ok()?;
            let spans = history["spans"].as_array()?;
            let leaders: Vec<_> = spans.iter().filter_map(|s| s["leader"].as_str()).collect();
            (leaders == [leader]).then_some(())
        })
        .await;
    };
    shell.put("first", "alpha");
    is_recorded("first", "alpha").await;
    let filler = fill(&disk);
    // Each in an election of its own: a bucket keeps the last entry, and one that is overwritten
    // before it is delivered is never seen. The log may have pages that are written again.
    let leaders: Vec<_> =
        (0..40).map(|number| (format!("e{number}"), format!("{number:0900}"))).collect();
    for (name, leader) in &leaders {
        shell.put(name, leader);
    }
    let note = recorder.line_with("not recording for now");
    assert!(note.contains("the disk is full"), "{note}");
    std::fs::remove_file(&filler).expect("it is there");
    recorder.line_with("recording again");
    for (name, leader) in &leaders {
        is_recorded(name, leader).await;
    }
    assert_eq!(recorder.end_with("TERM"), Some(15));
}

#[tokio::test]
async fn transitions_that_a_full_disk_takes_are_counted_at_the_end() {
    let Some(disk) = SmallDisk::mount("the end of a recording on a full disk") else {
        return;
    };
    let (_server, shell, _, mut recorder) = record_on(&disk).await;
    fill(&disk);
    for number in 0..40 {
        shell.put("e", &format!("{number:0900}"));
    }
    recorder.line_with("not recording for now");
    recorder.signal("TERM");
    let note = recorder.line_with("not written: ");
    assert!(note.contains(" transitions were ") && note.contains("the disk is full"), "{note}");
    assert_eq!(recorder.wait(), Some(1));
}

#[tokio::test]
async fn bucket_that_was_created_anew_needs_another_file() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    shell.put("e", "one");
    let recorder = record(&shell, &[]);
    recorded(&shell, "e", &["term one -"]).await;
    recorder.end_with("TERM");
    let recorder = record(&shell, &[]);
    recorder.end_with("TERM");
    shell.out(&["kv", "rm", BUCKET, "--force"]);
    shell.out(&["kv", "add", BUCKET, "--election", "--ttl", "1h", "-q"]);
    shell.put("e", "two");
    shell.expect_refusal(&["record", "--to", FILE], "rec.sqlite is a recording of", 2);
    assert_eq!(spans(&history(&shell, "e").expect("a recording"))[0], "term one -");
}

#[tokio::test]
async fn unfit_file_is_one_clear_line() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    shell.put("e", "one");
    shell.write("text", "not a database, but rather long: ".repeat(100).as_str());
    let make = async |name: &str, sql: &'static str| {
        let url = format!("sqlite:{}?mode=rwc", shell.home().join(name).display());
        let mut connection = SqliteConnection::connect(&url).await.expect("a file");
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("a database");
        connection.close().await.expect("an end");
    };
    make("foreign", "CREATE TABLE t (a)").await;
    make(
        "newer",
        "PRAGMA application_id = 1229865810; PRAGMA user_version = 2; CREATE TABLE t (a)",
    )
    .await;
    shell.write("damaged", &format!("SQLite format 3\0{}", "x".repeat(5000)));
    std::fs::create_dir(shell.home().join("directory")).expect("a directory");
    let unfit = [
        ("text", "text is not a SQLite file"),
        ("foreign", "foreign is a database of another program: choose another file"),
        ("newer", "newer was recorded by a newer version of incumbent (format 2)"),
        ("damaged", "damaged"),
        ("directory", "directory cannot be"),
        ("absent/rec", "absent/rec"),
    ];
    for (name, text) in unfit {
        shell.expect_refusal(&["record", "--to", name], text, 1);
        let code = if name.starts_with("absent") { 3 } else { 1 };
        shell.expect_refusal(&["election", "history", "e", "--from", name], text, code);
        let screen = Screen::start(&shell, &["top", "--recording", name], (150, 24));
        screen.wait_for(&["e ", "one"]);
        screen.wait_for(&["no recording: "]);
        screen.press("q");
        assert_eq!(screen.wait(), Some(0));
    }
    shell.expect_refusal(&["record", "--to", "/proc/rec"], "cannot write /proc/rec", 1);
    for left in ["foreign-lock", "foreign-wal", "text-lock"] {
        assert!(!shell.home().join(left).exists(), "{left}");
    }

    let recorder = record(&shell, &[]);
    shell.expect_refusal(&["record", "--to", FILE], "another recorder writes it", 1);
    recorded(&shell, "e", &["term one -"]).await;
    let absent = ["election", "history", "absent", "--from", FILE];
    shell.expect_refusal(&absent, "nothing of it is in rec.sqlite", 3);
    recorder.end_with("TERM");
    shell.out(&["kv", "add", "OTHER", "--election", "-q"]);
    let other = ["record", "--to", FILE, "--bucket", "OTHER"];
    shell.expect_refusal(&other, "to another file", 2);
    for size in ["", "1", "-1", "64", "9PiB"] {
        let flag = format!("--max-size={size}");
        assert_eq!(shell.run(&["record", "--to", FILE, &flag]).code, Some(2), "{size:?}");
    }
}

#[tokio::test]
async fn moved_file_ends_the_recorder() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    let mut recorder = record(&shell, &[]);
    shell.put("e", "one");
    recorded(&shell, "e", &["term one -"]).await;
    std::fs::rename(shell.home().join(FILE), shell.home().join("elsewhere")).expect("a file");
    shell.put("e", "two");
    recorder.line_with("rec.sqlite: it was moved or deleted: restart the recorder");
    assert_eq!(recorder.wait(), Some(1));
}
