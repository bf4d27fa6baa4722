//! The deadline file of a command.
//!
//! A thread of its own writes it, so that a hung disk does not block the renewals.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Token};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use tokio::sync::watch;

use super::grace::Grace;
use super::traffic::MARKER;
use crate::error::{CliError, Code};
use crate::output;
use crate::process::{on_own_thread, sleep_until};

/// The variable with the path of the file.
pub const DEADLINE_FILE: &str = "INCUMBENT_DEADLINE_FILE";
/// What COMMAND and the hooks of a term see.
pub fn variables(election: &Election, token: Token, file: &Path) -> [(&'static str, OsString); 4] {
    [
        ("INCUMBENT_ELECTION", election.name().into()),
        ("INCUMBENT_IDENTITY", election.identity().into()),
        ("INCUMBENT_TOKEN", token.to_string().into()),
        (DEADLINE_FILE, file.into()),
    ]
}

/// All users may read it: a command that drops its privileges still needs its deadline.
const READABLE: u32 = 0o644;
const PASSABLE: u32 = 0o755;
/// How long the last write, or the removal, may take on a hung disk.
const LAST: Duration = Duration::from_secs(1);
/// How much longer a write that is late may take before its disk counts as hung.
const LATE: Duration = Duration::from_secs(2);
/// How soon the end of a term is written again, once that has failed.
const RETRY: Duration = Duration::from_millis(200);
/// Why a write has no result.
const HUNG: &str = "the disk does not respond";

/// What the name of a directory begins with.
const PREFIX: &str = "incumbent-";
const FILE: &str = "deadline";
/// More than a line has.
const MAX_LINE: u64 = 256;
/// The file beside it that its process has locked: who gets the lock knows that it has ended.
const OWNER: &str = "owner";
/// How many entries of a directory are looked at for what killed processes have left.
const MAX_ENTRIES: usize = 10_000;

/// One line: the deadline in seconds of `CLOCK_BOOTTIME`, the same in UTC by the wall clock, and
/// the token of the term. All are zero while this process does not lead.
///
/// Each renewal replaces it atomically.
pub struct DeadlineFile {
    directory: PathBuf,
    path: PathBuf,
    /// Dropped to stop the writer.
    lines: Option<mpsc::Sender<Line>>,
    /// The last requested line.
    requested: Line,
    /// The last deadline that the file may have, if it was not cleared since.
    last_deadline: Instant,
    written: watch::Receiver<Written>,
    /// Locked, so that tasks may share the file.
    removed: Mutex<mpsc::Receiver<()>>,
}

/// A line of the file.
#[derive(Debug, Clone, Copy)]
struct Line {
    number: u64,
    deadline: Instant,
    token: Token,
}

/// The line while this process does not lead.
const NO_TERM: Line = Line { number: 0, deadline: Instant::ORIGIN, token: Token(0) };

/// What became of the first line of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    Yes,
    /// The term is over, or drains.
    Ends,
    /// The time for it has passed: the term is to be given up.
    Late,
}

/// The state of the file.
#[derive(Debug, Clone)]
struct Written {
    /// The last line that was tried.
    number: u64,
    /// The deadline of the last line that was written.
    deadline: Instant,
    /// The error of the last line that was tried.
    failure: Option<String>,
}

impl DeadlineFile {
    /// Creates the file of a candidate, and removes what killed ones have left beside it.
    pub fn create_for_long() -> Result<Self, CliError> {
        let file = Self::create()?;
        let own = file.directory.clone();
        drop(on_own_thread(move || remove_left(&own))); // it is not waited for
        Ok(file)
    }

    /// Creates the file of a command.
    pub fn create() -> Result<Self, CliError> {
        let set = |name| std::env::var_os(name).map(PathBuf::from);
        // Only the owner may enter it; a command of root may change its user by itself.
        let runtime = set("XDG_RUNTIME_DIR").filter(|_| !geteuid().is_root());
        // Prefer memory over a disk, which may hang, unless a directory is given.
        let directories =
            [set("TMPDIR"), Some(PathBuf::from("/dev/shm")), Some(std::env::temp_dir())];
        Self::in_first_of([runtime].into_iter().chain(directories).flatten())
    }

    fn in_first_of(directories: impl Iterator<Item = PathBuf>) -> Result<Self, CliError> {
        let mut tried = Vec::new();
        for directory in directories {
            match Self::in_directory(&directory) {
                Ok(file) => return Ok(file),
                Err(error) => tried.push(format!("{}: {error}", directory.display())),
            }
        }
        let tried = tried.join("; ");
        let message = format!(
            "cannot create the deadline file ({tried}): set TMPDIR to a writable directory"
        );
        Err(CliError::new(Code::Failed, message))
    }

    fn in_directory(parent: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        fs::set_permissions(directory.path(), Permissions::from_mode(PASSABLE))?;
        let owner = lock_new(directory.path()).ok(); // without it nobody removes what a kill leaves
        let path = directory.path().join(FILE);
        replace(&path, NO_TERM)?;
        let (lines, to_write) = mpsc::channel();
        let (sender, written) =
            watch::channel(Written { number: 0, deadline: NO_TERM.deadline, failure: None });
        let (gone, removed) = mpsc::channel();
        let file = Self {
            directory: directory.path().to_owned(),
            path: path.clone(),
            lines: Some(lines),
            requested: NO_TERM,
            last_deadline: NO_TERM.deadline,
            written,
            removed: Mutex::new(removed),
        };
        std::thread::Builder::new().name("deadline-file".to_owned()).spawn(move || {
            write_all(&path, &to_write, &sender);
            drop(directory);
            drop((owner, gone));
        })?;
        Ok(file)
    }

    /// Waits for the creation of the file of a command, before anything is done in its term. `None`
    /// if the term is over, or drains.
    pub async fn created(
        creation: impl Future<Output = io::Result<Result<Self, CliError>>>,
        leadership: &Leadership,
        grace: &Grace,
    ) -> Result<Option<Self>, CliError> {
        tokio::select! {
            biased;
            _ = leadership.draining() => Ok(None),
            created = creation => created?.map(Some),
            () = sleep_until(leadership.deadline() - grace.total() + LATE) => {
                let message = format!(
                    "cannot create the deadline file: {HUNG}: set TMPDIR to a directory in memory"
                );
                Err(CliError::new(Code::Failed, message))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Requests a later deadline; does not wait.
    pub fn renew(&mut self, deadline: Instant, token: Token) {
        let number = self.requested.number + 1;
        self.requested = Line { number, deadline, token };
        self.last_deadline = self.last_deadline.max(deadline);
        if let Some(lines) = &self.lines {
            let _ = lines.send(self.requested);
        }
    }

    /// Writes the deadline of a term, before anything is done in it. Dropping it does not take it
    /// back.
    pub async fn announce(
        &mut self,
        leadership: &Leadership,
        grace: &Grace,
    ) -> Result<Announced, CliError> {
        let deadline = leadership.deadline();
        self.renew(deadline, leadership.token());
        tokio::select! {
            biased;
            _ = leadership.draining() => Ok(Announced::Ends),
            written = self.written() => match written {
                Ok(()) => Ok(Announced::Yes),
                Err(why) => Err(self.failure(Some(&why))),
            },
            () = sleep_until(deadline - grace.total()) => {
                self.late().await.map(|()| Announced::Late)
            }
        }
    }

    /// Has the file say that this process does not lead, before the lock is released: if it cannot
    /// be written, it is removed. If that fails too, `waits` until its deadline has passed. Returns
    /// false if the lock may not be released yet.
    pub async fn clear(&mut self, waits: bool) -> bool {
        let mut is_reported = false;
        loop {
            self.renew(NO_TERM.deadline, NO_TERM.token);
            let (why, is_removed) = match tokio::time::timeout(LAST, self.written()).await {
                Ok(Ok(())) => break,
                Ok(Err(why)) => (why, self.written.borrow().deadline == NO_TERM.deadline),
                Err(_) => (HUNG.to_owned(), false),
            };
            let now = BootClock.now();
            let has_passed = is_removed || self.last_deadline <= now;
            if !std::mem::replace(&mut is_reported, true) {
                let what = match (has_passed, waits) {
                    (true, _) => "it was removed, or its deadline has passed",
                    (false, true) => "the lock is held until its deadline has passed",
                    (false, false) => "the lock is left to its lease",
                };
                let path = self.path.display();
                let message = format!("cannot clear the deadline file {path}: {why}; {what}");
                CliError::new(Code::Failed, message).report();
            }
            if has_passed {
                break;
            }
            if !waits {
                return false;
            }
            sleep_until(self.last_deadline.min(now + RETRY)).await;
        }
        self.last_deadline = NO_TERM.deadline;
        true
    }

    /// Waits until the last requested line is written. Returns the error if it is not. Cancel safe.
    pub async fn written(&self) -> Result<(), String> {
        let number = self.requested.number;
        let mut written = self.written.clone();
        let result = written.wait_for(|written| written.number >= number).await;
        match result.map(|written| written.failure.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(failure),
            Err(_) => Err("its writer ended".to_owned()),
        }
    }

    /// Waits until the written deadline ends within `margin` although a later one was requested.
    /// Returns the reason. Cancel safe.
    pub async fn fell_behind(&self, margin: Duration) -> CliError {
        let mut written = self.written.clone();
        loop {
            let state = written.borrow_and_update().clone();
            if state.deadline < self.requested.deadline {
                sleep_until(state.deadline - margin).await;
                let state = written.borrow();
                if state.deadline - margin <= BootClock.now()
                    && state.deadline < self.requested.deadline
                {
                    return self.failure(state.failure.as_deref());
                }
                continue;
            }
            if written.changed().await.is_err() {
                return self.failure(Some("its writer ended"));
            }
        }
    }

    /// What it means that the last requested line was not written in time: nothing if it is written
    /// soon, as on a machine that is too busy or was suspended. The term is to be given up.
    pub async fn late(&self) -> Result<(), CliError> {
        match tokio::time::timeout(LATE, self.written()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(self.failure(Some(&why))),
            Err(_) => Err(self.failure(None)),
        }
    }

    /// The error of a write; without a reason the disk hangs.
    pub fn failure(&self, why: Option<&str>) -> CliError {
        let (path, why) = (self.path.display(), why.unwrap_or(HUNG));
        let message = format!(
            "cannot write the deadline file {path}: {why}; the term was ended: \
             fix it, or set TMPDIR to a directory in memory"
        );
        CliError::new(Code::Failed, message)
    }

    /// Removes the file, unless its disk hangs.
    pub fn remove(&mut self) {
        self.lines = None;
        let removed = self.removed.get_mut();
        let _ = removed.recv_timeout(LAST);
    }
}

impl Drop for DeadlineFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Writes the latest of the requested lines, until the sender is dropped.
fn write_all(path: &Path, lines: &mpsc::Receiver<Line>, sender: &watch::Sender<Written>) {
    while let Ok(line) = lines.recv() {
        let line = lines.try_iter().last().unwrap_or(line);
        let failure = replace(path, line).err().map(|error| error.to_string());
        // A line that says that this process leads must not stay.
        let is_removed = failure.is_some()
            && line.deadline == NO_TERM.deadline
            && is_gone(fs::remove_file(path));
        sender.send_modify(|written| {
            written.number = line.number;
            if failure.is_none() || is_removed {
                written.deadline = line.deadline;
            }
            written.failure = failure;
        });
    }
}

fn replace(path: &Path, line: Line) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.set_permissions(Permissions::from_mode(READABLE))?;
    file.write_all(text_of(line).as_bytes())?;
    drop(file);
    fs::rename(&new, path)
}

fn is_gone(removed: io::Result<()>) -> bool {
    removed.map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true)
}

/// Creates the locked file of a directory: it has its name once it is locked.
fn lock_new(directory: &Path) -> io::Result<File> {
    let new = directory.join("owner.new");
    let owner = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    owner.try_lock()?;
    fs::rename(&new, directory.join(OWNER))?;
    Ok(owner)
}

/// Removes the directories beside this one that candidates have left which were killed while they
/// did not lead. That of a leader is its guard's.
fn remove_left(own: &Path) {
    let Some(parent) = own.parent() else { return };
    let entries = fs::read_dir(parent).into_iter().flatten().take(MAX_ENTRIES).flatten();
    for entry in entries.filter(|entry| entry.path() != own) {
        let is_named = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let is_ours = |data: fs::Metadata| data.is_dir() && data.uid() == geteuid().as_raw();
        if is_named && entry.metadata().is_ok_and(is_ours) && is_left(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path()); // another process may have removed it
        }
    }
}

/// Whether the process of this directory has ended, and did not lead.
fn is_left(directory: &Path) -> bool {
    let open = |name: &str| {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(directory.join(name))
    };
    if !open(OWNER).is_ok_and(|owner| owner.try_lock().is_ok()) {
        return false;
    }
    let line = open(FILE).and_then(|file| io::read_to_string(file.take(MAX_LINE)));
    line.is_ok_and(|line| line == text_of(NO_TERM)) && !directory.join(MARKER).exists()
}

fn text_of(line: Line) -> String {
    let wall = match line.deadline {
        Instant::ORIGIN => SystemTime::UNIX_EPOCH,
        deadline => SystemTime::now() + deadline.saturating_since(BootClock.now()),
    };
    text(line.deadline.since_origin(), wall, line.token.0)
}

fn text(boot: Duration, wall: SystemTime, token: u64) -> String {
    let wall = humantime::format_rfc3339_millis(wall);
    format!("{}.{:09} {wall} {token}\n", boot.as_secs(), boot.subsec_nanos())
}

/// The tolerance between both reads, in seconds.
const APART: f64 = 1.0;

/// Warns if `/proc/uptime` cannot be compared with a deadline: lxcfs shows that of the container.
pub fn check_uptime() {
    let Some(shown) = fs::read_to_string("/proc/uptime").ok().and_then(|line| seconds(&line))
    else {
        return;
    };
    let real = BootClock.now().since_origin().as_secs_f64();
    if (shown - real).abs() > APART {
        output::note(format!(
            "incumbent: /proc/uptime is {shown:.0}s, CLOCK_BOOTTIME is {real:.0}s, as in a container with lxcfs: \
             COMMAND must compare its deadline with clock_gettime(CLOCK_BOOTTIME)"
        ));
    }
}

fn seconds(line: &str) -> Option<f64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn line_is_easy_to_parse_in_a_shell() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            text(Duration::from_millis(12_034), wall, 7),
            "12.034000000 1970-01-01T00:00:01.500Z 7\n"
        );
        assert_eq!(
            text(Duration::ZERO, SystemTime::UNIX_EPOCH, 0),
            "0.000000000 1970-01-01T00:00:00.000Z 0\n"
        );
    }

    #[test]
    fn first_writable_directory_is_used() {
        let place = tempfile::tempdir().unwrap();
        let (absent, there) = (place.path().join("absent"), place.path().to_owned());
        let file = DeadlineFile::in_first_of([absent.clone(), there].into_iter()).unwrap();
        assert!(file.path().starts_with(place.path()));
        let refusal = DeadlineFile::in_first_of([absent].into_iter()).err().unwrap().to_string();
        assert!(refusal.contains("absent: No such file") && refusal.contains("set TMPDIR"));
    }

    #[tokio::test]
    async fn failed_write_is_reported_before_the_deadline() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        let first = BootClock.now() + SECOND;
        file.renew(first, Token(7));
        assert_eq!(file.written().await, Ok(()));
        fs::create_dir(file.path().with_extension("new")).unwrap();
        file.renew(first + SECOND, Token(7));
        assert!(file.written().await.is_err());
        let error = file.fell_behind(SECOND / 2).await.to_string();
        assert!(error.contains("Is a directory"), "{error}");
        assert!(first - SECOND / 2 <= BootClock.now());
        fs::remove_dir(file.path().with_extension("new")).unwrap();
        file.renew(first + SECOND * 2, Token(7));
        assert_eq!(file.written().await, Ok(()));
        file.remove();
        assert!(!file.path().exists() && !file.directory().exists());
    }

    #[tokio::test]
    async fn file_has_zeros_after_a_term() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        let read = |file: &DeadlineFile| fs::read_to_string(file.path()).unwrap();
        let before = read(&file);
        file.renew(BootClock.now() + SECOND * 60, Token(7));
        assert!(file.clear(true).await);
        assert_eq!(read(&file), before);
        file.renew(BootClock.now() + SECOND * 60, Token(8));
        assert_eq!(file.written().await, Ok(()));
        assert!(read(&file).ends_with(" 8\n"));
    }

    #[tokio::test]
    async fn file_that_cannot_be_cleared_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        file.renew(BootClock.now() + SECOND * 60, Token(7));
        assert_eq!(file.written().await, Ok(()));
        fs::create_dir(file.path().with_extension("new")).unwrap();
        assert!(file.clear(true).await && !file.path().exists());
    }

    #[tokio::test]
    async fn deadline_that_stays_in_the_file_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        for (left, waits) in [(SECOND * 60, false), (SECOND / 2, true)] {
            let mut file = DeadlineFile::in_directory(place.path()).unwrap();
            let deadline = BootClock.now() + left;
            file.renew(deadline, Token(7));
            assert_eq!(file.written().await, Ok(()));
            fs::remove_file(file.path()).unwrap();
            fs::create_dir(file.path()).unwrap(); // it cannot be replaced, nor removed as a file
            assert_eq!(file.clear(waits).await, waits);
            assert!(!waits || deadline <= BootClock.now());
        }
    }

    #[test]
    fn directory_of_a_dead_standby_is_removed_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let create = || DeadlineFile::in_directory(place.path()).unwrap();
        let own = create();
        let kinds = ["dead", "directed", "led", "unlocked"];
        let [dead, directed, led, unlocked] = kinds.map(|kind| {
            let directory = place.path().join(format!("{PREFIX}{kind}"));
            fs::create_dir(&directory).unwrap();
            replace(&directory.join(FILE), NO_TERM).unwrap();
            drop(lock_new(&directory).unwrap());
            directory
        });
        fs::write(directed.join(MARKER), "").unwrap();
        fs::write(led.join(FILE), "12.0 1970-01-01T00:00:00.000Z 7\n").unwrap();
        fs::remove_file(unlocked.join(OWNER)).unwrap();
        let other = create();
        remove_left(own.directory());
        assert!(!dead.exists());
        for there in [&*directed, &*led, &*unlocked, own.directory(), other.directory()] {
            assert!(there.exists(), "{}", there.display());
        }
    }

    #[tokio::test]
    async fn creation_that_hangs_is_a_failure() {
        let election = incumbent::new_election("my_app", incumbent::memory::MemoryLock::new());
        let lease = SECOND * 6; // a busy machine keeps it meanwhile
        let election = election.lease(lease).start().unwrap();
        let leadership = election.won().await.unwrap();
        let grace = Grace::new(lease, Some(SECOND * 7 / 2)).unwrap();
        let created = DeadlineFile::created(std::future::pending(), &leadership, &grace).await;
        let failure = created.err().unwrap().to_string();
        assert!(failure.contains("cannot create the deadline file: the disk does"), "{failure}");
        assert!(leadership.is_valid(), "the term continues until then");
    }

    #[tokio::test]
    async fn late_line_is_no_failure_if_it_is_written_soon() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        file.renew(BootClock.now(), Token(7));
        assert_eq!(file.written().await, Ok(()));
        file.late().await.unwrap();
        fs::create_dir(file.path().with_extension("new")).unwrap();
        file.renew(BootClock.now(), Token(7));
        let error = file.late().await.unwrap_err().to_string();
        assert!(error.contains("Is a directory"), "{error}");
    }

    #[test]
    fn the_first_word_is_read() {
        assert_eq!(seconds("12.34 5.6\n"), Some(12.34));
        assert_eq!(seconds(""), None);
    }
}
