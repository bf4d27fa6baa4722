//! The terms that the guard releases if this process dies.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;

use incumbent::sentinel::{Sentinel, SentinelMessage};
use tokio::sync::watch;

/// An election, and the nonce of its candidate.
type Key = (Arc<str>, String);
type Registered = BTreeMap<Key, SentinelMessage>;

/// The terms that are to be released, and those of them that a guard knows.
///
/// A guard gets one small message for each change, and not the whole list: a member of a set leads
/// hundreds of shards.
#[derive(Clone)]
pub struct Terms {
    registered: watch::Receiver<Registered>,
    sent: Registered,
}

/// Where the election registers its terms, and what is registered: none, unless a guard `releases`
/// them.
pub fn channel(releases: bool) -> (Sentinel, Option<Terms>) {
    if !releases {
        return (Sentinel::none(), None);
    }
    let (sender, registered) = watch::channel(Registered::new());
    let sentinel = Sentinel::sink(move |message| {
        let Some(key) = key(&message) else { return };
        sender.send_modify(|terms| match message.term() {
            Some(_) => drop(terms.insert(key, message)),
            None => drop(terms.remove(&key)),
        });
    });
    (sentinel, Some(Terms { registered, sent: Registered::new() }))
}

impl Terms {
    /// Returns the next change that the guard does not know, and assumes that it is sent.
    pub fn next_change(&mut self) -> Option<SentinelMessage> {
        let registered = self.registered.borrow_and_update();
        let ended = self.sent.keys().find(|key| !registered.contains_key(*key)).cloned();
        if let Some(key) = ended {
            self.sent.remove(&key);
            return Some(SentinelMessage::Ended { election: key.0, nonce: key.1 });
        }
        let began = registered.iter().find(|(key, term)| self.sent.get(*key) != Some(*term));
        let (key, term) = began?;
        self.sent.insert(key.clone(), term.clone());
        Some(term.clone())
    }

    /// Waits until there is a change that the guard does not know. Cancel safe.
    pub async fn differ(&mut self) {
        while *self.registered.borrow_and_update() == self.sent {
            if self.registered.changed().await.is_err() {
                return pending().await; // no more changes
            }
        }
    }
}

fn key(message: &SentinelMessage) -> Option<Key> {
    match message {
        SentinelMessage::Began { election, nonce, .. }
        | SentinelMessage::Ended { election, nonce } => Some((Arc::clone(election), nonce.clone())),
        SentinelMessage::Hello { .. } | SentinelMessage::Status => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use incumbent::sentinel::encode;

    use super::*;

    fn began(shard: u32, token: u64) -> SentinelMessage {
        let election = format!("set.{shard}").into();
        SentinelMessage::Began { election, nonce: format!("{shard:032x}"), token, create: 1 }
    }

    fn terms() -> (watch::Sender<Registered>, Terms) {
        let (sender, registered) = watch::channel(Registered::new());
        (sender, Terms { registered, sent: Registered::new() })
    }

    #[test]
    fn guard_gets_a_small_message_for_each_changed_term() {
        let (sender, mut terms) = terms();
        assert!(terms.differ().now_or_never().is_none());
        let all = (0..2_000).map(|shard| began(shard, 7));
        sender.send_modify(|registered| {
            registered.extend(all.filter_map(|term| Some((key(&term)?, term))));
        });
        assert!(terms.differ().now_or_never().is_some());
        let changes: Vec<_> = std::iter::from_fn(|| terms.next_change()).collect();
        assert_eq!(changes.len(), 2_000);
        assert!(changes.iter().all(|change| encode(change).len() < 300));
        assert!(terms.differ().now_or_never().is_none());

        let (ended, renewed) = (began(3, 7), began(5, 9));
        sender.send_modify(|registered| {
            registered.remove(&key(&ended).unwrap());
            registered.insert(key(&renewed).unwrap(), renewed.clone());
        });
        let changes: Vec<_> = std::iter::from_fn(|| terms.next_change()).collect();
        let (election, nonce) = key(&ended).unwrap();
        assert_eq!(changes, [SentinelMessage::Ended { election, nonce }, renewed]);
    }

    #[test]
    fn another_guard_gets_all_terms() {
        let (sender, first) = terms();
        let mut second = first.clone();
        let term = began(1, 7);
        sender.send_modify(|registered| drop(registered.insert(key(&term).unwrap(), term.clone())));
        for mut terms in [first.clone(), first] {
            assert_eq!(terms.next_change(), Some(term.clone()));
        }
        assert_eq!(second.next_change(), Some(term));
    }
}
