//! What keeps a member from leading until a person does something, in lines on standard error.
//!
//! A server that does not respond is not among it: that is retried, and ends by itself.

use std::collections::BTreeSet;

use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use incumbent::lock::LockErrorKind;
use incumbent::{Change, Election, Set};

use super::work::Naming;
use crate::output;

/// The problems of all shards.
pub struct Problems {
    changes: SelectAll<BoxStream<'static, (usize, Change)>>,
    /// The shards whose requests are refused.
    refused: BTreeSet<usize>,
}

impl Problems {
    pub fn of(set: &Set) -> Self {
        let elections = (0..).map_while(|shard| set.election(shard));
        let changes = |(shard, election): (usize, &Election)| {
            election.changes().map(move |change| (shard, change)).boxed()
        };
        Self { changes: elections.enumerate().map(changes).collect(), refused: BTreeSet::new() }
    }

    /// Reports the problems that there are from now on. Does not end. Cancel safe.
    pub async fn report(&mut self) {
        while let Some((shard, change)) = self.changes.next().await {
            self.on_change(shard, &change);
        }
        std::future::pending().await
    }

    /// One line for all shards, as they have the same lock.
    fn on_change(&mut self, shard: usize, change: &Change) {
        match change {
            Change::LockFailing(failure) => {
                let next = match failure.kind {
                    LockErrorKind::Denied => "retrying; `incumbent doctor` checks the rights",
                    LockErrorKind::Misconfigured => "retrying; `incumbent doctor` checks the lock",
                    _ => return,
                };
                if self.refused.is_empty() {
                    output::note(format!("incumbent: {}; {next}", failure.message));
                }
                self.refused.insert(shard);
            }
            Change::LockRecovered if self.refused.remove(&shard) && self.refused.is_empty() => {
                output::note("incumbent: the lock accepts requests again");
            }
            _ => {}
        }
    }
}

/// Another member has another number of parts.
pub fn other_number(naming: Naming, own: usize, others: u32) -> String {
    let (parts, change) = match naming {
        Naming::Shards => ("shards", "--shards, or change it by --resizing"),
        Naming::Seats => ("seats", "--seats"),
    };
    format!(
        "incumbent: another member has {others} {parts}, and this one {own}: it leads none beside \
         that one; give all the same {change}"
    )
}
