//! One file under several names, and one machine under several.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use incumbent::lock::LockErrorKind;
use incumbent::sql::{SqlErrorKind, Sqlite};
use incumbent_test_support::{eventually, not_run};
use rustix::process::Signal;
use sqlx::Row;

use crate::conformance::{leads, soon};
use crate::file::FileEnv;
use crate::sqlite::Candidate;

const LEASE: Duration = Duration::from_secs(3);

/// Has what follows run where `$0` is mounted at `$1`, and no other process sees it.
const MOUNTED: [&str; 5] =
    ["unshare", "--mount", "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""];

fn may_mount(what: &str) -> bool {
    let (program, arguments) = MOUNTED.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).args(["/dev/null", "/proc/sys/kernel/random/boot_id", "true"]);
    let may = command.status().is_ok_and(|status| status.success());
    if !may {
        not_run(what, "nothing may be mounted here: be root");
    }
    may
}

fn with_mounted(what: &Path, at: &Path, env: &FileEnv, number: usize) -> Candidate {
    let [what, at_text] = [what, at].map(|path| path.to_str().expect("a plain path"));
    let by = [&MOUNTED[..], &[what, at_text]].concat();
    let elections = if at.starts_with("/proc") { env.path() } else { at.to_owned() };
    Candidate::start_by(&by, env, number, elections)
}

/// Containers of LXC, systemd-nspawn and others have a boot identifier of their own each. They are
/// on one machine all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn containers_with_their_own_boot_ids_supersede_no_other() {
    if !may_mount("containers with boot identifiers of their own") {
        return;
    }
    let env = FileEnv::new(Duration::from_secs(15)); // longer than a busy machine stands still
    let start = |number: usize| {
        let identifier = env.directory.path().join(format!("boot-{number}"));
        fs::write(&identifier, format!("00000000-0000-0000-0000-00000000000{number}\n")).unwrap();
        let shown = Path::new("/proc/sys/kernel/random/boot_id");
        with_mounted(&identifier, shown, &env, number)
    };
    let first = start(0);
    let has_won = |identity: &str| Candidate::wins(&env).iter().any(|(who, _)| who == identity);
    eventually("the first leads", async || has_won("process-0").then_some(())).await;
    let _second = start(1);
    // A candidate that took the lease for over would acquire it within the first of these renewals.
    eventually("it still leads", async || {
        let row = env.row().await.expect("a row");
        assert_eq!(row.get::<&str, _>("boot"), "00000000-0000-0000-0000-000000000000");
        (row.get::<i64, _>("revision") > row.get::<i64, _>("token") + 4).then_some(())
    })
    .await;
    first.process.signal(Signal::KILL);
    eventually("the second leads", async || has_won("process-1").then_some(())).await;
    let log = Candidate::log(&env);
    assert!(!log.contains("overlap"), "{log}");
}

/// Each name has a log of its own, so who uses one sees nothing of what is written under the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_linked_file_is_refused_under_all_its_names() {
    let env = FileEnv::new(LEASE);
    let first = env.campaign("first").await;
    let leadership = leads(&first).await;
    let other = env.directory.path().join("other.db");
    fs::hard_link(env.path(), &other).unwrap();
    let error = Sqlite::open(&other).await.unwrap_err();
    assert_eq!(error.kind(), SqlErrorKind::Misconfigured);
    let what = "has 2 names (hard links), each with a log of its own: remove the others";
    assert_eq!(error.to_string(), format!("{} {what}", other.display()));
    soon("the end", leadership.ended()).await;
    let failure = eventually("a failure", async || {
        first.lock_failure().filter(|failure| failure.kind == LockErrorKind::Misconfigured)
    })
    .await;
    assert!(failure.message.ends_with(what), "{}", failure.message);
    drop(leadership);
    fs::remove_file(other).unwrap();
    drop(leads(&first).await);
}

#[tokio::test]
async fn a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let error = Sqlite::open(directory.path()).await.unwrap_err();
    assert_eq!(error.kind(), SqlErrorKind::Misconfigured);
    assert!(error.to_string().contains("is not a regular file"), "{error}");
}

/// As a container has it that is given the file, and not its directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    if !may_mount("a file that is mounted by itself") {
        return;
    }
    let env = FileEnv::new(LEASE);
    drop(env.sqlite_lock().await);
    let other = env.directory.path().join("other.db");
    fs::write(&other, "").unwrap();
    let mut process = with_mounted(&env.path(), &other, &env, 0);
    eventually("it is refused", async || process.process.ended()).await;
    let errors = process.errors(&env);
    assert!(errors.contains("other.db is a mount point, and its log is not beside"), "{errors}");
    assert!(!env.directory.path().join("other.db-wal").exists());
}
