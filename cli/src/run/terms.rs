//! The terms that the guard releases if this process dies.

use incumbent::sentinel::{Sentinel, SentinelMessage};
use tokio::sync::watch;

/// The terms that are to be released, as the messages that register them.
pub type Terms = watch::Receiver<Vec<SentinelMessage>>;

/// Where the election registers its terms, and what is registered.
pub fn channel() -> (Sentinel, Terms) {
    let (sender, terms) = watch::channel(Vec::new());
    let sentinel = Sentinel::sink(move |message| {
        sender.send_modify(|terms: &mut Vec<SentinelMessage>| {
            terms.retain(|other| other.nonce() != message.nonce());
            if message.term().is_some() {
                terms.push(message);
            }
        });
    });
    (sentinel, terms)
}
