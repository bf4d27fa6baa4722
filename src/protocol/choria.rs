//! How late Choria's candidates learn that they no longer lead.

use std::time::Duration;

use crate::time::timing::{three_quarters, with_drift};

/// How long a request of Choria's candidates may hang: nats.go's default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that one with a back-off waits between a renewal's response and the next renewal.
const MAX_BACK_OFF: Duration = Duration::from_millis(750);

/// How long after its last write one of Choria's candidates may lead at the most.
///
/// They renew every 0.75 of the bucket's TTL, but not before the last response, which may come
/// late; with a back-off they renew soon after it. Then the renewal that fails may hang as well.
pub(super) fn may_lead_for(bucket_ttl: Duration) -> Duration {
    let next_renewal = three_quarters(bucket_ttl).max(REQUEST_TIMEOUT + MAX_BACK_OFF);
    with_drift(next_renewal.saturating_add(REQUEST_TIMEOUT))
}
