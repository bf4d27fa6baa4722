//! Members of a group.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use super::wire::MemberState;
use crate::time::clock::Instant;

/// A member of a group, as of its last message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The identifier of the member.
    pub id: Arc<str>,
    /// The weight: the heaviest member is elected.
    pub weight: f64,
    /// The address that its messages come from, which also receives messages; of this member: the
    /// advertised address, if it is known.
    pub address: Option<SocketAddr>,
    /// The channels that the member subscribes to.
    pub channels: BTreeSet<String>,
    /// Whether the member is this process.
    pub is_me: bool,
}

/// The local record of another member.
#[derive(Debug, Clone)]
pub(super) struct KnownMember {
    pub member: Member,
    pub standing: MemberState,
    /// When its last message arrived.
    pub last_received: Instant,
    /// When the member was removed.
    pub removed: Option<Instant>,
    /// Whether it receives messages to the group's multicast address.
    pub multicast: bool,
}

impl KnownMember {
    pub fn is_present(&self) -> bool {
        self.standing != MemberState::Removed
    }

    pub fn leads(&self) -> bool {
        self.standing == MemberState::Leader
    }
}

/// Returns whether `a` is elected rather than `b`. The identifier decides between equal weights.
pub(super) fn outweighs(a: (f64, &str), b: (f64, &str)) -> bool {
    a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)).is_gt()
}
