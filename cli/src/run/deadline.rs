//! The file in which a command reads how long it may go on.
//!
//! A thread of its own writes it: a disk that hangs must hold up nobody who has a lease.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use incumbent::Token;
use incumbent::clock::{BootClock, Clock, Instant};
use rustix::process::geteuid;
use tokio::sync::watch;

use super::timer::sleep_until;
use crate::error::{CliError, Code};

/// The variable in which a command finds where the file is.
pub const DEADLINE_FILE: &str = "INCUMBENT_DEADLINE_FILE";
/// Everybody may read it: a command that gives up its rights must still know its deadline.
const READABLE: u32 = 0o644;
const PASSABLE: u32 = 0o755;
/// How long to wait for a disk when all is over.
const REMOVAL: Duration = Duration::from_secs(1);

/// One line: the deadline in seconds of `CLOCK_BOOTTIME`, the same as UTC by the wall clock, and the token of the term.
/// All are zero while this process does not lead.
///
/// It is replaced as a whole at each renewal, so a reader never sees half of it.
pub struct DeadlineFile {
    directory: PathBuf,
    path: PathBuf,
    /// Nothing is taken any more once this is gone.
    lines: Option<mpsc::Sender<Line>>,
    /// What was asked for last.
    asked: Line,
    written: watch::Receiver<Written>,
    removed: mpsc::Receiver<()>,
}

/// What the file is to say.
#[derive(Debug, Clone, Copy)]
struct Line {
    number: u64,
    deadline: Instant,
    token: Token,
}

/// What it says.
#[derive(Debug, Clone)]
struct Written {
    /// The last line that was tried.
    number: u64,
    /// StopTimes when the last line that was written lets the command go on.
    deadline: Instant,
    /// Why the last line that was tried was not written.
    failure: Option<String>,
}

impl DeadlineFile {
    pub fn make() -> Result<Self, CliError> {
        let set = |name| std::env::var_os(name).map(PathBuf::from);
        // Only its owner may pass there; and only root's commands can become another user by themselves.
        let runtime = set("XDG_RUNTIME_DIR").filter(|_| !geteuid().is_root());
        // Memory before a disk, which may hang, unless a directory is told.
        let places = [set("TMPDIR"), Some(PathBuf::from("/dev/shm")), Some(std::env::temp_dir())];
        Self::in_first_of([runtime].into_iter().chain(places).flatten())
    }

    fn in_first_of(places: impl Iterator<Item = PathBuf>) -> Result<Self, CliError> {
        let mut tried = Vec::new();
        for place in places {
            match Self::in_directory(&place) {
                Ok(file) => return Ok(file),
                Err(error) => tried.push(format!("{}: {error}", place.display())),
            }
        }
        let tried = tried.join("; ");
        let message =
            format!("no place for the deadline file ({tried}): set TMPDIR to a directory for it");
        Err(CliError::new(Code::Failed, message))
    }

    fn in_directory(place: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("incumbent-").tempdir_in(place)?;
        fs::set_permissions(directory.path(), Permissions::from_mode(PASSABLE))?;
        let path = directory.path().join("deadline");
        let none = Line { number: 0, deadline: Instant::ORIGIN, token: Token(0) };
        replace(&path, none)?;
        let (lines, to_write) = mpsc::channel();
        let (tell, written) =
            watch::channel(Written { number: 0, deadline: none.deadline, failure: None });
        let (gone, removed) = mpsc::channel();
        let file = Self {
            directory: directory.path().to_owned(),
            path: path.clone(),
            lines: Some(lines),
            asked: none,
            written,
            removed,
        };
        std::thread::Builder::new().name("deadline-file".to_owned()).spawn(move || {
            write_all(&path, &to_write, &tell);
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

    /// Has a later deadline written; waits for nothing.
    pub fn renew(&mut self, deadline: Instant, token: Token) {
        let number = self.asked.number + 1;
        self.asked = Line { number, deadline, token };
        if let Some(lines) = &self.lines {
            let _ = lines.send(self.asked);
        }
    }

    /// Has it say that this process does not lead. Where it cannot be said, the last deadline says it soon.
    pub fn lapse(&mut self) {
        self.renew(Instant::ORIGIN, Token(0));
    }

    /// Waits until what was asked for last is written, or why it cannot be. Cancel safe.
    pub async fn written(&self) -> Result<(), String> {
        let number = self.asked.number;
        let mut written = self.written.clone();
        let told = written.wait_for(|written| written.number >= number).await;
        match told.map(|written| written.failure.clone()) {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(failure),
            Err(_) => Err("its writer has ended".to_owned()),
        }
    }

    /// Waits until what the file says ends within `margin` though a later deadline was asked for, and answers why. Cancel safe.
    pub async fn fell_behind(&self, margin: Duration) -> CliError {
        let mut written = self.written.clone();
        loop {
            let says = written.borrow_and_update().clone();
            if says.deadline < self.asked.deadline {
                sleep_until(says.deadline - margin).await;
                let says = written.borrow();
                if says.deadline - margin <= BootClock.now() && says.deadline < self.asked.deadline
                {
                    return self.failure(says.failure.as_deref());
                }
                continue;
            }
            if written.changed().await.is_err() {
                return self.failure(Some("its writer has ended"));
            }
        }
    }

    /// That it cannot be written; without a reason its disk does not answer.
    pub fn failure(&self, why: Option<&str>) -> CliError {
        let (path, why) = (self.path.display(), why.unwrap_or("its disk does not answer"));
        let message = format!(
            "cannot write the deadline file {path}: {why}; the term ended for that: \
             mend it, or set TMPDIR to a directory in memory"
        );
        CliError::new(Code::Failed, message)
    }

    /// Removes it, unless its disk hangs.
    pub fn remove(&mut self) {
        self.lines = None;
        let _ = self.removed.recv_timeout(REMOVAL);
    }
}

impl Drop for DeadlineFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Writes the latest of the lines that have come, again and again, until no more can come.
fn write_all(path: &Path, lines: &mpsc::Receiver<Line>, tell: &watch::Sender<Written>) {
    while let Ok(line) = lines.recv() {
        let line = lines.try_iter().last().unwrap_or(line);
        let failure = replace(path, line).err().map(|error| error.to_string());
        tell.send_modify(|written| {
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn its_line_is_for_shells() {
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
    fn it_is_kept_where_there_is_a_place() {
        let place = tempfile::tempdir().unwrap();
        let (absent, there) = (place.path().join("absent"), place.path().to_owned());
        let file = DeadlineFile::in_first_of([absent.clone(), there].into_iter()).unwrap();
        assert!(file.path().starts_with(place.path()));
        let refusal = DeadlineFile::in_first_of([absent].into_iter()).err().unwrap().to_string();
        assert!(refusal.contains("absent: No such file") && refusal.contains("set TMPDIR"));
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_known_before_its_deadline() {
        let place = tempfile::tempdir().unwrap();
        let mut file = DeadlineFile::in_directory(place.path()).unwrap();
        let first = BootClock.now() + SECOND;
        file.renew(first, Token(7));
        assert_eq!(file.written().await, Ok(()));
        fs::create_dir(file.path().with_extension("new")).unwrap();
        file.renew(first + SECOND, Token(7));
        assert!(file.written().await.is_err());
        let told = file.fell_behind(SECOND / 2).await.to_string();
        assert!(told.contains("Is a directory"), "{told}");
        assert!(first - SECOND / 2 <= BootClock.now());
        fs::remove_dir(file.path().with_extension("new")).unwrap();
        file.renew(first + SECOND * 2, Token(7));
        assert_eq!(file.written().await, Ok(()));
        file.remove();
        assert!(!file.path().exists() && !file.directory().exists());
    }
}
