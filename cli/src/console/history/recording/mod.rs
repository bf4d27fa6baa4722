//! The file of `incumbent record`.

mod file;
mod prune;
mod reader;
mod row;
#[cfg(test)]
mod tests;
mod writer;

pub use self::reader::Recording;
pub use self::writer::{MIN_SIZE, ObservedPeriod, WriteError, Writer};
