//! Where a leader can be reached.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

/// The most bytes of an address, its keys and its values together.
const MAX_LEN: usize = 1024;

/// Where a leader can be reached: an address, and pairs of a key and a value.
///
/// It travels in the leader's entry, so every process that may read the lock can read it, as long
/// as the leader holds the entry. It is checked when the election
/// [starts](crate::ElectionBuilder::start): the address has at least one character and no blanks,
/// keys are not empty, nothing has a control character, and all together have at most 1,024 bytes.
///
/// ```
/// use incumbent::Advertisement;
///
/// let plain = Advertisement::new("10.0.0.3:50051");
/// let advertised = Advertisement::new("https://c1.example.net").with("zone", "eu-1").with("version", "1.4");
/// assert_eq!(plain.location("/jobs?all=1"), "http://10.0.0.3:50051/jobs?all=1");
/// assert_eq!(advertised.location("/jobs"), "https://c1.example.net/jobs");
/// assert_eq!(advertised.metadata()["zone"], "eu-1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Advertisement {
    address: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl Advertisement {
    /// An address, as the leader's clients want it: `host:port`, or a URL.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), metadata: BTreeMap::new() }
    }

    /// Adds a pair. The same key again replaces the value.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The pairs.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Where to redirect a client that requested `path`, with its query, from a standby: the value
    /// of a `Location` header, for the status 307. An address that is no URL is taken for
    /// `host:port` of plain HTTP.
    pub fn location(&self, path: &str) -> String {
        let address = self.address.trim_end_matches('/');
        let scheme = if address.contains("://") { "" } else { "http://" };
        let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
        format!("{scheme}{address}{slash}{path}")
    }

    /// The host and the port to connect to, of `host:port` or of a URL; without a port that of
    /// `http` or `https`. An IPv6 address is returned without its brackets.
    ///
    /// # Errors
    /// [`AdvertisementError::NoPort`], [`AdvertisementError::Unspecified`]
    pub fn host_and_port(&self) -> Result<(&str, u16), AdvertisementError> {
        let (scheme, rest) = self.address.split_once("://").unwrap_or(("", &self.address));
        let authority = match scheme {
            "" => rest,
            _ => rest.split(['/', '?', '#']).next().unwrap_or(rest),
        };
        let (host, port) = match (authority.rsplit_once(':'), scheme) {
            (Some((host, port)), _) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, port.parse().ok())
            }
            (_, "http") => (authority, Some(80)),
            (_, "https") => (authority, Some(443)),
            _ => (authority, None),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_valid = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
            None => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                !host.is_empty() && host.bytes().all(fits)
            }
        };
        let port = port.filter(|port| is_valid && *port != 0);
        let (host, port) = (bare.unwrap_or(host), port.ok_or(AdvertisementError::NoPort)?);
        match host.parse::<IpAddr>() {
            Ok(ip) if ip.to_canonical().is_unspecified() => Err(AdvertisementError::Unspecified),
            _ => Ok((host, port)),
        }
    }

    /// Refuses what no lock takes.
    pub(crate) fn check(&self) -> Result<(), AdvertisementError> {
        let pairs = || self.metadata.iter().flat_map(|(key, value)| [key, value]);
        let length = self.address.len() + pairs().map(String::len).sum::<usize>();
        if self.address.is_empty() {
            Err(AdvertisementError::Empty)
        } else if self.address.chars().any(|c| c.is_whitespace() || c.is_control()) {
            Err(AdvertisementError::Blank)
        } else if self.metadata.contains_key("") {
            Err(AdvertisementError::NoKey)
        } else if pairs().any(|text| text.chars().any(char::is_control)) {
            Err(AdvertisementError::Control)
        } else if length > MAX_LEN {
            Err(AdvertisementError::TooLong { length })
        } else {
            Ok(())
        }
    }
}

impl Advertisement {
    /// As JSON in ASCII: other characters are escaped, as servers on the way may change them.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default(); // strings always are JSON
        crate::util::text::ascii_json(&json)
    }

    /// Reads [`to_json`](Self::to_json); `None` if it is not an advertisement, or exceeds the
    /// limit.
    pub fn from_json(json: &str) -> Option<Self> {
        const MAX_JSON_LEN: usize = 8 * MAX_LEN;
        let json = Some(json).filter(|json| json.len() <= MAX_JSON_LEN)?;
        serde_json::from_str::<Self>(json).ok().filter(|read| read.check().is_ok())
    }
}

impl<A: Into<String>> From<A> for Advertisement {
    fn from(address: A) -> Self {
        Self::new(address)
    }
}

/// What is wrong with an [`Advertisement`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AdvertisementError {
    /// It has no address.
    #[error("the address is empty")]
    Empty,
    /// A blank or a control character in the address.
    #[error("the address has a blank or a control character")]
    Blank,
    /// An empty key.
    #[error("a key of the metadata is empty")]
    NoKey,
    /// A control character.
    #[error("the metadata have a control character")]
    Control,
    /// More than a lock takes.
    #[error("address and metadata have {length} bytes, and the maximum is 1024")]
    TooLong {
        /// Bytes of all strings together.
        length: usize,
    },
    /// No host and port to connect to.
    #[error("the address is neither host:port nor a URL with a port")]
    NoPort,
    /// An address to listen at: who connects to it reaches its own host.
    #[error("the address is one to listen at: advertise that of a network interface, or a name")]
    Unspecified,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_lock_takes_is_refused_with_the_reason() {
        let long = "x".repeat(MAX_LEN);
        let cases = [
            (Advertisement::new(""), AdvertisementError::Empty),
            (Advertisement::new("a b"), AdvertisementError::Blank),
            (Advertisement::new("a\nb"), AdvertisementError::Blank),
            (Advertisement::new("a").with("", "b"), AdvertisementError::NoKey),
            (Advertisement::new("a").with("k", "\0"), AdvertisementError::Control),
            (Advertisement::new("a").with("", long.as_str()), AdvertisementError::NoKey),
            (
                Advertisement::new("ab").with("k", long.as_str()),
                AdvertisementError::TooLong { length: 1027 },
            ),
        ];
        for (advertisement, error) in cases {
            assert_eq!(advertisement.check(), Err(error));
        }
        assert_eq!(Advertisement::new(long).check(), Ok(()));
    }

    #[test]
    fn a_client_is_sent_on_with_its_path_and_query() {
        for (address, path, location) in [
            ("h:1", "/a?b=c", "http://h:1/a?b=c"),
            ("h:1", "", "http://h:1"),
            ("[::1]:80", "a", "http://[::1]:80/a"),
            ("https://h/base/", "/a", "https://h/base/a"),
        ] {
            assert_eq!(Advertisement::new(address).location(path), location);
        }
    }

    #[test]
    fn host_and_port_are_those_of_an_address_or_a_url() {
        for (address, expected) in [
            ("10.0.0.1:80", Some(("10.0.0.1", 80))),
            ("c1.example.net:5432", Some(("c1.example.net", 5432))),
            ("[::1]:80", Some(("::1", 80))),
            ("https://c1:8443/base?a=b:1", Some(("c1", 8443))),
            ("https://c1", Some(("c1", 443))),
            ("http://[::1]/", Some(("::1", 80))),
            ("tcp://c1:1#a", Some(("c1", 1))),
            ("tcp://c1", None),
            ("tcp://[::1]", None),
            ("c1", None),
            (":80", None),
            ("c1:0", None),
            ("c1:65536", None),
            ("c1:80/a", None),
            ("c1:+80", None),
            ("::1:80", None),
            ("[c1]:80", None),
            ("https://user:secret@c1:80", None),
            ("0.0.0.0:80", None),
            ("http://[::]", None),
            ("[::ffff:0.0.0.0]:80", None),
            ("é:80", None),
        ] {
            assert_eq!(Advertisement::new(address).host_and_port().ok(), expected, "{address}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_is_plain_ascii(
            address in "[!-~\u{a1}-\u{ff}]{1,40}",
            metadata in prop::collection::btree_map("\\PC{1,8}", "\\PC{0,20}", 0..4),
        ) {
            let advertisement = Advertisement { address, metadata };
            prop_assume!(advertisement.check().is_ok());
            let json = advertisement.to_json();
            prop_assert!(json.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(Advertisement::from_json(&json), Some(advertisement));
        }

        #[test]
        fn any_text_is_read_or_is_none(text in "\\PC{0,200}") {
            let _ = Advertisement::from_json(&text);
            let _ = Advertisement::new(text).host_and_port();
        }
    }
}
