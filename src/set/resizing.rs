//! Changing the number of shards of a set that is running.
//!
//! A key belongs to the shard [`shard_of`] names. With a multiple of the shards, the keys of a
//! shard are divided among the shards whose numbers leave the same remainder. So a member that
//! holds the elections of all these excludes the leaders of both numbers. First every member is
//! replaced by one that does, then these are replaced by members with the new number.

use std::sync::Arc;

use crate::lock::forward::renamed;
use crate::lock::multi::all_of;
use crate::lock::{Lock, LockMember};
use crate::protocol::set::member_hash;

/// The shard that a key belongs to, in a set of this many shards.
///
/// It is the 64-bit FNV-1a hash of the key, through the finalizer of SplitMix64, modulo the number
/// of shards. This does not change between versions. With a multiple of the shards, a key goes to a
/// shard whose number leaves the same remainder.
///
/// ```
/// use incumbent::shard_of;
///
/// let shard = shard_of("customer-7", 64);
/// assert_eq!(shard_of("customer-7", 128) % 64, shard);
/// ```
pub fn shard_of(key: &str, shards: u32) -> u32 {
    let shard = member_hash(key) % u64::from(shards.max(1));
    u32::try_from(shard).unwrap_or(0)
}

/// The name of the election of a shard.
pub(super) fn name_of(set: &str, shard: u32) -> String {
    format!("{set}.{shard}")
}

/// The lock of a shard whose leader excludes those of a set of `other` shards, too.
pub(super) fn lock_of_both(
    lock: &Arc<dyn Lock>,
    set: &str,
    shard: u32,
    (shards, other): (u32, u32),
) -> Arc<dyn Lock> {
    let overlapping = (shard..other).step_by(shards.max(1) as usize);
    let members: Vec<LockMember> =
        overlapping.flat_map(|shard| renamed(lock, &name_of(set, shard))).collect();
    Arc::new(all_of(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_shard_forever() {
        let shards: Vec<_> =
            ["", "a", "customer-7"].iter().map(|key| shard_of(key, 1000)).collect();
        assert_eq!(shards, [203, 736, 558]);
    }

    #[test]
    fn keys_spread_over_all_shards() {
        let mut keys = [0; 16];
        for key in 0..16_000 {
            keys[shard_of(&format!("key-{key}"), 16) as usize] += 1;
        }
        assert!(keys.iter().all(|keys| (900..1_100).contains(keys)), "{keys:?}");
    }

    #[test]
    fn a_multiple_divides_the_keys_of_each_shard() {
        for key in (0..1_000).map(|key| format!("key-{key}")) {
            assert_eq!(shard_of(&key, 12) % 4, shard_of(&key, 4));
        }
    }
}
