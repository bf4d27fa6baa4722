//! What every lock must show, written once: [`suite!`] makes a test of each behaviour for one kind
//! of lock.

mod callbacks;
mod causes;
mod checkpoint;
mod discovery;
mod exclusion;
mod guard;
mod handover;
pub mod listening;
mod roll_call;
mod sets;
mod settings;
mod switchable;
mod takeover;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use incumbent::clock::{BootClock, Clock};
#[cfg(feature = "history")]
use incumbent::history::Replay;
use incumbent::lock::{Lock, LockErrorKind, Mark, Nonce, Revision, Token, Write, WriteId};
use incumbent::{
    Cause, Change, Changes, Election, ElectionBuilder, Leader, Leadership, new_election,
};

pub use callbacks::*;
pub use causes::*;
pub use checkpoint::*;
pub use discovery::*;
pub use exclusion::ExclusionChecker;
pub use guard::*;
pub use handover::*;
pub use roll_call::*;
pub use sets::*;
pub use settings::*;
pub use switchable::{Diary, Failing, SwitchableLock};
pub use takeover::*;

/// The lease of the suite's elections: the least there is.
pub const LEASE: Duration = Duration::from_secs(1);

/// How long to wait for something that must happen, also for the answer to a request. No test
/// measures this time. A busy machine may stand still for half a minute.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The first write of the candidate `nonce`.
pub fn first_write(
    lease: Duration,
    nonce: u64,
    expected: Option<Revision>,
    token: Option<Token>,
) -> Write {
    let write = WriteId { nonce: Nonce(nonce), number: 1 };
    Write {
        expected,
        identity: format!("c{nonce}").into(),
        mark: Mark::new(write, lease, token),
        ttl: lease,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

/// One lock service, with what an operator does to it.
pub trait Service: Send + Sync + Sized + 'static {
    /// The lease of its elections: such that leaders do not come and go on a busy machine, where
    /// many suites run at once. Longer where writes are slow.
    const LEASE: Duration = Duration::from_secs(2);

    /// Whether a leader learns of a deletion as such, though another candidate may have written
    /// since.
    const HEARS_DELETIONS: bool = true;

    /// A fresh service without elections.
    fn start() -> impl Future<Output = Self>;

    /// The lock as another process would open it.
    fn lock(&self) -> impl Future<Output = Arc<dyn Lock>> + Send;

    /// The lock as the process of an operator, who may do more than a candidate, would open it.
    fn operators_lock(&self) -> impl Future<Output = Arc<dyn Lock>> + Send {
        self.lock()
    }

    /// A lock that holds more elections than that of the suite.
    fn lock_of_many(&self) -> impl Future<Output = Arc<dyn Lock>> + Send {
        self.lock()
    }

    /// Deletes the entry of an election.
    fn evict(&self, name: &str) -> impl Future<Output = ()> + Send;

    /// Writes over the entry of an election.
    fn overwrite(&self, name: &str, identity: &str) -> impl Future<Output = ()> + Send;

    /// The identity in the entry of an election.
    fn holder(&self, name: &str) -> impl Future<Output = Option<String>> + Send;

    /// Describes a candidate of the suite's election, whose work continues until it must stop.
    fn candidate(&self, identity: &str) -> impl Future<Output = ElectionBuilder> + Send {
        async move {
            let builder = new_election("my_app", self.lock().await).identity(identity);
            working(builder.lease(Self::LEASE))
        }
    }
}

/// Whether a request may fail so on a busy machine, and be sent again.
pub fn is_passing(kind: LockErrorKind) -> bool {
    matches!(kind, LockErrorKind::Unavailable | LockErrorKind::OutcomeUnknown)
}

/// Fails the test if `what` has not come to pass in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {TIMEOUT:?}"),
    }
}

/// Calls `look` until it returns a value. Fails the test if it does not in time.
pub async fn appears<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    soon(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Fails the test if `holds` has not become true in time.
pub async fn becomes_true(what: &str, holds: impl AsyncFn() -> bool) {
    appears(what, async || holds().await.then_some(())).await;
}

/// A candidate whose work continues until it must stop.
pub fn working(builder: ElectionBuilder) -> ElectionBuilder {
    replayed(builder).on_won(|leadership| async move {
        leadership.ended().await;
    })
}

/// A candidate whose history is replayed while it is recorded. Its campaign ends with a panic where
/// the replay differs. Without the feature `history`: the candidate as it is.
#[cfg(not(feature = "history"))]
fn replayed(builder: ElectionBuilder) -> ElectionBuilder {
    builder
}

#[cfg(feature = "history")]
fn replayed(builder: ElectionBuilder) -> ElectionBuilder {
    let mut replay = None;
    builder.record_history(move |line| match &mut replay {
        None => replay = Some(Replay::new(line).expect("the header of a history")),
        Some(replay) => drop(replay.step(line).expect("the same once more")),
    })
}

/// Waits until it leads.
pub async fn leads(election: &Election) -> Leadership {
    soon(&format!("{} leads", election.identity()), election.won()).await.expect("a campaign")
}

/// Waits until one of them leads. Returns which of them.
pub async fn any_leads(elections: &[&Election]) -> (usize, Leadership) {
    let wins = elections.iter().map(|election| Box::pin(election.won()));
    let (won, index, _) = soon("one of them leads", select_all(wins)).await;
    (index, won.expect("a campaign"))
}

/// The places of those that lead: who is in a term before all are asked, and still is afterwards,
/// leads all the time.
pub fn leading(elections: &[Election]) -> Vec<usize> {
    let terms = || elections.iter().map(Election::token).collect::<Vec<_>>();
    let (before, after) = (terms(), terms());
    (0..elections.len()).filter(|i| before[*i].is_some() && before[*i] == after[*i]).collect()
}

/// Waits until `first` leads and all the others know of this very term, which still lasts. On a
/// busy machine a lease may run out meanwhile: who then leads in the place of `first` resigns.
///
/// All of them have work, which keeps a term though the returned share of it is dropped.
pub async fn leads_before(first: &Election, others: &[&Election]) -> Leadership {
    let all: Vec<&Election> = [first].into_iter().chain(others.iter().copied()).collect();
    soon(&format!("{} leads, and the others know it", first.identity()), async {
        loop {
            let (index, leadership) = any_leads(&all).await;
            if index > 0 {
                leadership.resign();
                leadership.ended().await;
                continue;
            }
            let token = leadership.token();
            let of_term = |leader: &Leader| {
                &*leader.identity == first.identity() && leader.token == Some(token)
            };
            let all_know = async {
                for other in others {
                    sees_where(other, of_term).await;
                }
            };
            let lasts = tokio::select! {
                () = all_know => leadership.is_valid(),
                _ = leadership.ended() => false,
            };
            if lasts {
                return leadership;
            }
        }
    })
    .await
}

/// Has `first` resign, as often as it leads, until `second` does.
pub async fn resigns_to(first: &Election, second: &Election) -> Leadership {
    soon(&format!("{} leads", second.identity()), async {
        loop {
            let (index, leadership) = any_leads(&[second, first]).await;
            if index == 0 {
                return leadership;
            }
            leadership.resign();
            leadership.ended().await;
        }
    })
    .await
}

/// Waits until a term is renewed. False: it expired before, as it may on a busy machine.
pub async fn is_renewed(leadership: &Leadership) -> bool {
    match soon("a renewal", leadership.renewed(leadership.deadline())).await {
        Ok(_) => true,
        Err(loss) => {
            assert!(matches!(loss.cause, Cause::Expired { .. }), "{loss}");
            false
        }
    }
}

/// Ends the term and the campaign of a leader. Whether its entry is released: what the lock does
/// not answer in time is left to expire, as it may be on a busy machine.
pub async fn frees<S: Service>(service: &S, election: &Election, leadership: Leadership) -> bool {
    let deadline = leadership.deadline();
    drop(leadership);
    let began = BootClock.now();
    election.stop().await;
    let ended = BootClock.now();
    let holder = service.holder(election.name()).await;
    // A request of its candidate may take no longer than this.
    let is_prompt = ended < deadline && ended.saturating_since(began) < S::LEASE / 8;
    assert!(holder.is_none() || !is_prompt, "{holder:?} holds the entry after it has stopped");
    holder.is_none() && BootClock.now() < deadline
}

/// Calls `act` in a term of `election` that lasts longer than the call: again where the lease has
/// run out meanwhile, as it may on a busy machine.
pub async fn in_one_term<T>(election: &Election, act: impl AsyncFn(&Leadership) -> T) -> T {
    soon("a term that lasts", async {
        loop {
            let leadership = leads(election).await;
            let done = act(&leadership).await;
            if leadership.is_valid() {
                return done;
            }
            let cause = leadership.ended().await.cause;
            assert!(matches!(cause, Cause::Expired { .. }), "{cause:?}");
        }
    })
    .await
}

/// Calls `attempt`, which returns why a term ended: again where its lease has run out before
/// anything else ended it, as it may on a busy machine.
pub async fn unless_expired(attempt: impl AsyncFn() -> Cause) -> Cause {
    soon("a term that does not expire", async {
        loop {
            let cause = attempt().await;
            if !matches!(cause, Cause::Expired { .. }) {
                return cause;
            }
        }
    })
    .await
}

/// The first change that `wanted` takes.
pub async fn change<C, T>(
    changes: &mut Changes<C>,
    what: &str,
    mut wanted: impl FnMut(&C) -> Option<T>,
) -> T {
    soon(what, async {
        loop {
            let change = changes.next().await.unwrap_or_else(|| panic!("{what}: it has ended"));
            if let Some(found) = wanted(&change) {
                return found;
            }
        }
    })
    .await
}

/// Why the next term ends.
pub async fn lost(changes: &mut Changes<incumbent::Change>) -> Cause {
    change(changes, "the loss is told", |change| match change {
        Change::Lost { cause, .. } => Some(cause.clone()),
        _ => None,
    })
    .await
}

/// Why the next term ends that does not expire, as one may on a busy machine.
pub async fn lost_unexpired(changes: &mut Changes<incumbent::Change>) -> Cause {
    change(changes, "the loss is told", |change| match change {
        Change::Lost { cause: Cause::Expired { .. }, .. } => None,
        Change::Lost { cause, .. } => Some(cause.clone()),
        _ => None,
    })
    .await
}

/// Waits until a term begins.
pub async fn won(changes: &mut Changes<incumbent::Change>) {
    change(changes, "the win is told", |c| matches!(c, Change::Won { .. }).then_some(())).await;
}

/// Waits until `election` knows that `identity` leads. Where another one may lead instead, as once
/// a lease has run out, this never comes: see [`leads_before`].
pub async fn sees(election: &Election, identity: &str) {
    sees_where(election, |leader| &*leader.identity == identity).await;
}

/// Waits until `election` knows of a leader that is so.
async fn sees_where(election: &Election, wanted: impl Fn(&Leader) -> bool) {
    let mut changes = election.changes();
    if election.leader().is_some_and(|leader| wanted(&leader)) {
        return;
    }
    change(&mut changes, "the leader is seen", |change| match change {
        Change::Leader(Some(leader)) if wanted(leader) => Some(()),
        _ => None,
    })
    .await;
}

/// A candidate in a runtime of its own, which can die without a last word.
pub struct Process {
    runtime: Option<tokio::runtime::Runtime>,
    pub election: Election,
}

impl Process {
    pub async fn start<S: Service>(service: &Arc<S>, identity: &str) -> Self {
        Self::start_with(service, identity, |builder| builder).await
    }

    pub async fn start_with<S: Service>(
        service: &Arc<S>,
        identity: &str,
        set: fn(ElectionBuilder) -> ElectionBuilder,
    ) -> Self {
        let (service, identity) = (Arc::clone(service), identity.to_owned());
        Self::run(async move { set(service.candidate(&identity).await) }).await
    }

    /// Starts the candidate that this describes.
    pub async fn run(candidate: impl Future<Output = ElectionBuilder> + Send + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let start = async move { candidate.await.start().expect("a start") };
        let election = runtime.spawn(start).await.expect("a candidate");
        Self { runtime: Some(runtime), election }
    }

    /// Blocks its only thread until what is returned is dropped.
    pub fn block(&self) -> std::sync::mpsc::Sender<()> {
        let (goes_on, until) = std::sync::mpsc::channel();
        let runtime = self.runtime.as_ref().expect("it has not crashed");
        runtime.spawn(async move {
            let _ = until.recv(); // an error, once the other end is dropped
        });
        goes_on
    }

    /// Aborts all of its tasks.
    pub fn crash(mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Until they are gone: its campaign must not see that the election is dropped, and
            // stop.
            let gone = std::thread::spawn(move || runtime.shutdown_timeout(TIMEOUT));
            gone.join().expect("an end");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A test of each behaviour, for the lock service `$service`.
#[macro_export]
macro_rules! suite {
    ($service:ty) => {
        $crate::suite!($service:
            one_leader_of_ten,
            a_crashed_leader_is_replaced,
            a_crashed_leader_with_a_short_lease_is_replaced,
            a_leader_whose_runtime_is_blocked_is_replaced,
            a_stopped_leader_is_replaced,
            a_leader_that_resigned_is_replaced_and_campaigns_again,
            an_evicted_leader_is_replaced_and_campaigns_again,
            an_operator_lists_elections_and_evicts_the_listed_leader,
            dropping_the_last_handle_releases_the_leadership,
            tokens_grow_from_term_to_term,
            two_candidates_with_the_same_identity_are_distinct,
            an_observer_sees_the_leader_and_never_campaigns,
            every_candidate_and_observer_sees_the_advertisement,
            every_candidate_answers_a_roll_call,
            the_candidate_that_was_handed_over_to_leads_next,
            a_handover_to_nobody_is_refused,
            an_operator_moves_the_leader,
            the_cause_and_the_successor_of_a_release_are_read_back,
            a_check_of_its_release_leaves_the_leader_alone,
            members_of_a_set_lead_its_shards_evenly,
            a_subscription_from_the_start_misses_no_change,
            a_candidate_campaigns_again_after_stop_and_start,
            wins_and_losses_alternate_and_each_loss_has_its_cause,
            a_leader_whose_entry_is_overwritten_is_superseded,
            work_that_ends_ends_the_term,
            work_that_panics_ends_the_term,
            a_guard_sees_the_end_of_its_term_and_its_work_is_dropped,
            work_elsewhere_ends_in_time_when_its_campaign_is_gone,
            work_elsewhere_ends_in_time_when_its_campaign_is_blocked,
            callbacks_may_call_every_method_of_the_election,
            panics_in_callbacks_end_the_term_but_not_the_campaign,
            a_callback_that_never_returns_is_dropped_and_stop_returns,
            a_call_of_on_campaign_ends_with_the_campaign,
            work_that_blocks_its_thread_does_not_keep_the_leadership,
            the_loss_is_reported_between_the_work_and_the_release,
            stop_continues_when_its_caller_is_cancelled,
            invalid_settings_are_refused_under_the_names_the_user_knows,
        );
    };
    ($service:ty, checkpoint) => {
        $crate::suite!($service:
            a_checkpoint_outlives_crashes_and_releases,
            a_checkpoint_is_written_by_its_last_reader_only,
            a_former_leader_saves_nothing,
            a_checkpoint_is_no_election,
            an_election_without_a_checkpoint_stores_none,
        );
    };
    ($service:ty: $($behaviour:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
            async fn $behaviour() {
                $crate::$behaviour::<$service>().await;
            }
        )*
    };
}
