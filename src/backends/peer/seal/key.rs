//! Secrets that members of a group share.

use std::fmt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::util::read_limited;

/// The minimum and maximum length of a key in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;
/// The maximum number of keys of a member.
const MAX_KEYS: usize = 8;
/// The maximum size of a key file in bytes.
const MAX_FILE: u64 = 64 * 1024;
/// The length of a tag in bytes: half of a digest, as RFC 2104 allows.
pub(super) const TAG: usize = 16;

/// A key, ready to sign. `Debug` does not reveal it.
#[derive(Clone)]
pub(in crate::backends::peer) struct Key(Hmac<Sha256>);

impl Key {
    /// # Errors
    /// Returns why the key is invalid.
    pub fn new(secret: &[u8]) -> Result<Self, &'static str> {
        if secret.len() < *LENGTHS.start() {
            return Err("a key is shorter than 16 bytes; create one with: openssl rand -base64 32");
        }
        if secret.len() > *LENGTHS.end() {
            return Err("a key is longer than 1024 bytes");
        }
        let mac = Hmac::new_from_slice(secret).map_err(|_| "it is not a valid key")?;
        Ok(Self(mac))
    }

    pub fn tag(&self, parts: &[&[u8]]) -> [u8; TAG] {
        let digest = self.over(parts).finalize().into_bytes();
        let mut tag = [0; TAG];
        tag.iter_mut().zip(digest).for_each(|(byte, of)| *byte = of);
        tag
    }

    /// Returns whether `tag` is the tag of these parts, in constant time.
    pub fn verifies(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        tag.len() == TAG && self.over(parts).verify_truncated_left(tag).is_ok()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

/// Returns the keys of a member from their secrets: the first signs, all are accepted.
pub(in crate::backends::peer) fn keys(secrets: &[Vec<u8>]) -> Result<Vec<Key>, &'static str> {
    if secrets.len() > MAX_KEYS {
        return Err("there are more than 8 keys");
    }
    secrets.iter().map(|secret| Key::new(secret)).collect()
}

/// Reads the secrets of a key file: one per line, without surrounding whitespace. Empty lines and
/// lines that begin with `#` are skipped.
///
/// # Errors
/// Returns why the file is invalid. The error never contains its content.
pub(in crate::backends::peer) fn read_file(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = read_limited(path, MAX_FILE);
    let text = text.map_err(|error| format!("it cannot be read: {error}"))?;
    secrets_of(&text).map_err(str::to_owned)
}

fn secrets_of(text: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let secrets = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    let secrets: Vec<_> = secrets.take(MAX_KEYS + 1).map(<[u8]>::to_vec).collect();
    if secrets.is_empty() {
        return Err("it has no key: write one key per line");
    }
    keys(&secrets)?;
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_keys() {
        let text = b"# new\n  0123456789abcdef0 \r\n\n0123456789abcdef1";
        assert_eq!(secrets_of(text).unwrap(), [b"0123456789abcdef0", b"0123456789abcdef1"]);
    }

    #[test]
    fn invalid_key_file_is_refused_without_its_content() {
        for text in ["", "# only\n", "hunter2", &"x".repeat(2000), &"0123456789abcdef\n".repeat(9)]
        {
            let error = secrets_of(text.as_bytes()).unwrap_err();
            assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
        }
    }

    /// RFC 4231, test case 2 has too short a key; case 3 has 20 bytes.
    #[test]
    fn tags_match_rfc_4231() {
        let key = Key::new(&[0xaa; 20]).unwrap();
        let tag = [
            0x77, 0x3e, 0xa9, 0x1e, 0x36, 0x80, 0x0e, 0x46, 0x85, 0x4d, 0xb8, 0xeb, 0xd0, 0x91,
            0x81, 0xa7,
        ];
        let data = [0xdd; 50];
        assert_eq!(key.tag(&[&data[..7], &data[7..]]), tag);
        assert!(key.verifies(&[&data], &tag));
        assert!(!key.verifies(&[&data], &tag[..15]) && !key.verifies(&[&data[1..]], &tag));
        assert_eq!(format!("{key:?}"), "Key(***)");
    }
}
