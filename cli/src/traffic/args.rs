//! The flags of what directs requests to the leader.

use clap::Args;

use super::address::VirtualIp;
use super::service::ServiceArgs;
use crate::lock_args::LockArgs;

/// Parses the arguments of the program.
pub type ParseTraffic = fn(Vec<String>) -> Option<(TrafficArgs, LockArgs)>;

/// The flags of what directs requests to the leader.
#[derive(Debug, Clone, Default, Args)]
pub struct TrafficArgs {
    /// An address that this host has while it leads, as in 10.0.0.5/24@eth0. Repeat it for several.
    ///
    /// It is added when a term begins, and removed before the lock is released, and before the
    /// deadline in any case: by a process of its own if this one is killed or hangs, and by the
    /// kernel if all are. Hosts of the network are told at once. It needs a lease of 5s or more,
    /// CAP_NET_ADMIN and CAP_NET_RAW, which COMMAND does not get.
    #[arg(long, value_name = "ADDRESS/PREFIX@INTERFACE", help_heading = "Traffic")]
    pub virtual_ip: Vec<VirtualIp>,
    #[command(flatten)]
    pub service: ServiceArgs,
}

impl TrafficArgs {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.virtual_ip.is_empty() && self.service.is_empty()
    }

    /// Whether COMMAND is to lose the capabilities of the network.
    pub fn has_addresses(&self) -> bool {
        !self.virtual_ip.is_empty()
    }
}
