//! A fencing token keeps a leader that does not know yet that it was replaced from doing harm.
//!
//! No lock can stop a process that was paused right before a write. What is written to can: it
//! remembers the greatest token that it has seen and refuses a smaller one.
//!
//! ```text
//! cargo run --example fenced_write
//! ```

use std::error::Error;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Token, new_election};

/// Storage that checks tokens. In a database it is one condition:
/// `UPDATE t SET value = $1, token = $2 WHERE id = $3 AND token <= $2`.
#[derive(Default)]
struct Storage {
    value: String,
    greatest_token: Option<Token>,
}

impl Storage {
    fn write(&mut self, value: &str, token: Token) -> Result<(), String> {
        if let Some(greatest) = self.greatest_token.filter(|greatest| token < *greatest) {
            return Err(format!("refused {value:?}: token {token} is older than {greatest}"));
        }
        self.greatest_token = Some(token);
        value.clone_into(&mut self.value);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let lock = MemoryLock::with_ttl(Duration::from_secs(2));
    let mut storage = Storage::default();

    let first = new_election("billing", lock.clone()).identity("host-1").start()?;
    let stale = first.won().await?;
    storage.write("written by host-1", stale.token())?;

    // host-1 is replaced. Its code still holds the old term, as if it had been paused in the middle
    // of it.
    let second = new_election("billing", lock.clone()).identity("host-2").start()?;
    first.resign();
    let current = second.won().await?;
    storage.write("written by host-2", current.token())?;

    match storage.write("a late write of host-1", stale.token()) {
        Ok(()) => return Err("a stale leader has written".into()),
        Err(refusal) => println!("{refusal}"),
    }
    println!("the storage holds: {}", storage.value);

    drop((stale, current));
    first.stop().await;
    second.stop().await;
    Ok(())
}
