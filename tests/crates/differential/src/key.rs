//! One election on the model and on the real lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use incumbent::lock::{
    Content, Coverage, Hint, HintSink, LockError, LockErrorKind, Reading, Revision, Subscription,
    Write,
};
use incumbent_sim::{Retention, Time};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::acting::{Act, Outcome};
use crate::draw::{KnownRevisions, Step, TIMEOUT};
use crate::model::{Difference, Model, NEVER};
use crate::store::{HintDelivery, Store};

/// How often something is looked at that is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// How long such a look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// One election.
pub struct Key {
    pub name: String,
    store: Arc<dyn Store>,
    model: Model,
    random: Rng,
    known: KnownRevisions,
    began: Instant,
    hints: UnboundedReceiver<(Time, Hint)>,
    _subscription: Subscription,
    /// What was seen, last.
    history: VecDeque<String>,
    /// What was done.
    pub operations: u64,
    /// How long after the end of its life an entry was still seen at most.
    pub latest: Duration,
    /// Whether replicas without a leader refused the last request.
    is_leaderless: bool,
    /// How often replicas had no leader: whatever they refused at one moment counts once.
    pub leaderless: u64,
}

impl Key {
    /// Waits until it receives the hints of the store.
    pub async fn new(store: Arc<dyn Store>, number: u64, seed: u64, began: Instant) -> Self {
        let (sender, hints) = unbounded_channel();
        let sink = HintSink::new(move |hint| drop(sender.send((began.elapsed(), hint))));
        let name = format!("e{number}");
        let subscription = store.listener().subscribe(&name, sink);
        let mut key = Self {
            model: Model::new(store.rules()),
            random: Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number)),
            known: KnownRevisions { last: None, earlier: Vec::new(), writes: 0 },
            began,
            hints,
            _subscription: subscription,
            history: VecDeque::new(),
            operations: 0,
            latest: Duration::ZERO,
            is_leaderless: false,
            leaderless: 0,
            name,
            store,
        };
        if key.store.rules().hint_delivery != HintDelivery::Nothing {
            key.await_coverage().await;
        }
        key
    }

    async fn await_coverage(&mut self) {
        loop {
            match tokio::time::timeout(NEVER, self.hints.recv()).await {
                Ok(Some((_, Hint::Coverage(Coverage::Full)))) => return,
                Ok(Some(_)) => {}
                _ => panic!("{}: no hints come", self.name),
            }
        }
    }

    /// Plays `steps` random operations.
    pub async fn play(&mut self, steps: u64) -> Result<(), Difference> {
        for _ in 0..steps {
            self.listen()?;
            let (rules, deeds) = (self.store.rules(), self.store.deeds());
            let step = self.known.draw(&mut self.random, rules, deeds);
            self.take(step).await?;
            self.await_leader().await?;
            self.listen()?;
        }
        self.settle().await
    }

    /// Waits until replicas that refused a request as they had no leader take writes again: else
    /// they would refuse the next ones of every election too. Asks by a write that is refused in
    /// any case, which the model need not see.
    async fn await_leader(&mut self) -> Result<(), Difference> {
        let since = Instant::now();
        while self.is_leaderless {
            tokio::time::sleep(LOOK).await;
            let asked = self.store.lock().check_release(&self.name, LOOK_TIMEOUT).await;
            self.is_leaderless = asked.is_err();
            if self.is_leaderless && since.elapsed() > NEVER {
                let seen = format!("no leader of the replicas for {NEVER:?}");
                let difference = Difference { seen, model: self.model.describe() };
                return Err(self.described(difference));
            }
        }
        Ok(())
    }

    async fn take(&mut self, step: Step) -> Result<(), Difference> {
        let store = Arc::clone(&self.store);
        let (lock, name) = (store.lock(), self.name.clone());
        match step {
            Step::Read => drop(self.read().await?),
            Step::Write(write) => {
                let sent = self.now();
                let written = lock.write(&name, write.clone()).await;
                self.stored(sent, Act::Write(write), written.map(Some))?;
            }
            Step::Release(release) => {
                let sent = self.now();
                let released = lock.release(&name, release.clone()).await;
                self.stored(sent, Act::Release(release), released.map(|()| None))?;
            }
            // Of a row at the end of its lease: the model does not know whether its time had come
            // before the eviction read it.
            Step::Evict(_) if self.store.rules().retention == Retention::Rows => {}
            Step::Evict(expected) => {
                let sent = self.now();
                let admin = lock.admin().expect("an operator's lock");
                let evicted = admin.evict(&name, expected, TIMEOUT).await;
                self.stored(sent, Act::Evict(expected), evicted.map(|()| None))?;
            }
            Step::Race(writes) => self.race(writes).await?,
            Step::Deed(deed, expected) => {
                let sent = self.now();
                let done = store.commit(&name, deed, expected).await;
                let failed = |kind| LockError::new(kind, "");
                self.stored(sent, Act::Deed(deed, expected), done.map_err(failed))?;
            }
            Step::Wait(duration) => tokio::time::sleep(duration).await,
            Step::Outlive => self.outlive().await?,
        }
        Ok(())
    }

    /// What one request came to.
    fn stored(
        &mut self,
        sent: Time,
        act: Act,
        outcome: Result<Option<Revision>, LockError>,
    ) -> Result<(), Difference> {
        let outcome = outcome.map_err(|error| error.kind());
        if let Ok(Some(revision)) = outcome {
            self.learn(Some(revision));
        }
        self.observe(sent, act, Outcome::Stored(outcome))
    }

    fn observe(&mut self, sent: Time, act: Act, outcome: Outcome) -> Result<(), Difference> {
        let answered = self.now();
        self.operations += 1;
        self.note(format!("{sent:?} to {answered:?}: {act:?}: {outcome:?}"));
        let before = self.model.leaderless;
        let seen = self.model.observe((sent, answered), &act, &outcome);
        let refused = self.model.leaderless > before;
        self.leaderless += u64::from(refused && !self.is_leaderless);
        self.is_leaderless = refused;
        seen.map_err(|difference| self.described(difference))
    }

    async fn read(&mut self) -> Result<Option<Revision>, Difference> {
        let store = Arc::clone(&self.store);
        let sent = self.now();
        let found = store.lock().read(&self.name, TIMEOUT).await;
        let last = match &found {
            Ok(Reading::Found(record)) => Some(record.revision),
            _ => None,
        };
        let held = match &found {
            Ok(Reading::Found(record)) => match record.content {
                Content::Held(_) => Some(record.revision),
                Content::Vacant(_) => None,
            },
            _ => None,
        };
        if found.is_ok() {
            self.learn(last);
        }
        let found = found.map_err(|error| error.kind());
        self.observe(sent, Act::Read, Outcome::Read(found))?;
        Ok(held)
    }

    /// Of several writes at once one is stored at most: as if it had come before the others.
    async fn race(&mut self, writes: Vec<Write>) -> Result<(), Difference> {
        let store = Arc::clone(&self.store);
        let sent = self.now();
        let requests = writes.iter().map(|write| store.lock().write(&self.name, write.clone()));
        let outcomes = join_all(requests).await;
        let mut raced: Vec<_> = writes.into_iter().zip(outcomes).collect();
        raced.sort_by_key(|(_, outcome)| outcome.is_err());
        let none_won = raced.iter().all(|(_, outcome)| outcome.is_err());
        for (write, outcome) in raced {
            let refused = outcome.as_ref().is_err_and(|e| e.kind() == LockErrorKind::Conflict);
            if refused && none_won && store.rules().replicated {
                continue;
            }
            self.stored(sent, Act::Write(write), outcome.map(Some))?;
        }
        Ok(())
    }

    /// Looks when the life of what is stored is over, and until it is gone where it goes.
    async fn outlive(&mut self) -> Result<(), Difference> {
        while let Some(over) = self.model.life_ends() {
            let now = self.now();
            if now < over {
                tokio::time::sleep(over - now).await;
            }
            self.listen()?;
            let before = self.known.last;
            let sent = self.now();
            let held = self.read().await?;
            let stays = !self.store.rules().retention.frees();
            if stays || held.is_none() || self.known.last != before {
                return Ok(());
            }
            self.latest = self.latest.max(sent.saturating_sub(over));
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Takes in the received hints.
    fn listen(&mut self) -> Result<(), Difference> {
        while let Ok((at, hint)) = self.hints.try_recv() {
            self.received(at, hint)?;
        }
        Ok(())
    }

    fn received(&mut self, at: Time, hint: Hint) -> Result<(), Difference> {
        match hint {
            Hint::Stored { record, previous, .. } => {
                self.note(format!("{at:?}: heard {record:?} over {previous:?}"));
                if self.known.last < Some(record.revision) {
                    self.learn(Some(record.revision));
                }
                let heard = self.model.receive(at, &record, previous);
                heard.map_err(|difference| self.described(difference))
            }
            Hint::Coverage(coverage) => {
                self.note(format!("{at:?}: hints are {coverage:?}"));
                if coverage == Coverage::Full {
                    self.model.receives_again();
                }
                Ok(())
            }
            Hint::Recheck => {
                self.note(format!("{at:?}: there is something to look at"));
                self.model.is_to_be_looked_at();
                Ok(())
            }
            Hint::SteppedDown(_) | Hint::RollCall(_) => Ok(()),
        }
    }

    /// Waits until all due hints were received.
    pub async fn settle(&mut self) -> Result<(), Difference> {
        self.listen()?;
        if self.store.rules().hint_delivery == HintDelivery::Nothing {
            return Ok(());
        }
        while !self.model.settle() {
            match tokio::time::timeout(NEVER, self.hints.recv()).await {
                Ok(Some((at, hint))) => self.received(at, hint)?,
                _ => {
                    let seen = format!("nothing heard for {NEVER:?}");
                    let difference = Difference { seen, model: self.model.describe() };
                    return Err(self.described(difference));
                }
            }
        }
        Ok(())
    }

    /// The store is gone. What is done meanwhile is refused.
    pub async fn without_store(&mut self) -> Result<(), Difference> {
        self.listen()?;
        self.model.take_away();
        self.known.last = None;
        self.play(1).await
    }

    /// The store was made again between the two instants.
    pub fn store_is_back(&mut self, made: (Time, Time)) {
        self.model.bring_back(made);
    }

    /// The server goes away in the middle of requests, or is back.
    pub fn loses_server(&mut self, is_away: bool) {
        self.model.loses_server(is_away);
    }

    /// The server is killed: some hints may be lost.
    pub fn loses_hearing(&mut self) {
        self.model.loses_hearing();
    }

    fn learn(&mut self, last: Option<Revision>) {
        if let Some(before) = self.known.last.filter(|before| Some(*before) != last) {
            self.known.earlier.push(before);
            if self.known.earlier.len() > 8 {
                self.known.earlier.remove(0);
            }
        }
        self.known.last = last;
    }

    fn now(&self) -> Time {
        self.began.elapsed()
    }

    fn note(&mut self, line: String) {
        if self.history.len() == 30 {
            self.history.pop_front();
        }
        self.history.push_back(line);
    }

    fn described(&self, difference: Difference) -> Difference {
        let lines: Vec<_> = self.history.iter().map(String::as_str).collect();
        let seen =
            format!("election {}\n{}\nseen: {}", self.name, lines.join("\n"), difference.seen);
        Difference { seen, ..difference }
    }
}
