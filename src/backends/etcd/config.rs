//! Where a cluster is, and how to connect to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tonic::transport::{ClientTlsConfig, Endpoint};

use super::client::Client;
use super::lock::EtcdLock;
use super::probe::EtcdProbe;
use super::tls::{Tls, over_tls, unusable};
use crate::lock::LockError;
use crate::lock::checkpoint::CHECKPOINTS;
use crate::time::timing::check_max_lease;

/// The prefix of the keys of an [`Etcd`] that names none.
const DEFAULT_PREFIX: &str = "incumbent";
/// The default maximum lease.
const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(15);
/// The port of an endpoint that names none.
const DEFAULT_PORT: u16 = 2379;
const MAX_ENDPOINTS: usize = 32;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a connection with a request, or a watch, is tested. A server closes one that is tested
/// more often than every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A cluster of etcd, version 3.4 or later, and a prefix of its keys.
///
/// ```no_run
/// use incumbent::etcd::Etcd;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let etcd = Etcd::new(["etcd-1:2379", "etcd-2:2379", "etcd-3:2379"]).prefix("elections");
/// let election = incumbent::new_election("my_app", etcd.lock()?).start()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Etcd {
    endpoints: Vec<String>,
    user: Option<(String, String)>,
    tls: Option<Tls>,
    prefix: String,
    max_lease: Duration,
}

impl Etcd {
    /// The cluster that these members belong to, each as `HOST` or `HOST:PORT`. One is used until
    /// it fails. The port is 2379 if none is given.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            user: None,
            tls: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            max_lease: DEFAULT_MAX_LEASE,
        }
    }

    /// Sets the user of etcd's authentication. Its role needs the permission `readwrite` for the
    /// [prefix](Self::prefix) and a slash.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Connects by TLS, and verifies servers by the authorities of the system.
    pub fn tls(mut self) -> Self {
        self.tls.get_or_insert_default();
        self
    }

    /// Connects by TLS, and verifies servers by the authorities of this file, in PEM. It is read
    /// again once a connection has failed.
    pub fn authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.tls.get_or_insert_default().authorities = Some(file.into());
        self
    }

    /// Connects by TLS, with the client certificate and its key of these files, in PEM. They are
    /// read again once a connection has failed.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.tls.get_or_insert_default().certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the prefix of the keys, `incumbent` if none is set: the key of an election is the
    /// prefix, a slash, and the name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the maximum lease, 15 s if none is set. It must be the same for all candidates: a
    /// winner that knows nothing of an earlier leader waits that long.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    /// Returns the lock, for any number of elections. Sends no request: an election that starts
    /// while the cluster is unreachable waits for it.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::lock::LockErrorKind::Misconfigured): a setting, or a file that one
    /// names, cannot be used.
    pub fn lock(&self) -> Result<EtcdLock, LockError> {
        check_max_lease(self.max_lease).map_err(unusable)?;
        let prefix = self.prefix.trim_end_matches('/');
        if prefix.is_empty() || prefix.len() > 1024 || prefix.contains(char::is_control) {
            let what =
                "the prefix of etcd's keys has from 1 to 1024 bytes, and no control characters";
            return Err(unusable(what.to_owned()));
        }
        if format!("/{prefix}/").ends_with(&format!("/{CHECKPOINTS}")) {
            return Err(unusable(format!(
                "{CHECKPOINTS:?} is for checkpoints: use another prefix"
            )));
        }
        Ok(EtcdLock::new(self.client()?, prefix, self.max_lease))
    }

    /// Returns what reads facts about the cluster, for diagnosis.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn probe(&self) -> Result<EtcdProbe, LockError> {
        Ok(EtcdProbe::new(self.lock()?))
    }

    fn client(&self) -> Result<Client, LockError> {
        if self.endpoints.is_empty() || self.endpoints.len() > MAX_ENDPOINTS {
            return Err(unusable(format!("name from 1 to {MAX_ENDPOINTS} members of the cluster")));
        }
        // Once, as a pipe can be.
        let config = self.tls.as_ref().map(Tls::config).transpose()?;
        let endpoints = self.endpoints.iter().map(|text| endpoint(text, config.as_ref()));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok(Client::new(endpoints, self.tls.clone(), self.user.clone(), self.max_lease))
    }
}

/// An endpoint, and its address for people.
fn endpoint(text: &str, tls: Option<&ClientTlsConfig>) -> Result<(Endpoint, String), LockError> {
    let wrong = |_| {
        // It may have a password.
        let has_user = text.contains('@');
        let shown = if has_user { "an address with @".to_owned() } else { format!("{text:?}") };
        unusable(format!("{shown} is no member of a cluster: give HOST:PORT"))
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':')
    });
    let port = text.rsplit_once(':').filter(|_| has_port).map(|(_, port)| port);
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(wrong(()));
    }
    let address = if has_port { text.to_owned() } else { format!("{text}:{DEFAULT_PORT}") };
    if text.is_empty() || text.contains(['/', '@', '?', '#']) {
        return Err(wrong(()));
    }
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
    let endpoint = endpoint.map_err(|_| wrong(()))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE / 2);
    let endpoint = match tls {
        Some(config) => over_tls(endpoint, config.clone())?,
        None => endpoint,
    };
    Ok((endpoint, address))
}

/// Hides the password.
impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One with a user is refused later.
        let shown =
            |text: &String| if text.contains('@') { "***".to_owned() } else { text.clone() };
        f.debug_struct("Etcd")
            .field("endpoints", &self.endpoints.iter().map(shown).collect::<Vec<_>>())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_settings_are_refused_before_any_request() {
        let refused = |etcd: Etcd| etcd.lock().err().map(|error| error.to_string());
        for (etcd, what) in [
            (Etcd::new(["h:99999"]), "is no member of a cluster"),
            (Etcd::new(["h/x"]), "is no member of a cluster"),
            (Etcd::new([""; 0]), "name from 1 to 32 members"),
            (Etcd::new(["h"]).prefix("e/incumbent-checkpoints"), "is for checkpoints"),
            (Etcd::new(["h"]).prefix("incumbent-checkpoints/"), "is for checkpoints"),
            (Etcd::new(["h"]).prefix("/"), "has from 1 to 1024 bytes"),
            (Etcd::new(["h"]).authorities("/dev/null"), "/dev/null is not in PEM"),
        ] {
            let refusal = refused(etcd).unwrap_or_default();
            assert!(refusal.contains(what), "{refusal:?} has no {what:?}");
        }
        let with_password = refused(Etcd::new(["http://me:secret@h"])).unwrap_or_default();
        assert!(with_password.contains("give HOST:PORT"), "{with_password:?}");
        assert!(!with_password.contains("secret"), "{with_password:?}");
        assert_eq!(refused(Etcd::new(["[::1]", "h:1"]).prefix("my-incumbent-checkpoints")), None);
    }

    #[test]
    fn a_password_stays_on_the_machine_or_is_encrypted() {
        let of = |hosts: &[&str]| Etcd::new(hosts.iter().copied()).user("me", "secret");
        let in_clear = |etcd: Etcd| etcd.probe().unwrap().sends_password_in_clear();
        for hosts in [&["localhost"][..], &["[::1]", "[::1]:1"], &["127.0.0.1:1", "localhost:1"]] {
            assert!(!in_clear(of(hosts)), "{hosts:?}");
        }
        let far = of(&["localhost", "etcd-1:2379"]);
        assert!(in_clear(far.clone()));
        assert!(!in_clear(far.tls()));
        assert!(!in_clear(Etcd::new(["etcd-1"])));
    }
}
