//! The behaviours that every lock must show, on the lock of a quorum of three.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use incumbent::lock::{
    Content, Lock, LockAdmin, LockError, LockErrorKind, Mark, Nonce, Reading, Revision, Write,
    WriteId,
};
use incumbent::peer::QuorumPeer;

use crate::conformance::Service;
use crate::env::Net;

/// Of a request that is sent again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Whether a write may be refused so, and be tried again.
fn is_passing(error: &LockError) -> bool {
    error.kind() == LockErrorKind::Conflict || crate::conformance::is_passing(error.kind())
}

struct Quorum {
    members: Vec<QuorumPeer>,
    next: AtomicUsize,
}

impl Quorum {
    async fn found(&self, name: &str) -> Option<(Revision, Content)> {
        let lock = self.members[0].lock();
        let found = crate::conformance::soon("a quorum answers", async {
            loop {
                match lock.read(name, ATTEMPT).await {
                    Ok(reading) => return reading,
                    Err(error) => assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}"),
                }
            }
        });
        match found.await {
            Reading::Found(record) => Some((record.revision, record.content)),
            Reading::Empty { .. } => None,
        }
    }
}

impl Service for Quorum {
    async fn start() -> Self {
        let net = Net::new();
        let member = |host| net.ours(host, host.into()).quorum(3).lease(Self::LEASE).start();
        let members = (1..=3).map(|host| member(host).expect("a start")).collect();
        let service = Self { members, next: AtomicUsize::new(0) };
        service.found("my_app").await; // they vote
        service
    }

    async fn lock(&self) -> Arc<dyn Lock> {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.members.len();
        Arc::new(self.members[next].lock())
    }

    async fn evict(&self, name: &str) {
        while let Some((revision, Content::Held(_))) = self.found(name).await {
            match self.members[1].lock().evict(name, revision, ATTEMPT).await {
                Ok(()) => return,
                Err(error) => assert!(is_passing(&error), "{error}"),
            }
        }
    }

    async fn overwrite(&self, name: &str, identity: &str) {
        loop {
            let expected = self.found(name).await.map(|(revision, _)| revision);
            let write = WriteId { nonce: Nonce(7), number: 1 };
            let mark = Mark::new(write, Self::LEASE, None);
            let write = Write {
                expected,
                identity: identity.into(),
                mark,
                ttl: Self::LEASE,
                advertisement: None,
                timeout: ATTEMPT,
            };
            match self.members[2].lock().write(name, write).await {
                Ok(_) => return,
                Err(error) => assert!(is_passing(&error), "{error}"),
            }
        }
    }

    async fn holder(&self, name: &str) -> Option<String> {
        let (revision, content) = self.found(name).await?;
        let Content::Held(entry) = content else { return None };
        // The entry of a holder whose lease has run out is not emptied. On one machine wall clocks
        // may be compared, and a revision is one; where it is old, an unchanged entry shows
        // it.
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        if unix <= Duration::from_micros(revision.0) + entry.ttl {
            return Some(entry.identity.to_string());
        }
        tokio::time::sleep(entry.ttl).await;
        let now = self.found(name).await?;
        (now.0 != revision).then(|| entry.identity.to_string())
    }
}

suite!(Quorum);
