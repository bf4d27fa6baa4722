//! Nanoseconds, written as the duration that they are.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(nanos: &u64, to: S) -> Result<S::Ok, S::Error> {
    Duration::from_nanos(*nanos).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Duration::deserialize(from).map(super::nanos)
}
