//! The file of `incumbent record`.

mod file;
mod prune;
mod reader;
mod row;
mod runs;
#[cfg(test)]
mod tests;
mod writer;

pub use self::reader::Recording;
pub use self::runs::ElectionRun;
pub use self::writer::{MIN_SIZE, ObservedPeriod, WriteError, Writer};
