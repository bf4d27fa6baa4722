//! An option in an option: JSON's `null` alone cannot distinguish `None` from `Some(None)`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `Some(inner)` is written as a list of one.
pub(crate) fn serialize<T: Serialize, S: Serializer>(
    value: &Option<Option<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(|inner| [inner]).serialize(serializer)
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    let list = Option::<[Option<T>; 1]>::deserialize(deserializer)?;
    Ok(list.map(|[inner]| inner))
}
