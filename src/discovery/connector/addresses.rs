//! The IP addresses of leaders.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use crate::util::locked;

/// How long what a name resolves to counts.
const LIFETIME: Duration = Duration::from_secs(1);

/// What the name of a leader resolves to. All connections to it share one lookup, which continues
/// when they are given up.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<Option<Lookup>>);

#[derive(Debug, Clone)]
struct Lookup {
    host: Arc<str>,
    found: Shared<BoxFuture<'static, LookupResult>>,
}

#[derive(Debug, Clone)]
struct LookupResult {
    addresses: Result<Arc<[SocketAddr]>, (io::ErrorKind, Arc<str>)>,
    at: Instant,
}

impl Addresses {
    /// The addresses of this host, with port 0. Cancel safe.
    pub(super) async fn of(&self, host: &str) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::new([(ip, 0).into()]));
        }
        loop {
            let lookup = self.lookup(host);
            let found = lookup.found.clone().await;
            if found.at.elapsed() < LIFETIME {
                return found.addresses.map_err(|(kind, why)| io::Error::new(kind, &*why));
            }
            self.forget(&lookup);
        }
    }

    /// The lookup under way, or the last one; else a new one.
    fn lookup(&self, host: &str) -> Lookup {
        let mut last = locked(&self.0);
        match &*last {
            Some(last) if *last.host == *host => last.clone(),
            _ => last.insert(Lookup::start(host)).clone(),
        }
    }

    fn forget(&self, lookup: &Lookup) {
        let mut last = locked(&self.0);
        last.take_if(|last| last.found.ptr_eq(&lookup.found));
    }
}

impl Lookup {
    fn start(host: &str) -> Self {
        let host = Arc::<str>::from(host);
        let name = Arc::clone(&host);
        let resolve = tokio::task::spawn_blocking(move || {
            LookupResult::of((&*name, 0).to_socket_addrs().map(Iterator::collect))
        });
        let found =
            async { resolve.await.unwrap_or_else(|error| LookupResult::of(Err(error.into()))) };
        Self { host, found: found.boxed().shared() }
    }
}

impl LookupResult {
    fn of(addresses: io::Result<Arc<[SocketAddr]>>) -> Self {
        let addresses = addresses.map_err(|error| (error.kind(), error.to_string().into()));
        Self { addresses, at: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_once_by_all_and_again_after_a_second() {
        let addresses = Addresses::default();
        let all = futures_util::future::join_all((0..100).map(|_| addresses.of("localhost"))).await;
        let all = all.into_iter().collect::<io::Result<Vec<_>>>().expect("addresses");
        assert!(all[0].iter().all(|one| one.ip().is_loopback()) && !all[0].is_empty());
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
        tokio::time::pause();
        tokio::time::advance(LIFETIME).await;
        let next = addresses.of("localhost").await.expect("addresses");
        assert!(!Arc::ptr_eq(&next, &all[0]) && next == all[0]);
    }

    #[tokio::test]
    async fn an_address_needs_no_lookup_and_a_name_without_one_says_so() {
        let addresses = Addresses::default();
        assert_eq!(*addresses.of("::1").await.expect("itself"), ["[::1]:0".parse().unwrap()]);
        assert!(addresses.0.lock().unwrap().is_none());
        let failure = addresses.of(&"x".repeat(64)).await.unwrap_err();
        assert!(failure.to_string().contains("lookup"), "{failure}");
    }
}
