//! The content of a credentials file, read again for each connection where there is a file.

use std::fs::metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;

use crate::util::{locked, read_limited};

/// The maximum length of a file. A JWT is a few kilobytes long.
const MAX_LEN: u64 = 64 * 1024;
/// How long a connection waits for the file. A file system may hang.
const READS_WITHIN: Duration = Duration::from_secs(1);

/// The JWT of a user, and the key that signs for it.
struct UserCredentials {
    jwt: String,
    key: KeyPair,
}

impl UserCredentials {
    /// Parses the content of a file: a JWT between two lines of dashes, and then a seed between two
    /// others.
    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim).collect();
        let is_border = |line: &str| line.starts_with("---") && line.ends_with("---");
        let is_value = |line: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.=-".contains(&byte);
            !line.is_empty() && line.bytes().all(fits)
        };
        let mut rest = &lines[..];
        let mut next = || loop {
            match rest {
                [before, value, after, others @ ..]
                    if is_border(before) && is_value(value) && is_border(after) =>
                {
                    rest = others;
                    return Some(*value);
                }
                [_, others @ ..] => rest = others,
                [] => return None,
            }
        };
        let (jwt, seed) = (next()?, next()?);
        Some(Self { jwt: jwt.to_owned(), key: KeyPair::from_seed(seed).ok()? })
    }
}

/// A file, and what was in it.
struct CredentialsFile {
    /// `None`: only the content was given.
    path: Option<PathBuf>,
    newest: Mutex<Arc<UserCredentials>>,
    /// Why the last read failed, to log each reason once; empty: it did not.
    problem: Mutex<String>,
    /// Held by the one read that is under way.
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl CredentialsFile {
    /// Returns the credentials that are in the file now, or that were when it was last read.
    async fn current(self: Arc<Self>) -> Arc<UserCredentials> {
        if let Some(path) = self.path.clone()
            && let Ok(reading) = Arc::clone(&self.reading).try_lock_owned()
        {
            let file = Arc::clone(&self);
            let read = spawn_blocking(move || {
                file.read(&path);
                drop(reading);
            });
            // What is read later is for the next connection.
            let _ = timeout(READS_WITHIN, read).await;
        }
        Arc::clone(&locked(&self.newest))
    }

    fn read(&self, path: &Path) {
        let parsed = read_again(path).map(|text| UserCredentials::parse(&text));
        let problem = match parsed {
            Ok(Some(credentials)) => {
                *locked(&self.newest) = Arc::new(credentials);
                String::new()
            }
            Ok(None) => "there are no credentials in it".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut last = locked(&self.problem);
        if !problem.is_empty() && problem != *last {
            let (file, error) = (path.display(), &problem);
            warn!(%file, %error, "credentials of NATS cannot be read again: the former ones are used; restore the file");
        }
        *last = problem;
    }
}

/// Reads a file again.
fn read_again(path: &Path) -> io::Result<String> {
    // A read of a pipe would wait for a writer, and take what another reader is to get.
    if !metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_text(path)
}

/// Reads a file, or a pipe.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read_limited(path, MAX_LEN)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// Returns options by which a client proves its identity with this content of a credentials file,
/// beside the user of an address. `None`: there are no credentials in it.
///
/// The client reads the file, if there is one, for each connection: the server ends one whose JWT
/// has expired, and the next one is to use the JWT that has taken its place.
pub(super) fn with_credentials(
    text: &str,
    path: Option<PathBuf>,
    user: Auth,
) -> Option<ConnectOptions> {
    // A pipe, as of a shell's `<(…)`, cannot be read again, which everybody knows.
    let path = path.filter(|path| metadata(path).is_ok_and(|found| found.is_file()));
    let file = Arc::new(CredentialsFile {
        path,
        newest: Mutex::new(Arc::new(UserCredentials::parse(text)?)),
        problem: Mutex::default(),
        reading: Arc::default(),
    });
    Some(ConnectOptions::with_auth_callback(move |nonce| {
        let (current, mut auth) = (Arc::clone(&file).current(), user.clone());
        async move {
            let current = current.await;
            auth.signature = Some(current.key.sign(&nonce).map_err(AuthError::new)?);
            auth.jwt = Some(current.jwt.clone());
            Ok(auth)
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "SUANQDPB2RUOE4ETUA26CNX7FUKE5ZZKFCQIIW63OX225F2CO7UEXTM7ZY";

    #[test]
    fn jwt_and_key_are_found_between_borders() {
        let text = |jwt: &str, between: &str, seed: &str| {
            format!(
                "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n{between}\
                 -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------"
            )
        };
        let usual = "\n************************* IMPORTANT *************************\n\n";
        for between in [usual, "", "\n", "note\n"] {
            for text in [
                text("eyJ0.eyJq.c2ln", between, SEED),
                text("eyJ0.eyJq.c2ln", between, SEED) + "\n",
            ] {
                let parsed = UserCredentials::parse(&format!("\u{feff}{text}")).expect(&text);
                assert_eq!(parsed.jwt, "eyJ0.eyJq.c2ln");
                assert!(parsed.key.public_key().starts_with('U'));
            }
        }
        for bad in [text("", "", SEED), text("eyJ0", "", "SUA"), SEED.to_owned(), String::new()] {
            assert!(UserCredentials::parse(&bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn what_is_no_file_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = &directory.path().join("creds");
        let newest = UserCredentials { jwt: "eyJ0".into(), key: KeyPair::from_seed(SEED).unwrap() };
        let (newest, problem) = (Mutex::new(Arc::new(newest)), Mutex::default());
        let (named, reading) = (Some(path.clone()), Arc::default());
        let file = Arc::new(CredentialsFile { path: named, newest, problem, reading });
        let said = async || {
            let current = Arc::clone(&file).current().await;
            assert_eq!(current.jwt, "eyJ0");
            locked(&file.problem).clone()
        };
        assert!(said().await.contains("No such file"));
        std::fs::create_dir(path).unwrap();
        assert_eq!(said().await, "it is not a regular file");
        std::fs::remove_dir(path).unwrap();
        std::fs::write(path, "-".repeat(MAX_LEN as usize + 1)).unwrap();
        assert_eq!(said().await, "it is larger than 65536 bytes");
        std::fs::write(path, "-").unwrap();
        assert_eq!(said().await, "there are no credentials in it");
        let endless = read_text(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(endless.to_string(), "it is larger than 65536 bytes");
    }
}
