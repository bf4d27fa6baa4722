//! Locks of `etcd://HOST/PREFIX` and `etcds://…`.

use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::etcd::Etcd;
use crate::lock::Lock;

/// The variable with the password of a user whose URL has none, as etcdctl reads it.
const PASSWORD: &str = "ETCDCTL_PASSWORD";

#[derive(Debug, Clone)]
pub(super) struct EtcdTarget {
    etcd: Etcd,
    max_lease: Option<Duration>,
    shown: String,
}

/// Whether two hexadecimal digits follow each `%`.
fn is_well_encoded(text: &str) -> bool {
    let mut parts = text.split('%').skip(1);
    parts.all(|part| part.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

impl StoreTarget for EtcdTarget {
    type Named = Etcd;

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let place = parts.place().strip_prefix("//").unwrap_or_default();
        if place.contains('#') {
            return Err(parts.malformed("write a # as %23"));
        }
        if !is_well_encoded(place) {
            return Err(parts.malformed("write a % as %25"));
        }
        let (authority, prefix) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        if prefix.contains('@') {
            let rule = "write a / in a user or password as %2F, and an @ in a prefix as %40";
            return Err(parts.malformed(rule));
        }
        if hosts.split(',').any(str::is_empty) {
            let rule = "it names no member, as etcd://localhost:2379/elections does";
            return Err(parts.malformed(rule));
        }
        let mut etcd = Etcd::new(hosts.split(','));
        if let Some(user) = user {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let password = match parts.decoded(password)? {
                empty if empty.is_empty() => std::env::var(PASSWORD).unwrap_or_default(),
                password => password,
            };
            etcd = etcd.user(parts.decoded(name)?, password);
        }
        let prefix = parts.decoded(prefix)?;
        if !prefix.is_empty() {
            etcd = etcd.prefix(prefix);
        }
        if parts.scheme() == "etcds" {
            etcd = etcd.tls();
        }
        let files = ["ca", "cert", "cert-key"].map(|option| parts.take(option));
        if parts.scheme() == "etcd" && files.iter().any(Option::is_some) {
            return Err(parts.malformed("ca, cert and cert-key are of TLS: write etcds://"));
        }
        etcd = match files {
            [_, Some(_), None] | [_, None, Some(_)] => {
                return Err(parts.malformed("cert and cert-key name files that belong together"));
            }
            [ca, cert, key] => {
                let etcd = ca.into_iter().fold(etcd, Etcd::authorities);
                cert.zip(key)
                    .into_iter()
                    .fold(etcd, |etcd, (cert, key)| etcd.client_certificate(cert, key))
            }
        };
        let max_lease = parts.take_duration("max-lease")?;
        Ok(Self { etcd, max_lease, shown: parts.shown().to_owned() })
    }

    fn credential_variables(&self) -> &'static [&'static str] {
        &[PASSWORD]
    }

    fn named(&self, options: OpenOptions) -> Result<Etcd, LockUrlError> {
        let max_lease = self.max_lease.or(options.lease);
        Ok(max_lease.into_iter().fold(self.etcd.clone(), Etcd::max_lease))
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let lock = self.named(options)?.lock().map_err(|error| {
            let message = format!("{} cannot be used", self.shown);
            LockUrlError::with_source(LockUrlErrorKind::Unusable, message, error)
        })?;
        Ok(Arc::new(lock))
    }
}
