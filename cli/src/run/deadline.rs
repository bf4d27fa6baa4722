//! The deadline file of a command.
//!
//! A thread of its own writes it, so that a hung disk does not block the renewals.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use incumbent::clock::{self, BootClock, Clock, Instant};
use incumbent::{Election, Leadership, Token};
use parking_lot::Mutex;
use rustix::process::geteuid;
use tokio::sync::watch;

use super::grace::Grace;
use crate::error::{CliError, Code};
use crate::output;

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
        let directory = tempfile::Builder::new().prefix("incumbent-").tempdir_in(parent)?;
        fs::set_permissions(directory.path(), Permissions::from_mode(PASSABLE))?;
        let path = directory.path().join("deadline");
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
            written,
            removed: Mutex::new(removed),
        };
        std::thread::Builder::new().name("deadline-file".to_owned()).spawn(move || {
            write_all(&path, &to_write, &sender);
            drop(directory);
            drop(gone);
        })?;
        Ok(file)
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

    /// Writes that this process does not lead, unless the disk hangs: before the lock is released.
    pub async fn clear(&mut self) {
        self.renew(NO_TERM.deadline, NO_TERM.token);
        let _ = tokio::time::timeout(LAST, self.written()).await;
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
        let (path, why) = (self.path.display(), why.unwrap_or("the disk does not respond"));
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
        sender.send_modify(|written| {
            written.number = line.number;
            if failure.is_none() {
                written.deadline = line.deadline;
            }
            written.failure = failure;
        });
    }
}

fn replace(path: &Path, line: Line) -> io::Result<()> {
    let wall = match line.deadline {
        Instant::ORIGIN => SystemTime::UNIX_EPOCH,
        deadline => SystemTime::now() + deadline.saturating_since(BootClock.now()),
    };
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.set_permissions(Permissions::from_mode(READABLE))?;
    file.write_all(text(line.deadline.since_origin(), wall, line.token.0).as_bytes())?;
    drop(file);
    fs::rename(&new, path)
}

fn text(boot: Duration, wall: SystemTime, token: u64) -> String {
    let wall = humantime::format_rfc3339_millis(wall);
    format!("{}.{:09} {wall} {token}\n", boot.as_secs(), boot.subsec_nanos())
}

/// Waits until the instant. Cancel safe.
pub async fn sleep_until(instant: Instant) {
    clock::sleep_until(BootClock, instant).await;
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
        file.clear().await;
        assert_eq!(read(&file), before);
        file.renew(BootClock.now() + SECOND * 60, Token(8));
        assert_eq!(file.written().await, Ok(()));
        assert!(read(&file).ends_with(" 8\n"));
    }

    #[tokio::test]
    async fn late_line_is_no_failure_if_it_is_written_soon() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        file.renew(BootClock.now(), Token(7));
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
