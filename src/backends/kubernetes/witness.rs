//! Evidence that no object of a name was deleted within a lease: which changes the API server
//! remembers, and renewals that show how old the first of them is.
//!
//! The server's watch cache remembers every change since some version, and reports that version.
//! The Leases that the control plane renews continuously show how old it is. Of three renewals by
//! one holder, the third was begun after the first was stored (the second may have been begun
//! before, if the first hung), and carries the time of the holder's clock. The first renewal, and
//! everything before it, is therefore at least as old as that clock shows. That clock is trusted as
//! much as the clock of any other lock: it must not be stepped forward.

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

/// The namespace of the control plane's Leases.
const CONTROL_PLANE: &str = "kube-system";
/// How long to wait for the next past event. Only a server without evidence is waited for so long:
/// a lease is waited for then.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for a server to report that it does not remember everything. One that does is
/// waited for in full, so the first wait is short. A report that comes later is awaited once more.
const REFUSAL_TIMEOUTS: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(500)];

impl Objects {
    /// Returns the version since which the API server remembers all changes to this name, if that
    /// version is older than `span`.
    pub(super) async fn remembers(&self, name: &str, span: Duration, by: Instant) -> Option<u64> {
        for refusal in REFUSAL_TIMEOUTS {
            let from = self.oldest(name, refusal, by).await?;
            match self.shows_renewals(from, span, by).await {
                Some(true) => return Some(from),
                Some(false) if from == 1 => {} // it may have reported that too late
                _ => return None,
            }
        }
        None
    }

    /// Whether renewals in the control plane since this version span so much time; `Some(false)` if
    /// the server does not remember that version.
    async fn shows_renewals(&self, from: u64, span: Duration, by: Instant) -> Option<bool> {
        let path = Lease::url_path(&(), Some(CONTROL_PLANE));
        let leases = self.elsewhere(path, "Lease", CONTROL_PLANE);
        let mut events = match leases.watch_from(from, by).await {
            Ok(events) => events,
            Err(ApiFailure::Refused(status)) => return remembered(&status).map(|_| false),
            Err(_) => return None,
        };
        let mut seen = Renewals::default();
        loop {
            let event = timeout_at(by, timeout(EVENT_TIMEOUT, events.next())).await.ok()?.ok()?;
            match event? {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    if seen.span(&lease).is_some_and(|seen| seen >= span) {
                        return Some(true);
                    }
                }
                Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)) => {
                    return remembered(&status).map(|_| false);
                }
                Err(_) => return None,
            }
        }
    }

    /// Returns the oldest version after which a watch of this name reports every change.
    async fn oldest(&self, name: &str, refusal: Duration, by: Instant) -> Option<u64> {
        let mut events = match self.watch(name, Some("1"), by).await {
            Ok(events) => events,
            Err(ApiFailure::Refused(status)) => return remembered(&status),
            Err(_) => return None,
        };
        match timeout_at(by, timeout(refusal, events.next())).await.ok()? {
            Ok(Some(Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)))) => {
                remembered(&status)
            }
            Ok(None | Some(Err(_))) => None,
            Ok(Some(Ok(_))) | Err(_) => Some(1), // the server remembers everything
        }
    }

    /// Whether this object is the first of its name since that version, and was just created.
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
    /// How many of the holder's renewals came before.
    renewals: u64,
    /// The time of its third renewal.
    third: SystemTime,
}

impl Renewals {
    /// Records a renewal. Returns how long ago the holder's third renewal was, by the holder's
    /// clock.
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
