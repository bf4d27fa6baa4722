//! A replica takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use incumbent::lock::{Content, Lock, LockErrorKind, Reading, Tombstone};
use incumbent::sql::{Postgres, PostgresLock, TableSetup};
use incumbent::{Cause, Election, new_election};
use incumbent_test_support::{FaultProxy, PostgresServer, eventually};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::conformance::{ExclusionChecker, first_write, sees, soon, working};
use crate::env::{TestEnv, connected, pool_options, run, runs_for_a_lease};

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);
/// Of a request that is sent again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A primary and its replica, each with an address of its own that leads to the primary.
pub struct Pair {
    pub env: TestEnv,
    pub replica: PostgresServer,
}

impl Pair {
    pub async fn start(lease: Duration) -> Self {
        let env = TestEnv::alone(lease).await;
        env.open().await;
        let replica = env.server.replica(&[]).await;
        Self { env, replica }
    }

    /// Has every write wait until the replica has it.
    pub async fn be_synchronous(&self) {
        let admin = self.env.server.url("postgres");
        run(&admin, "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        run(&admin, "ALTER SYSTEM SET synchronous_commit = remote_apply").await;
        run(&admin, "SELECT pg_reload_conf()").await;
        let sync = "SELECT sync_state FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually("the replica is synchronous", async || {
            (!run(&admin, sync).await.is_empty()).then_some(())
        })
        .await;
    }

    pub async fn replica_has_a_holder(&self) {
        let url = self.replica.url(&self.env.database);
        eventually("the replica has it", async || {
            let rows = run(&url, "SELECT FROM incumbent_elections WHERE holder IS NOT NULL").await;
            (!rows.is_empty()).then_some(())
        })
        .await;
    }

    pub fn replica_takes_over(&self, proxy: &FaultProxy) {
        self.replica.promote();
        proxy.redirect(self.replica.port());
    }

    /// The URL of the database by way of a port.
    fn url_through(&self, port: u16) -> String {
        self.env.url().replace(&format!(":{}/", self.env.server.port()), &format!(":{port}/"))
    }

    pub async fn lock_through(&self, proxy: &FaultProxy) -> PostgresLock {
        let url = self.url_through(proxy.port());
        connected(&url, TableSetup::existing()).await.lock()
    }

    pub fn campaign(&self, identity: &str, lock: PostgresLock) -> Election {
        let builder = new_election("my_app", lock).identity(identity).lease(self.env.lease);
        working(builder).start().expect("a start")
    }
}

/// A replica that lacks acknowledged writes takes over: the leader is superseded, all wait until
/// that leader's term has ended, and tokens continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lossy_failover_makes_no_second_leader_and_repeats_no_token() {
    let pair = Pair::start(LEASE).await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let mut candidates = Vec::new();
    for identity in ["a", "b", "c"] {
        let lock = pair.lock_through(&proxy).await;
        let builder = new_election("my_app", lock).identity(identity).lease(LEASE);
        let election = checker.watch(builder, identity, won.clone()).start().unwrap();
        candidates.push(election);
    }
    let of = |name: &str| candidates.iter().find(|c| c.identity() == name).unwrap();
    let first = soon("a leader", wins.recv()).await.unwrap();
    pair.replica_has_a_holder().await;
    pair.replica.pause(); // and misses what follows
    of(&first).resign();
    let second = soon("another leader", wins.recv()).await.unwrap();
    let token = eventually("its token", async || of(&second).token()).await;
    let mut changes = of(&second).changes();
    pair.env.server.kill();
    pair.replica.resume();
    pair.replica_takes_over(&proxy);
    let cause = crate::conformance::lost(&mut changes).await;
    // Another one may have written there first, and waits for the end of this term.
    let by_failover =
        matches!(cause, Cause::Evicted | Cause::Superseded { .. } | Cause::Expired { .. });
    assert!(by_failover, "{cause:?}");
    let third = soon("a leader on the new primary", wins.recv()).await.unwrap();
    let next = eventually("its token", async || of(&third).token()).await;
    assert!(next > token, "{next} after {token}");
    checker.verdict();
}

/// Who is named there may have been replaced by a write that was lost and that no reader has seen:
/// all wait as if the row had been deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_row_from_before_a_failover_is_ignored() {
    let pair = Pair::start(LEASE).await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.lock_through(&proxy).await;
    let look = async || lock.read("my_app", ATTEMPT).await.ok();
    let before = eventually("an answer", &look).await;
    assert!(matches!(before, Reading::Empty { .. }), "{before:?}");
    lock.write("my_app", first_write(LEASE, 7, None, None)).await.unwrap();
    pair.replica_has_a_holder().await;
    pair.env.server.kill();
    pair.replica_takes_over(&proxy);
    let observer = pair.lock_through(&proxy).await;
    let listed = async || observer.admin()?.list(ATTEMPT).await.ok();
    assert_eq!(eventually("what an observer sees", listed).await.len(), 1);
    pair.replica_has_a_holder().await; // an observer writes nothing
    let found = eventually("an answer of the new primary", look).await;
    let Reading::Found(record) = found else { panic!("{found:?}") };
    assert_eq!(record.content, Content::Vacant(Tombstone::Deleted));
}

/// Nor does a read that found nothing before the failover prove anything after it: a first term may
/// have begun meanwhile, and be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_missing_row_proves_nothing_on_a_server_that_has_taken_over() {
    let pair = Pair::start(LEASE).await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.lock_through(&proxy).await;
    let look = async || lock.read("my_app", ATTEMPT).await.ok();
    eventually("the tables are old enough", async || {
        matches!(look().await, Some(Reading::Empty { proof: true })).then_some(())
    })
    .await;
    runs_for_a_lease(&pair.replica.url(&pair.env.database)).await;
    pair.env.server.kill();
    pair.replica_takes_over(&proxy);
    let create = async || match lock.write("my_app", first_write(LEASE, 7, None, None)).await {
        Err(error) if error.kind() == LockErrorKind::Conflict => Some(Err(error)),
        Err(_) => None, // the connections of before are gone
        Ok(revision) => Some(Ok(revision)),
    };
    let refused = eventually("an answer of the new primary", &create).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(eventually("an answer", &look).await, Reading::Empty { proof: false });
    // That may have been the read of another election, which shares the lock: this one must read
    // itself.
    let refused = eventually("an answer", &create).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(eventually("an answer", &look).await, Reading::Empty { proof: false });
    eventually("an answer", &create).await.expect("a first write");
}

/// Where no acknowledged write can be lost, and the lock is configured so, the leader keeps
/// leading.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_term_outlives_the_failover_to_a_synchronous_replica() {
    // A replica takes seconds to take over on a busy machine.
    let pair = Pair::start(Duration::from_secs(25)).await;
    pair.be_synchronous().await;
    let proxy = FaultProxy::start(pair.env.server.port()).await;
    let lock = pair.lock_through(&proxy).await.synchronous_replicas();
    let leader = pair.campaign("leader", lock);
    let leadership = crate::conformance::leads(&leader).await;
    let lock = pair.lock_through(&proxy).await.synchronous_replicas();
    let standby = pair.campaign("standby", lock);
    sees(&standby, "leader").await;
    pair.env.server.kill();
    pair.replica_takes_over(&proxy);
    let before = leadership.deadline();
    soon("a renewal on the new primary", leadership.renewed(before)).await.unwrap();
    assert!(leadership.is_valid());
    drop(leadership);
    leader.stop().await;
    drop(crate::conformance::leads(&standby).await);
}

/// The old primary continues beside the new one. Without a replica that confirms, it confirms no
/// renewal either.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_old_primary_with_sync_replicas_keeps_no_leader() {
    let pair = Pair::start(LEASE).await;
    pair.be_synchronous().await;
    let (old, new) = (
        FaultProxy::start(pair.env.server.port()).await,
        FaultProxy::start(pair.env.server.port()).await,
    );
    let checker = Arc::new(ExclusionChecker::default());
    let (won, mut wins) = mpsc::unbounded_channel();
    let lock = pair.lock_through(&old).await.synchronous_replicas();
    let builder = new_election("my_app", lock).identity("old").lease(LEASE);
    let first = checker.watch(builder, "old", won.clone()).start().unwrap();
    assert_eq!(soon("the first leads", wins.recv()).await.unwrap(), "old");
    let lock = pair.lock_through(&new).await.synchronous_replicas();
    let builder = new_election("my_app", lock).identity("new").lease(LEASE);
    let second = checker.watch(builder, "new", won).start().unwrap();
    sees(&second, "old").await;
    pair.replica_takes_over(&new);
    assert_eq!(soon("the second leads", wins.recv()).await.unwrap(), "new");
    assert!(!first.is_leader());
    checker.verdict();
}

/// Where the promise ends: an old primary that others still reach, beside a new one, is a second
/// lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_old_primary_with_async_replicas_keeps_its_leader() {
    let pair = Pair::start(LEASE).await;
    let (old, new) = (
        FaultProxy::start(pair.env.server.port()).await,
        FaultProxy::start(pair.env.server.port()).await,
    );
    let first = pair.campaign("old", pair.lock_through(&old).await);
    drop(crate::conformance::leads(&first).await);
    let second = pair.campaign("new", pair.lock_through(&new).await);
    sees(&second, "old").await;
    pair.replica_takes_over(&new);
    drop(crate::conformance::leads(&second).await);
    // A leader that a busy machine held up leads again at once.
    let both = async || (first.is_leader() && second.is_leader()).then_some(());
    eventually("both lead", both).await;
}

/// Leads each new connection to the port that is the target by then, and keeps the open ones, as a
/// load balancer does. Returns its own port.
async fn balance(target: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("the address of a bound socket").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let target = target.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    port
}

/// A connection to a replica answers, and is of no use: the next read connects again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_poller_that_met_a_replica_finds_the_primary() {
    let pair = Pair::start(LEASE).await;
    let primary = pair.env.server.port();
    let target = Arc::new(AtomicU16::new(primary));
    let url = pair.url_through(balance(Arc::clone(&target)).await);
    let own = connected(&url, TableSetup::existing()).await;
    let pool = pool_options().connect(&url).await.unwrap();
    let pooled = eventually("the tables", async || {
        Postgres::open_with(pool.clone(), TableSetup::existing()).await.ok()
    })
    .await;
    for lock in [own.lock().polling(), pooled.lock().polling()] {
        target.store(pair.replica.port(), Ordering::SeqCst);
        pair.env.kill_backends().await;
        eventually("the replica is refused", async || {
            let error = lock.read("my_app", ATTEMPT).await.err()?;
            error.to_string().ends_with("elections are held on the primary").then_some(())
        })
        .await;
        target.store(primary, Ordering::SeqCst);
        eventually("the primary answers", async || lock.read("my_app", ATTEMPT).await.ok()).await;
    }
}
