//! A store that takes no write whose token is smaller than one it has seen. It is reached through a
//! socket of the file system, so no fault of the network touches it.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use crate::load::candidate::Options;

/// A write.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    election: String,
    writer: String,
    token: u64,
}

/// The response of the store to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was taken.
    pub accepted: bool,
    /// The greatest token seen, this one included.
    pub greatest: u64,
}

/// The greatest token of each election, and whose it is.
#[derive(Debug, Default)]
struct Store(Mutex<HashMap<String, (u64, String)>>);

impl Store {
    /// A token equal to the greatest is accepted from the writer that sent it first, and from no
    /// other.
    fn write(&self, request: &Request) -> Answer {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = store.entry(request.election.clone()).or_default();
        let accepted =
            request.token > held.0 || (request.token == held.0 && request.writer == held.1);
        if accepted {
            *held = (request.token, request.writer.clone());
        }
        Answer { accepted, greatest: held.0 }
    }
}

/// Serves a store until the process ends.
pub fn serve(path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let store = Arc::new(Store::default());
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let store = Arc::clone(&store);
            thread::spawn(move || attend(&store, &connection));
        }
    });
    Ok(())
}

/// Ends with the connection.
fn attend(store: &Store, connection: &UnixStream) {
    let mut writer = connection;
    for line in BufReader::new(connection).lines() {
        let Some(request) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else {
            return;
        };
        let Ok(answer) = serde_json::to_string(&store.write(&request)) else { return };
        if writer.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// Where the store is, and who writes.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    election: String,
    writer: String,
}

impl Address {
    /// That of a candidate.
    pub fn new(options: &Options) -> Self {
        Self {
            path: options.fenced_store.clone(),
            election: options.election.clone(),
            writer: format!("{}/{}", options.identity, options.life),
        }
    }

    /// Writes with a token.
    pub async fn write(&self, token: u64) -> io::Result<Answer> {
        let (read, mut write) = tokio::net::UnixStream::connect(&self.path).await?.into_split();
        let (election, writer) = (self.election.clone(), self.writer.clone());
        let request = serde_json::to_string(&Request { election, writer, token })?;
        write.write_all(format!("{request}\n").as_bytes()).await?;
        let mut answer = String::new();
        tokio::io::BufReader::new(read).read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_smaller_than_one_seen_is_refused() {
        let store = Store::default();
        let write = |writer: &str, token| {
            let (election, writer) = ("e".to_owned(), writer.to_owned());
            store.write(&Request { election, writer, token }).accepted
        };
        assert!(write("a", 5));
        assert!(write("a", 5));
        assert!(!write("b", 5), "a token is one term's");
        assert!(write("b", 9));
        assert!(!write("a", 5));
        assert!(write("b", 9));
    }
}
