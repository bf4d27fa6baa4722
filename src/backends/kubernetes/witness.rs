//! Evidence that no object of a name was deleted within a lease: what the API server remembers, and who shows for how long.
//!
//! The server's watch cache remembers every change since some version, and says since which. How old that version is show
//! the Leases that the control plane renews all the time: of three renewals by one holder the third was begun after the first
//! was stored (the second may have been begun before, if the first hung), and tells the time by the holder's clock. So the first, and
//! what lies before it, is at least as old as that clock says. That clock is believed as far as the clock of any other lock:
//! it must not be stepped forward.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use futures_util::stream::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::api::{ApiFailure, Objects};
use super::fresh::remembered;
use super::record::{RecordLocation, parse_time, resource_version};

/// Where the control plane keeps its Leases.
const CONTROL_PLANE: &str = "kube-system";
/// How long to wait for the next event of the past, which the server tells at once.
const SILENCE: Duration = Duration::from_millis(100);
/// How long a server that remembers everything is given to say that it does not. A refusal that comes later still counts: the
/// next watch meets it too.
const OBJECTION: Duration = Duration::from_millis(25);

impl Objects {
    /// From which version on the API server remembers all that became of this name, if that version is older than `span`.
    pub(super) async fn remembers(&self, name: &str, span: Duration, by: Instant) -> Option<u64> {
        let from = self.oldest(name, by).await?;
        let path = Lease::url_path(&(), Some(CONTROL_PLANE));
        let leases = self.elsewhere(path, "Lease", CONTROL_PLANE);
        let mut events = leases.watch_from(from, by).await.ok()?;
        let mut seen = Renewals::default();
        loop {
            let event = timeout_at(by, timeout(SILENCE, events.next())).await.ok()?.ok()?;
            match event? {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    if seen.span(&lease).is_some_and(|seen| seen >= span) {
                        return Some(from);
                    }
                }
                Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Error(_)) | Err(_) => return None,
            }
        }
    }

    /// The oldest version after which a watch of this name tells everything.
    async fn oldest(&self, name: &str, by: Instant) -> Option<u64> {
        let mut events = match self.watch(name, Some("1"), by).await {
            Ok(events) => events,
            Err(ApiFailure::Refused(status)) => return remembered(&status),
            Err(_) => return None,
        };
        match timeout_at(by, timeout(OBJECTION, events.next())).await.ok()? {
            Ok(Some(Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)))) => {
                remembered(&status)
            }
            Ok(None | Some(Err(_))) => None,
            Ok(Some(Ok(_))) | Err(_) => Some(1), // it remembers everything
        }
    }

    /// Whether this object is the first of its name since that version, and has just been made.
    pub(super) async fn is_the_first_since(
        &self,
        from: u64,
        name: &str,
        object: &Value,
        by: Instant,
    ) -> bool {
        let Ok(mut events) = self.watch(name, Some(&from.to_string()), by).await else {
            return false;
        };
        loop {
            match timeout_at(by, events.next()).await {
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                Ok(Some(Ok(WatchEvent::Added(first)))) => {
                    return resource_version(&first) == resource_version(object);
                }
                _ => return false,
            }
        }
    }
}

/// The renewals of Leases, by name.
#[derive(Default)]
struct Renewals(HashMap<String, Renewed>);

struct Renewed {
    holder: String,
    /// How many of its renewals were seen before.
    renewals: u64,
    /// The time of the third.
    third: SystemTime,
}

impl Renewals {
    /// Takes in a renewal. Answers how long ago its holder's third one was, by the holder's clock.
    fn span(&mut self, lease: &Value) -> Option<Duration> {
        let name = lease.pointer("/metadata/name")?.as_str()?;
        let record = RecordLocation::Spec.read(lease)?;
        let at = parse_time(&record.renew_time?)?;
        let holder = record.holder_identity;
        let fresh = || Renewed { holder: holder.clone(), renewals: 0, third: at };
        let seen = self.0.entry(name.to_owned()).or_insert_with(fresh);
        if seen.holder != holder {
            *seen = fresh();
        }
        seen.renewals = seen.renewals.saturating_add(1);
        if seen.renewals == 3 {
            seen.third = at;
        }
        (seen.renewals >= 3).then(|| at.duration_since(seen.third).ok())?
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_third_renewal_of_one_holder_shows_how_long_ago_the_first_was() {
        let mut seen = Renewals::default();
        let mut span = |name: &str, holder: &str, second: u8| {
            let time = format!("2026-01-01T00:00:{second:02}.000000Z");
            let spec = json!({ "holderIdentity": holder, "renewTime": time });
            seen.span(&json!({ "metadata": { "name": name }, "spec": spec }))
        };
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!([span("a", "x", 1), span("a", "x", 2)], [None; 2]);
        assert_eq!(span("a", "x", 3), seconds(0));
        assert_eq!([span("b", "x", 4), span("b", "x", 5)], [None; 2]);
        assert_eq!(span("a", "x", 9), seconds(6));
        assert_eq!([span("a", "y", 20), span("a", "y", 21)], [None; 2], "another clock");
        assert_eq!(span("a", "y", 22), seconds(0));
        assert_eq!(span("a", "y", 21), None, "a clock that was put back");
        assert_eq!(seen.span(&json!({ "metadata": { "name": "c" }, "spec": {} })), None);
    }
}
