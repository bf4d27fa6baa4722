//! Requests that the lock refuses until a person does something, in lines for people.
//!
//! A server that does not respond is not among it: that is retried, and ends by itself.

use std::collections::BTreeSet;
use std::future::pending;

use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use incumbent::lock::LockErrorKind;
use incumbent::protocol::LockFailure;
use incumbent::{Change, Election};

/// What the lock refuses of some elections on it.
pub struct Refusals {
    changes: SelectAll<BoxStream<'static, (usize, Change)>>,
    /// The elections whose requests are refused.
    refused: BTreeSet<usize>,
    /// The message to print first.
    first: Option<String>,
}

impl Refusals {
    pub fn of<'a>(elections: impl Iterator<Item = &'a Election> + Clone) -> Self {
        let changes = elections
            .clone()
            .enumerate()
            .map(|(index, election)| election.changes().map(move |change| (index, change)).boxed());
        let mut refusals =
            Self { changes: changes.collect(), refused: BTreeSet::new(), first: None };
        for (index, election) in elections.enumerate() {
            let said = election.lock_failure().and_then(|failure| refusals.fails(index, &failure));
            refusals.first = refusals.first.or(said);
        }
        refusals
    }

    /// The next line: one for all elections, as they are on the same lock. Cancel safe.
    pub async fn next(&mut self) -> String {
        if let Some(first) = self.first.take() {
            return first;
        }
        while let Some((index, change)) = self.changes.next().await {
            let said = match change {
                Change::LockFailing(failure) => self.fails(index, &failure),
                Change::LockRecovered => self.recovers(index),
                _ => None,
            };
            if let Some(said) = said {
                return said;
            }
        }
        pending().await
    }

    fn fails(&mut self, index: usize, failure: &LockFailure) -> Option<String> {
        let checks = match failure.kind {
            LockErrorKind::Denied => "the rights",
            LockErrorKind::Misconfigured => "the lock",
            _ => return self.recovers(index),
        };
        let is_first = self.refused.is_empty();
        self.refused.insert(index);
        is_first
            .then(|| format!("{}; retrying; `incumbent doctor` checks {checks}", failure.message))
    }

    fn recovers(&mut self, index: usize) -> Option<String> {
        let is_last = self.refused.remove(&index) && self.refused.is_empty();
        is_last.then(|| "requests to the lock are no longer refused".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_many_elections_are_one_line() {
        let mut refusals = Refusals::of([].iter());
        let denied = LockFailure::new(LockErrorKind::Denied, "no right");
        let line = refusals.fails(0, &denied).unwrap();
        assert_eq!(line, "no right; retrying; `incumbent doctor` checks the rights");
        assert_eq!(refusals.fails(1, &denied), None);
        assert_eq!(refusals.recovers(0), None);
        let silent = LockFailure::new(LockErrorKind::Unavailable, "no response");
        assert_eq!(refusals.fails(2, &silent), None, "it is retried");
        assert!(refusals.fails(1, &silent).is_some(), "it may be another reason");
        assert_eq!(refusals.recovers(1), None);
    }
}
