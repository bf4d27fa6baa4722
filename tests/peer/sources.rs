//! Where addresses come from.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use incumbent::peer::{Change, DnsSource, Peer, PeerSource, PeerStartError, SourceError};

use crate::conformance::change;
use crate::env::{Net, follows, quick, sees};

/// A source whose answer a test changes; `None`: it fails.
#[derive(Debug, Clone)]
struct Book(Arc<Mutex<Option<Vec<SocketAddr>>>>);

impl PeerSource for Book {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>> {
        let written = self.0.lock().expect("no panic").clone();
        let answer = written.ok_or_else(|| SourceError::new("the book is closed", "it rains"));
        std::future::ready(answer).boxed()
    }

    fn refresh(&self) -> Option<Duration> {
        Some(Duration::from_millis(50))
    }
}

#[tokio::test]
async fn a_source_is_retried_and_its_failures_are_reported() {
    let net = Net::new();
    let book = Book(Arc::new(Mutex::new(None)));
    let first = quick(net.address(1), 2.0).peers(book.clone()).start().unwrap();
    let mut changes = first.changes();
    let told = change(&mut changes, "the failure is reported", |change| match change {
        Change::DiscoveryFailed(what) => Some(what.to_string()),
        _ => None,
    });
    assert_eq!(told.await, "the book is closed: it rains");
    let second = quick(net.address(2), 1.0).start().unwrap();
    *book.0.lock().unwrap() = Some(vec![net.address(1), net.address(2)]);
    sees(&first, 2).await;
    follows(&second, first.id()).await;
}

/// A source whose first query panics.
#[derive(Debug)]
struct PanicsFirst(AtomicBool, SocketAddr);

impl PeerSource for PanicsFirst {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>> {
        assert!(self.0.swap(true, Ordering::Relaxed), "the first query panics");
        std::future::ready(Ok(vec![self.1])).boxed()
    }

    fn refresh(&self) -> Option<Duration> {
        Some(Duration::from_millis(50))
    }
}

#[tokio::test]
async fn a_source_that_panics_is_queried_again() {
    let net = Net::new();
    let source = PanicsFirst(AtomicBool::new(false), net.address(2));
    let first = quick(net.address(1), 2.0).peers(source).start().unwrap();
    let mut changes = first.changes();
    let failed = |change: &Change| matches!(change, Change::DiscoveryFailed(_)).then_some(());
    change(&mut changes, "the panic is reported", failed).await;
    let second = quick(net.address(2), 1.0).start().unwrap();
    follows(&second, first.id()).await;
}

#[tokio::test]
async fn a_member_of_any_address_answers_those_that_send_first() {
    let at = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let first = quick(([0, 0, 0, 0], at.port()).into(), 2.0).start().unwrap();
    let second = quick(Net::new().address(2), 1.0).peer(at).start().unwrap();
    follows(&second, first.id()).await;
}

#[tokio::test]
async fn peers_are_found_by_a_name_and_learn_their_own_address() {
    // One address for a name on this machine, so the members differ by their ports.
    let probe = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (a, b) = (probe(), probe());
    let (a, b, _) = (a.local_addr().unwrap(), b.local_addr().unwrap(), drop((a, b)));
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let soon = Duration::from_millis(50);
    let dns = |to: SocketAddr| DnsSource::new("localhost", to.port()).refresh(soon);
    let first = quick(any(a.port()), 2.0).peers(dns(b)).start().unwrap();
    let second = quick(any(b.port()), 1.0).peers(dns(a)).start().unwrap();
    follows(&second, first.id()).await;
    let me = |peer: &Peer| peer.members().into_iter().find(|m| m.is_me).unwrap().address;
    sees(&first, 2).await;
    assert_eq!((me(&first), me(&second)), (Some(a), Some(b)));
    assert_eq!(second.leader().unwrap().address, Some(a));
}

#[tokio::test]
async fn invalid_sources_are_refused_with_the_reason() {
    let net = Net::new();
    let refused = |builder: incumbent::peer::PeerBuilder| builder.start().unwrap_err().to_string();
    let member = || quick(net.address(1), 1.0);
    assert_eq!(
        refused(member().weight(0.0)),
        "a weight must be finite and greater than zero: 0 is not"
    );
    assert_eq!(
        refused(member().timeout(Duration::from_millis(150))),
        "a timeout of 150ms is not between two intervals, 200ms, and 600s"
    );
    let never = refused(member().interval(Duration::MAX));
    assert!(never.starts_with("a timeout of 15s is not between two intervals"), "{never}");
    assert_eq!(
        refused(member().channel("vote")),
        "this cannot be a channel: it is one of the protocol's own"
    );
    assert_eq!(
        refused(member().advertise(([0, 0, 0, 0], 1))),
        "0.0.0.0:1 cannot be advertised: no peer can send to it"
    );
    let _first = member().start().unwrap();
    let taken = member().start().unwrap_err();
    assert!(matches!(taken, PeerStartError::Bind { .. }));
    assert!(std::error::Error::source(&taken).unwrap().to_string().contains("in use"));
}
