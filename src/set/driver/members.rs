//! How a member knows the others: by roll calls, or by presence entries.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::{Driver, Outcome};
use crate::election::inbox::Input;
use crate::lock::{CandidateInfo, LockError, LockErrorKind};
use crate::protocol::set::{SetAction, TakeOutcome};
use crate::set::change::ShardChange;
use crate::set::presence::{MaybePresence, Presence, Present, Statement};
use crate::time::clock::Instant;

/// When what is being read is read again, unless it comes.
const UNREAD: Duration = Duration::from_secs(600);

impl Driver {
    pub(super) fn on_roll_answers(
        &mut self,
        now: Instant,
        answers: Result<Vec<CandidateInfo>, LockError>,
    ) {
        if let Err(error) = &answers
            && error.kind() == LockErrorKind::Misconfigured
        {
            debug!(%error, "members know each other by presence entries");
            self.begin_presence();
            if self.read_presence(now) {
                return;
            }
        }
        self.on_roll(now, answers);
    }

    /// The presence entries of the others have been read.
    pub(super) fn on_present(&mut self, now: Instant, present: Result<Vec<Present>, LockError>) {
        self.read_at = now + self.member.lease();
        for (shard, request) in present.iter().flatten().flat_map(Present::requests) {
            let election = self.elections.get(shard as usize);
            if let Some(election) = election.filter(|election| election.is_leader()) {
                election.shared().inbox.send(Input::Take(Box::new(request)));
            }
        }
        self.on_roll(now, present.map(|all| all.iter().map(Present::info).collect()));
    }

    fn on_roll(&mut self, now: Instant, answers: Result<Vec<CandidateInfo>, LockError>) {
        if let Err(error) = &answers {
            debug!(%error, "cannot call the roll of the set");
        }
        let before = self.member.others_shards();
        self.member.on_roll(now, answers.as_deref().ok());
        if let Some(others) = self.member.others_shards().filter(|o| Some(*o) != before) {
            self.shared.publish(ShardChange::OtherNumber { shards: others });
            warn!(
                own = self.elections.len(),
                others,
                "another member has another number of shards: acquiring none beside it; see resizing() and docs/sets.md"
            );
        }
    }

    /// States what has changed, and reads what others ask for. Returns when to do so again.
    pub(super) fn advance_presence(&mut self, now: Instant) -> Option<Instant> {
        let MaybePresence::Held(_) = self.presence else { return None };
        let statement = self.statement();
        let leads = statement.load.load > 0;
        if let MaybePresence::Held(presence) = &mut self.presence {
            presence.state(statement);
        }
        if leads && now >= self.read_at {
            self.read_presence(now);
        }
        leads.then_some(self.read_at)
    }

    pub(super) fn perform_by_presence(&mut self, action: SetAction) {
        let now = self.clock.now();
        match action {
            SetAction::Rank { shard, rank } => self.set_rank(shard, rank),
            SetAction::CallRoll => {
                self.read_presence(now);
            }
            // The presence entry asks for it, as soon as it is renewed.
            SetAction::Take { shard, .. } => {
                self.telemetry.took(TakeOutcome::Accepted);
                self.member.on_outcome(now, shard, TakeOutcome::Accepted);
            }
            SetAction::GiveAway { shard, to } => {
                info!(shard, %to, "resigning from a shard");
                if let Some(election) = self.elections.get(shard as usize) {
                    self.telemetry.gave(TakeOutcome::Accepted);
                    election.resign();
                }
            }
        }
    }

    fn begin_presence(&mut self) {
        let statement = self.statement();
        let before = std::mem::replace(&mut self.presence, MaybePresence::Impossible);
        self.presence = match before {
            MaybePresence::NotNeeded(election) => {
                let set = Arc::clone(&self.shared.name);
                let (lock, clock) = (Arc::clone(&self.lock), Arc::clone(&self.clock));
                match Presence::begin(*election, statement, (set, lock, clock)) {
                    Ok(presence) => MaybePresence::Held(presence),
                    Err(error) => {
                        warn!("no shard moves to a member that leads none: {error}");
                        MaybePresence::Impossible
                    }
                }
            }
            other => other,
        };
    }

    /// Reads the presence entries, if members know each other by them.
    fn read_presence(&mut self, now: Instant) -> bool {
        let MaybePresence::Held(presence) = &self.presence else { return false };
        self.read_at = now + UNREAD;
        let view = presence.view();
        self.calls.push(Box::pin(async move { Outcome::Present(view.read().await) }));
        true
    }

    fn statement(&self) -> Statement {
        let wanted = |shard: u32| Some((shard, self.elections.get(shard as usize)?.shared().nonce));
        Statement {
            load: self.share.load(),
            standing: *self.shared.standing.borrow(),
            takes: self.member.taking().filter_map(wanted).collect(),
        }
    }
}
