//! How a candidate's leadership moves: its site, its check, and what it prefers.

use std::time::Duration;

use super::ElectionBuilder;
use crate::driver::health::HealthCheck;
use crate::driver::set_part::SharedLedger;
use crate::lock::Readiness;
use crate::protocol::Rank;

impl ElectionBuilder {
    /// Where this candidate runs, such as a zone or a data centre: at most 128 bytes. Stated in its
    /// entry and in roll calls, and named by [`Successor::Site`](crate::Successor::Site). Default:
    /// nowhere.
    pub fn site(mut self, site: impl Into<String>) -> Self {
        self.site = Some(site.into().into());
        self
    }

    /// Checks whether this candidate can do the work of a leader. Default: it always can.
    ///
    /// While the check fails, the candidate acquires the entry only if nobody else does within a
    /// lease; until the first check has passed, likewise. A leader whose check fails hands over, at
    /// most once per lease, to a candidate that is ready. If none is, it continues to lead, and
    /// logs so.
    pub fn check(mut self, check: HealthCheck) -> Self {
        self.moves.check = Some(check);
        self
    }

    /// Asks a leader of lower [priority](Self::priority) to hand over, once this candidate has been
    /// ready for `after`, one to two leases after it has seen that leader. Default: never; the
    /// priority then counts only at a vacancy.
    ///
    /// A minute suits most fleets: a host that returns may have more to do than its agent shows.
    pub fn prefer_after(mut self, after: Duration) -> Self {
        self.moves.prefer_after = Some(after);
        self
    }

    /// Makes the election a shard of a set, whose member begins this ready and with this rank.
    pub(crate) fn shard(mut self, share: SharedLedger, readiness: Readiness, rank: Rank) -> Self {
        let moves = &mut self.moves;
        (moves.share, moves.of_member, moves.rank) = (Some(share), readiness, rank);
        self
    }

    /// Whether this candidate begins by standing aside: it then leads only if no ready one does,
    /// whatever its priority. Default: it does not. See
    /// [`Election::stand_aside`](crate::Election::stand_aside).
    pub fn stand_aside(mut self, aside: bool) -> Self {
        self.moves.aside = aside;
        self
    }
}
