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
use kube::core::{Status, WatchEvent};
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
    /// Returns a version that is older than `span`, and since which the API server remembers all
    /// changes to this name.
    pub(super) async fn remembers(&self, name: &str, span: Duration, by: Instant) -> Option<u64> {
        for refusal in REFUSAL_TIMEOUTS {
            let from = self.oldest(name, refusal, by).await?;
            // It may have reported too late that it does not remember everything. A busy server
            // forgets its oldest change with each further one.
            if let Since::Version(version) = self.renewals_since(from, span, by).await? {
                return Some(version);
            }
        }
        None
    }

    /// The version of a renewal in the control plane that is so old, if there is one since `from`.
    async fn renewals_since(&self, from: u64, span: Duration, by: Instant) -> Option<Since> {
        let path = Lease::url_path(&(), Some(CONTROL_PLANE));
        let leases = self.elsewhere(path, "Lease", CONTROL_PLANE);
        let mut events = match leases.watch_from(from, by).await {
            Ok(events) => events,
            Err(ApiFailure::Refused(status)) => return forgotten(&status),
            Err(_) => return None,
        };
        let mut seen = Renewals::default();
        loop {
            let event = timeout_at(by, timeout(EVENT_TIMEOUT, events.next())).await.ok()?.ok()?;
            match event? {
                Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                    if let Some((version, age)) = seen.first(&lease)
                        && age >= span
                    {
                        return Some(Since::Version(version));
                    }
                }
                Ok(WatchEvent::Bookmark(_) | WatchEvent::Deleted(_)) => {}
                Ok(WatchEvent::Error(status)) | Err(kube::Error::Api(status)) => {
                    return forgotten(&status);
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

/// What the changes since a version show.
enum Since {
    /// A renewal that is old enough, by its version.
    Version(u64),
    /// The server does not remember them all.
    Forgotten,
}

fn forgotten(status: &Status) -> Option<Since> {
    remembered(status).map(|_| Since::Forgotten)
}

/// The renewals of Leases, by name.
#[derive(Default)]
struct Renewals(HashMap<String, Renewed>);

struct Renewed {
    holder: String,
    /// The version of its first renewal.
    first: u64,
    /// How many of the holder's renewals came before.
    renewals: u64,
    /// The time of its third renewal.
    third: SystemTime,
}

impl Renewals {
    /// Records a renewal. Returns the version of the holder's first renewal, and how old it is at
    /// the least: how long ago the third one was, by the holder's clock.
    fn first(&mut self, lease: &Value) -> Option<(u64, Duration)> {
        let version = resource_version(lease)?;
        let name = lease.pointer("/metadata/name")?.as_str()?;
        let record = RecordLocation::Spec.read(lease)?;
        let at = parse_time(&record.renew_time?)?;
        let holder = record.holder_identity;
        let fresh = || Renewed { holder: holder.clone(), first: version, renewals: 0, third: at };
        let seen = self.0.entry(name.to_owned()).or_insert_with(fresh);
        if seen.holder != holder {
            *seen = fresh();
        }
        seen.renewals = seen.renewals.saturating_add(1);
        if seen.renewals == 3 {
            seen.third = at;
        }
        let age = (seen.renewals >= 3).then(|| at.duration_since(seen.third).ok())??;
        Some((seen.first, age))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_third_renewal_of_one_holder_shows_how_long_ago_the_first_was() {
        let mut seen = Renewals::default();
        let mut version = 0;
        let mut first = |name: &str, holder: &str, second: u8| {
            version += 1;
            let time = format!("2026-01-01T00:00:{second:02}.000000Z");
            let metadata = json!({ "name": name, "resourceVersion": version.to_string() });
            let spec = json!({ "holderIdentity": holder, "renewTime": time });
            seen.first(&json!({ "metadata": metadata, "spec": spec }))
        };
        let at = |version, age| Some((version, Duration::from_secs(age)));
        assert_eq!([first("a", "x", 1), first("a", "x", 2)], [None; 2]);
        assert_eq!(first("a", "x", 3), at(1, 0));
        assert_eq!([first("b", "x", 4), first("b", "x", 5)], [None; 2]);
        assert_eq!(first("a", "x", 9), at(1, 6));
        assert_eq!([first("a", "y", 20), first("a", "y", 21)], [None; 2], "another clock");
        assert_eq!(first("a", "y", 22), at(7, 0));
        assert_eq!(first("a", "y", 21), None, "a clock that was put back");
        let empty = json!({ "metadata": { "name": "c", "resourceVersion": "11" }, "spec": {} });
        assert_eq!(seen.first(&empty), None);
    }
}
