//! Who is in a group.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use super::wire::MemberState;
use crate::time::clock::Instant;

/// A member of a group, as it was last heard.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// What tells it from others.
    pub id: Arc<str>,
    /// The heaviest is elected.
    pub weight: f64,
    /// Where its messages come from, which is where it can be reached; of oneself, what is told to others, if it is known.
    pub address: Option<SocketAddr>,
    /// What it subscribes to.
    pub channels: BTreeSet<String>,
    /// Whether it is this process.
    pub is_me: bool,
}

/// What is known of another member.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub member: Member,
    pub standing: MemberState,
    /// When it was last heard.
    pub heard: Instant,
    /// When it was counted out.
    pub removed: Option<Instant>,
    /// Whether it hears what is sent to the group's multicast address.
    pub multicast: bool,
}

impl Known {
    pub fn stands(&self) -> bool {
        self.standing != MemberState::Removed
    }

    pub fn leads(&self) -> bool {
        self.standing == MemberState::Leader
    }
}

/// Whether `a` is elected rather than `b`. Two of one weight are told apart by their names.
pub(super) fn outweighs(a: (f64, &str), b: (f64, &str)) -> bool {
    a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)).is_gt()
}
