//! Helpers that know nothing of elections: text, retry schedules, streams of changes, values per
//! name.

pub(crate) mod changes;
#[cfg(feature = "_history")]
pub(crate) mod nested;
#[cfg(any(feature = "kubernetes", feature = "_objects", feature = "postgres"))]
pub(crate) mod per_key;
pub(crate) mod retry;
pub(crate) mod text;
pub(crate) mod watched;
