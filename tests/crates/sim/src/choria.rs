//! A candidate that behaves like go-choria's.
//!
//! It campaigns every 0.75 of the bucket's TTL, or more often with a back-off, creates or plainly
//! updates, reports that it won 200 ms after its next successful renewal, and gives up on any
//! error. A request may hang for five seconds.

use std::time::Duration;

use incumbent::lock::{Content, Revision};

use crate::event::SimEvent;
use crate::server::Time;
use crate::world::World;

/// How long a request may hang (nats.go's default).
pub const HANG: Duration = Duration::from_secs(5);
/// How long after its first renewal a winner reports "won".
pub const SETTLE: Duration = Duration::from_millis(200);

/// How often it campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Every 0.75 of the TTL.
    Interval,
    /// Every 250 to 750 ms once it holds the entry, and every 250 ms to 7.5 s before (`FiveSec`
    /// with its jitter).
    BackOff,
}

#[derive(Debug, Default)]
pub struct Choria {
    /// Which process this is.
    pub life: u32,
    pub revision: Option<Revision>,
    pub won: bool,
    pub cut_until: Time,
    /// When its last campaign began.
    pub ticked: Time,
    pub campaigns: u64,
    /// The campaigns under way.
    pub unanswered: Vec<u64>,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    Tick,
    /// Its write arrives at the server.
    Arrive {
        campaign: u64,
        expected: Option<Revision>,
    },
    Answer {
        campaign: u64,
        answer: Option<Revision>,
    },
    Win,
}

impl Choria {
    pub fn interval(
        &self,
        pace: Pace,
        bucket_ttl: Duration,
        random: &mut fastrand::Rng,
    ) -> Duration {
        match pace {
            Pace::Interval => bucket_ttl * 3 / 4,
            Pace::BackOff if self.revision.is_some() => Duration::from_millis(random.u64(250..750)),
            Pace::BackOff => Duration::from_millis(random.u64(250..7500)),
        }
    }

    /// Takes in an answer; `None` is any error. Returns whether it is about to report that it has
    /// won.
    pub fn answer(&mut self, answer: Option<Revision>) -> bool {
        let Some(revision) = answer else {
            self.lose();
            return false;
        };
        let renewed = self.revision.replace(revision).is_some();
        renewed && !self.won
    }

    pub fn lose(&mut self) {
        self.revision = None;
        self.won = false;
    }

    pub fn crash(&mut self) {
        self.life += 1;
        self.unanswered.clear();
        self.lose();
    }
}

impl World {
    /// Its ticker runs on while a request hangs, and its back-off begins with the answer.
    fn next_campaign(&mut self, which: usize) {
        let Some(pace) = self.scenario.chorias else { return };
        let (choria, ttl) = (&self.chorias[which], self.servers[0].bucket_ttl);
        let life = choria.life;
        let from = if pace == Pace::Interval { choria.ticked } else { self.time.now };
        let at = from + choria.interval(pace, ttl, &mut self.time.random);
        self.time.after(
            at.saturating_sub(self.time.now),
            SimEvent::Choria { which, life, step: Step::Tick },
        );
    }

    pub(super) fn step_choria(&mut self, which: usize, life: u32, step: Step) {
        if self.chorias[which].life != life {
            return;
        }
        let cut = self.time.now < self.chorias[which].cut_until;
        let again = |step| SimEvent::Choria { which, life, step };
        match step {
            Step::Tick => {
                self.chorias[which].ticked = self.time.now;
                let held = self.chorias[which].revision;
                let vacant = self.servers[0]
                    .last
                    .as_ref()
                    .is_none_or(|last| matches!(last.record.content, Content::Vacant(_)));
                if held.is_none() && !vacant {
                    // Refused, as a create is.
                    return self.next_campaign(which);
                }
                let choria = &mut self.chorias[which];
                choria.campaigns += 1;
                let campaign = choria.campaigns;
                choria.unanswered.push(campaign);
                let expected = held.or(self.servers[0].last_revision());
                if let Some(after) = self.time.passage(0.05).filter(|_| !cut) {
                    self.time.after(after, again(Step::Arrive { campaign, expected }));
                }
                self.time.after(HANG, again(Step::Answer { campaign, answer: None }));
            }
            Step::Arrive { campaign, expected } => {
                if !self.servers[0].is_up(self.time.now) {
                    return;
                }
                let applied = self.servers[0].last_revision() == expected;
                if applied {
                    self.time.log(|| format!("server: of choria {which} over {expected:?}"));
                    self.stores_plainly(0, "choria");
                }
                let answer = self.servers[0].last_revision().filter(|_| applied);
                if let Some(after) = self.time.passage(0.08) {
                    self.time.after(after, again(Step::Answer { campaign, answer }));
                }
            }
            Step::Answer { campaign, answer } => {
                let choria = &mut self.chorias[which];
                let known = choria.unanswered.iter().position(|open| *open == campaign);
                let Some(known) = known.filter(|_| !(cut && answer.is_some())) else { return };
                choria.unanswered.remove(known);
                if choria.answer(answer) {
                    self.time.after(SETTLE, again(Step::Win));
                }
                if !self.chorias[which].won {
                    self.checker.peer(which, false, self.time.now);
                }
                self.next_campaign(which);
            }
            Step::Win => {
                if self.chorias[which].revision.is_some() && !self.chorias[which].won {
                    self.chorias[which].won = true;
                    self.time.log(|| format!("choria {which} LEADS"));
                    self.checker.peer(which, true, self.time.now);
                }
            }
        }
    }
}
