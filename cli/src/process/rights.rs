//! Rights that a command does not get.

use std::io;

use rustix::io::Errno;
use rustix::process::{geteuid, getuid};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What it takes to add an address and to announce it.
const OF_ADDRESSES: [CapabilitySet; 2] = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW];

/// Drops `CAP_NET_ADMIN` and `CAP_NET_RAW` for this process and what it executes. It must have one
/// thread only.
///
/// A process that is not root may still execute programs that have them, or are root, by their
/// files, as `sudo`: only `CAP_SETPCAP` allows to forbid that.
pub fn drop_network_rights() -> io::Result<()> {
    let mut are_bounded = true;
    for capability in OF_ADDRESSES {
        configure_capability_in_ambient_set(capability, false)?;
        match remove_capability_from_bounding_set(capability) {
            Err(Errno::PERM) => are_bounded = false,
            removed => removed?,
        }
    }
    let mut sets = capabilities(None)?;
    for capability in OF_ADDRESSES {
        sets.effective.remove(capability);
        sets.permitted.remove(capability);
        sets.inheritable.remove(capability);
    }
    set_capabilities(None, sets)?;
    // A program that root executes gets all that is in the bounding set, but for this.
    if !are_bounded && (getuid().is_root() || geteuid().is_root()) {
        set_no_new_privs(true)?;
    }
    Ok(())
}
