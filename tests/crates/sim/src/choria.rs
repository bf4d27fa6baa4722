//! A candidate that behaves like go-choria's.
//!
//! It campaigns every 0.75 of the bucket's TTL, or more often with a back-off, creates or plainly
//! updates, reports that it won 200 ms after its next successful renewal, and gives up on any
//! error. A request may hang for five seconds.

use std::time::Duration;

use incumbent::lock::{Content, Revision};

use crate::peers::Link;
use crate::server::Time;

/// How long a request may hang (nats.go's default).
const HANG: Duration = Duration::from_secs(5);
/// How long after its first renewal a winner reports "won".
const SETTLE: Duration = Duration::from_millis(200);

/// How often it campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Every 0.75 of the TTL.
    Interval,
    /// Every 250 to 750 ms once it holds the entry, and every 250 ms to 7.5 s before (`FiveSec`
    /// with its jitter).
    BackOff,
}

#[derive(Debug)]
pub struct Choria {
    pace: Pace,
    revision: Option<Revision>,
    won: bool,
    /// When its last campaign began.
    ticked: Time,
    campaigns: u64,
    /// The campaigns under way.
    unanswered: Vec<u64>,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    /// Its next campaign begins.
    Tick,
    /// Its write arrives at the server.
    Arrive { campaign: u64, expected: Option<Revision> },
    /// The answer to its write arrives, or its timeout.
    Answer { campaign: u64, answer: Option<Revision> },
    /// It reports that it has won.
    Win,
}

impl Choria {
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            revision: None,
            won: false,
            ticked: Time::ZERO,
            campaigns: 0,
            unanswered: Vec::new(),
        }
    }

    /// A new process.
    pub fn crash(&mut self) {
        self.unanswered.clear();
        self.lose();
    }

    fn lose(&mut self) {
        self.revision = None;
        self.won = false;
    }

    /// Takes in an answer; `None` is any error. Returns whether it is about to report that it has
    /// won.
    fn answer(&mut self, answer: Option<Revision>) -> bool {
        let Some(revision) = answer else {
            self.lose();
            return false;
        };
        let renewed = self.revision.replace(revision).is_some();
        renewed && !self.won
    }

    /// Its ticker runs on while a request hangs, and its back-off begins with the answer.
    fn next_campaign(&self, link: &mut Link<'_>) {
        let (now, ttl) = (link.now(), link.server().bucket_ttl);
        let random = &mut link.world.time.random;
        let at = match self.pace {
            Pace::Interval => self.ticked + ttl * 3 / 4,
            Pace::BackOff if self.revision.is_some() => {
                now + Duration::from_millis(random.u64(250..750))
            }
            Pace::BackOff => now + Duration::from_millis(random.u64(250..7500)),
        };
        link.later(at.saturating_sub(now), Step::Tick);
    }

    pub fn react(&mut self, link: &mut Link<'_>, step: Step) {
        if !link.is_current {
            return;
        }
        match step {
            Step::Tick => {
                self.ticked = link.now();
                let last = link.server().last.as_ref();
                let vacant =
                    last.is_none_or(|last| matches!(last.record.content, Content::Vacant(_)));
                if self.revision.is_none() && !vacant {
                    // Refused, as a create is.
                    return self.next_campaign(link);
                }
                self.campaigns += 1;
                let campaign = self.campaigns;
                self.unanswered.push(campaign);
                let expected = self.revision.or(link.server().last_revision());
                link.sends(Step::Arrive { campaign, expected });
                link.later(HANG, Step::Answer { campaign, answer: None });
            }
            Step::Arrive { campaign, expected } => {
                let (now, which) = (link.now(), link.which);
                if !link.server().is_up(now) {
                    return;
                }
                let applied = link.server().last_revision() == expected;
                if applied {
                    link.log(|| format!("server: of choria {which} over {expected:?}"));
                    link.world.stores_plainly(0, "choria");
                }
                let answer = link.server().last_revision().filter(|_| applied);
                link.answers(0.08, Step::Answer { campaign, answer });
            }
            Step::Answer { campaign, answer } => {
                let known = self.unanswered.iter().position(|open| *open == campaign);
                let Some(known) = known.filter(|_| !(link.cut && answer.is_some())) else { return };
                self.unanswered.remove(known);
                if self.answer(answer) {
                    link.later(SETTLE, Step::Win);
                }
                if !self.won {
                    link.leads(false);
                }
                self.next_campaign(link);
            }
            Step::Win => {
                if self.revision.is_some() && !self.won {
                    self.won = true;
                    let which = link.which;
                    link.log(|| format!("choria {which} LEADS"));
                    link.leads(true);
                }
            }
        }
    }
}
