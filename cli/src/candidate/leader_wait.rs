//! `GET /leader?wait`: the answer comes when the leader changes.

use std::sync::Arc;
use std::time::Duration;

use incumbent::{Advertisement, Status, StatusWatch};
use tokio::time::{Instant, sleep_until};

/// The longest wait.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderWait {
    /// The next change.
    Change,
    /// That the leader's token differs from this one.
    TokenOtherThan(Option<u64>),
}

/// The fields compared to detect a change of the leader: a renewal changes none.
type Leading = (Option<(Arc<str>, Option<u64>, Option<Arc<Advertisement>>)>, bool);

impl LeaderWait {
    /// Parses the query of a request: `None` if it does not wait.
    pub fn parse(query: Option<&str>) -> Result<Option<Self>, String> {
        let mut parts = query.unwrap_or_default().split('&');
        let wait = parts.find_map(|part| match part.split_once('=') {
            Some(("wait", value)) => Some(value),
            None if part == "wait" => Some(""),
            _ => None,
        });
        match wait {
            None => Ok(None),
            Some("") => Ok(Some(Self::Change)),
            Some("null") => Ok(Some(Self::TokenOtherThan(None))),
            Some(token) => match token.parse() {
                Ok(token) => Ok(Some(Self::TokenOtherThan(Some(token)))),
                Err(_) => Err("write ?wait=TOKEN with the token of /leader, or ?wait\n".to_owned()),
            },
        }
    }

    /// Waits until the leader has changed, for `MAX_WAIT` at most. `now`: the status, if the lock
    /// was reached. `watch`: that of the election, once it was.
    pub async fn over(self, now: Option<Status>, watch: impl AsyncFnOnce() -> StatusWatch) {
        let end = Instant::now() + MAX_WAIT;
        tokio::select! {
            () = self.changed(now, watch) => {}
            () = sleep_until(end) => {}
        }
    }

    async fn changed(self, now: Option<Status>, watch: impl AsyncFnOnce() -> StatusWatch) {
        let mut first = match self {
            Self::TokenOtherThan(_) => None,
            // Nothing is known of a lock that was not reached.
            Self::Change => Some(now.as_ref().map_or_else(Default::default, leading)),
        };
        let mut watch = watch().await;
        while let Some(status) = watch.next().await {
            let now = leading(&status);
            if let Self::TokenOtherThan(known) = self
                && token(&now) != known
            {
                return;
            }
            if *first.get_or_insert_with(|| now.clone()) != now {
                return;
            }
        }
    }
}

fn leading(status: &Status) -> Leading {
    let leader = status.leader.as_ref().map(|leader| {
        let token = leader.token.map(|token| token.0);
        (Arc::clone(&leader.identity), token, leader.advertisement.clone())
    });
    (leader, status.token.is_some())
}

fn token((leader, _): &Leading) -> Option<u64> {
    leader.as_ref().and_then(|(_, token, _)| *token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_names_the_known_token() {
        for query in [None, Some(""), Some("waits"), Some("a=wait&b=1")] {
            assert_eq!(LeaderWait::parse(query), Ok(None), "{query:?}");
        }
        for query in ["wait", "wait=", "a=1&wait"] {
            assert_eq!(LeaderWait::parse(Some(query)), Ok(Some(LeaderWait::Change)), "{query}");
        }
        for (query, token) in [("wait=7", Some(7)), ("a&wait=0&b", Some(0)), ("wait=null", None)] {
            let wait = Ok(Some(LeaderWait::TokenOtherThan(token)));
            assert_eq!(LeaderWait::parse(Some(query)), wait, "{query}");
        }
        for query in ["wait=x", "wait=-1", "wait=18446744073709551616", "wait=%37"] {
            assert!(LeaderWait::parse(Some(query)).is_err(), "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_is_bounded() {
        let begun = Instant::now();
        // The lock is never reached.
        LeaderWait::Change.over(None, async || std::future::pending().await).await;
        assert_eq!(begun.elapsed().as_secs(), MAX_WAIT.as_secs());
    }
}
