//! Nonces and tokens in JSON.

pub(in crate::lock) mod nonce_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::lock::Nonce;
    use crate::lock::codec::parse_nonce;

    pub fn serialize<S: Serializer>(nonce: &Nonce, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(nonce)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        parse_nonce(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("not a nonce"))
    }
}

pub(super) mod token_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::lock::Token;

    pub fn serialize<S: Serializer>(token: &Option<Token>, to: S) -> Result<S::Ok, S::Error> {
        token.map(|token| token.0).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Token>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Token))
    }
}
