//! The file in which a command reads how long it may go on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use incumbent::Token;
use incumbent::clock::{BootClock, Clock, Instant};
use tempfile::TempDir;

use crate::failure::{Code, Failure};

/// The variable in which a command finds where the file is.
pub const DEADLINE_FILE: &str = "INCUMBENT_DEADLINE_FILE";

/// One line: the deadline in seconds of `CLOCK_BOOTTIME` (the clock of `/proc/uptime`), the same as UTC by the wall
/// clock, and the token of the term. All are zero while this process does not lead.
///
/// It is replaced as a whole at each renewal, so a reader never sees half of it.
pub struct DeadlineFile {
    directory: TempDir,
    path: PathBuf,
}

impl DeadlineFile {
    pub fn make() -> Result<Self, Failure> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // The last one is there, and can be written, in a container that has nothing else.
        let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
        Self::in_first_of(runtime.into_iter().chain(places))
    }

    fn in_first_of(places: impl Iterator<Item = PathBuf>) -> Result<Self, Failure> {
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
        Err(Failure::new(Code::Failed, message))
    }

    fn in_directory(place: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("incumbent-").tempdir_in(place)?;
        let path = directory.path().join("deadline");
        let file = Self { directory, path };
        file.clear()?;
        Ok(file)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn write(&self, deadline: Instant, token: Token) -> io::Result<()> {
        let wall = SystemTime::now() + deadline.saturating_since(BootClock.now());
        self.replace(&line(deadline.since_origin(), wall, token.0))
    }

    /// As `write`, while a command runs: where it cannot be written the command goes by an earlier deadline.
    pub fn renew(&self, deadline: Instant, token: Token) {
        let _ = self.write(deadline, token);
    }

    /// Says that this process does not lead. Where it cannot be said, the last deadline says it soon.
    pub fn lapse(&self) {
        let _ = self.clear();
    }

    fn clear(&self) -> io::Result<()> {
        self.replace(&line(Duration::ZERO, SystemTime::UNIX_EPOCH, 0))
    }

    fn replace(&self, line: &str) -> io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, line)?;
        fs::rename(&new, &self.path)
    }
}

fn line(boot: Duration, wall: SystemTime, token: u64) -> String {
    let wall = humantime::format_rfc3339_millis(wall);
    format!("{}.{:09} {wall} {token}\n", boot.as_secs(), boot.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_line_is_for_shells() {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(
            line(Duration::from_millis(12_034), wall, 7),
            "12.034000000 1970-01-01T00:00:01.500Z 7\n"
        );
        assert_eq!(
            line(Duration::ZERO, SystemTime::UNIX_EPOCH, 0),
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
}
