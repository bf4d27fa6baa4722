//! The fields of calls and answers in JSON.

use serde::Deserialize;

use super::CandidateRequest;

pub(super) mod call_id_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::lock::CallId;
    use crate::lock::codec::parse_hex;

    pub fn serialize<S: Serializer>(id: &CallId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CallId, D::Error> {
        let number = parse_hex(&String::deserialize(from)?);
        number.map(CallId).ok_or_else(|| D::Error::custom("not the id of a call"))
    }
}

pub(super) mod within_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::lock::RollCall;
    use crate::time::timing::whole_millis;

    pub fn serialize<S: Serializer>(within: &Duration, to: S) -> Result<S::Ok, S::Error> {
        whole_millis(*within).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(from)?).min(RollCall::MAX_WITHIN))
    }
}

pub(super) fn bounded_request<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<CandidateRequest, D::Error> {
    CandidateRequest::deserialize(from).map(CandidateRequest::bounded)
}
