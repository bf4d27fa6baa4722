//! The file with the shards that a member leads: one line per shard, with its token.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use incumbent::Token;
use incumbent::clock::Instant;
use tokio::sync::watch;

use crate::error::CliError;
use crate::output::{replace_file, unwritten};

/// The shards in the file, and how long the lease of each lasts.
#[derive(Debug, Clone, Default)]
pub struct Shards {
    /// Grows with each change of the file.
    version: u64,
    led: BTreeMap<u32, (Token, Instant)>,
}

impl Shards {
    /// Adds a shard, or renews its lease. Returns the version of the file.
    pub fn insert(&mut self, shard: u32, token: Token, deadline: Instant) -> u64 {
        let before = self.led.insert(shard, (token, deadline));
        self.version += u64::from(before.is_none_or(|(other, _)| other != token));
        self.version
    }

    /// Removes a shard, unless it is of another term. Returns the version of the file.
    pub fn remove(&mut self, shard: u32, token: Token) -> u64 {
        if self.led.get(&shard).is_some_and(|(of, _)| *of == token) {
            self.led.remove(&shard);
            self.version += 1;
        }
        self.version
    }

    /// The version of the file.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When the first of the leases ends.
    pub fn first_deadline(&self) -> Option<Instant> {
        self.led.values().map(|(_, deadline)| *deadline).min()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (shard, (token, _)) in &self.led {
            let _ = writeln!(text, "{shard} {token}"); // a String takes it all
        }
        text
    }
}

/// The last version that was tried, and the error of it.
#[derive(Debug, Clone, Default)]
pub struct Written {
    pub version: u64,
    pub failure: Option<String>,
}

/// Checks that the file can be written: it is empty at first. Returns its absolute path.
pub fn create(path: &Path) -> Result<PathBuf, CliError> {
    let path = std::path::absolute(path)?;
    match replace(&path, "") {
        Ok(()) => Ok(path),
        Err(error) => Err(unwritten(&path, error)),
    }
}

/// Writes each version, or the latest one, until the sender is dropped. A hung disk blocks nothing
/// else.
pub async fn write_all(
    path: PathBuf,
    mut shards: watch::Receiver<Shards>,
    written: watch::Sender<Written>,
) {
    let mut last = 0;
    loop {
        let now = shards.borrow_and_update().clone();
        if now.version != last {
            last = now.version;
            let (path, text) = (path.clone(), now.text());
            let result = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
            let failure = match result {
                Ok(result) => result.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            written.send_replace(Written { version: last, failure });
        }
        if shards.changed().await.is_err() {
            return;
        }
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_file(path, |file| file.write_all(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn renewals_leave_the_file_as_it_is() {
        let at = |seconds| Instant::from_origin(Duration::from_secs(seconds));
        let mut shards = Shards::default();
        assert_eq!(shards.insert(7, Token(70), at(5)), 1);
        assert_eq!(shards.insert(3, Token(30), at(6)), 2);
        assert_eq!(shards.insert(7, Token(70), at(9)), 2);
        assert_eq!(
            (shards.text().as_str(), shards.first_deadline()),
            ("3 30\n7 70\n", Some(at(6)))
        );
        assert_eq!(shards.remove(3, Token(29)), 2, "of an earlier term");
        assert_eq!(shards.remove(3, Token(30)), 3);
        assert_eq!((shards.text().as_str(), shards.first_deadline()), ("7 70\n", Some(at(9))));
    }

    #[test]
    fn file_that_cannot_be_written_is_refused_in_one_line() {
        let place = tempfile::tempdir().unwrap();
        for path in [place.path().join("absent/file"), place.path().to_owned(), "/".into()] {
            let refused = create(&path).unwrap_err().to_string();
            assert!(refused.starts_with("cannot write /") && !refused.contains('\n'), "{refused}");
        }
        let path = create(&place.path().join("file")).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "");
    }
}
