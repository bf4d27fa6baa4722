//! Helpers that know nothing of elections: text, retry schedules, streams of changes, values per
//! name, `Debug` of a part.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// `Debug` of a type some parts of which say nothing, or are secret: those that do, and `..`.
macro_rules! partial_debug {
    ($type:ident $(<$of:ident $(: $bound:path)?>)?, $self:ident $(, $part:ident: $value:expr)*) => {
        impl $(<$of $(: $bound)?>)? std::fmt::Debug for $type $(<$of>)? {
            fn fmt(&$self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($part), &$value);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}

pub(crate) mod changes;
#[allow(dead_code, reason = "each lock uses some of it")]
pub(crate) mod per_key;
#[allow(dead_code, reason = "each lock uses some of it")]
pub(crate) mod retry;
pub(crate) mod text;
pub(crate) mod watched;

/// Returns the wall clock since the Unix epoch; zero before it.
pub(crate) fn since_unix_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Reads a file of at most this many bytes, whatever its length is said to be.
#[allow(dead_code, reason = "each lock uses some of it")]
pub(crate) fn read_limited(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(max.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 <= max {
        true => Ok(content),
        false => Err(io::Error::other(format!("it is larger than {max} bytes"))),
    }
}

/// Returns a hash that is the same on every machine and in every build: FNV-1a.
pub(crate) fn stable_hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let fnv = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, fnv)
}

/// Locks a mutex, also after a panic of who held it: what it guards is whole between statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
