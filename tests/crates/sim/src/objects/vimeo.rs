//! A candidate that behaves like vimeo/leaderelection's.
//!
//! It goes by wall clocks. A candidate sleeps until the term in the object is over, its allowance
//! for skew and a jitter besides, and writes over what it has read; what is not there it makes at
//! once. A leader writes when half of its term is left, its allowance less. A write that is refused
//! has it lead until the end of its term; one that hangs does so until a term less the
//! allowance has passed since it was sent, and only then its work is stopped. It releases nothing.

use std::time::Duration;

use incumbent::vimeo_timing::VimeoTiming;

use super::store::{Body, Object, Said, Store, Version};
use crate::peers::Link;
use crate::server::Time;
/// How long a read may hang.
const READ: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub struct Vimeo {
    /// By how much its wall clock is ahead, in milliseconds.
    wall_ms: i16,
    /// What it has read or written last.
    last: Option<Object>,
    leads: bool,
    /// The request whose answer is awaited.
    request: u64,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    /// It reads the object.
    Look,
    /// A read arrives at the store.
    Read { request: u64 },
    /// What was read arrives.
    Seen { request: u64, object: Option<Object> },
    /// Writes over what it has seen last.
    Write,
    /// That arrives at the store.
    Put { request: u64, over: Option<Version>, body: Body },
    /// A write's answer arrives.
    Written { request: u64, body: Body, answer: Option<Version> },
    /// No answer has come in time.
    Late { request: u64 },
    /// It was refused, and its term is over.
    Over { request: u64 },
}

impl Vimeo {
    pub fn new(wall_ms: i16) -> Self {
        Self { wall_ms, ..Self::default() }
    }

    /// A new process, which knows nothing.
    pub fn crash(&mut self) {
        *self = Self::new(self.wall_ms);
    }

    fn wall(&self, now: Time) -> Duration {
        Store::wall(now, self.wall_ms)
    }

    /// How long its term continues, as far as it knows.
    fn left(&self, now: Time) -> Duration {
        let expiry = self.last.as_ref().map_or(Duration::ZERO, |last| last.body.expiry);
        expiry.saturating_sub(self.wall(now))
    }

    fn sends(&mut self, link: &mut Link<'_>, timeout: Duration, step: impl FnOnce(u64) -> Step) {
        self.request += 1;
        link.sends(step(self.request));
        link.later(timeout, Step::Late { request: self.request });
    }

    fn stops(&mut self, link: &mut Link<'_>) {
        self.leads = false;
        let which = link.which;
        link.log(|| format!("vimeo-{which} leads no more"));
        link.leads(false);
    }

    /// A candidate waits until another's term is over.
    fn waits(&self, link: &mut Link<'_>) {
        let VimeoTiming { longest, skew } = link.world.store().terms;
        let jitter = (longest / 10).mul_f64(link.world.time.random.f64());
        let sleeps = match self.last {
            Some(_) => self.left(link.now()) + skew + jitter,
            None => jitter,
        };
        // A term that is long over is no reason to send requests without a pause.
        link.later(sleeps.max(Duration::from_millis(20)), Step::Write);
    }

    pub fn react(&mut self, link: &mut Link<'_>, step: Step) {
        if !link.is_current && !matches!(step, Step::Put { .. }) {
            return;
        }
        let (now, which) = (link.now(), link.which);
        let store = link.world.store();
        let (VimeoTiming { longest: term, skew }, is_busy) = (store.terms, now < store.busy.0);
        let served = link.server().is_up(now) && !is_busy;
        match step {
            Step::Look => self.sends(link, READ, |request| Step::Read { request }),
            Step::Read { request } if served => {
                let object = link.world.store().object.clone();
                link.answers(0.05, Step::Seen { request, object });
            }
            Step::Seen { request, object } if request == self.request && !link.cut => {
                self.request += 1; // nothing is late any more
                self.last = object;
                self.waits(link);
            }
            Step::Write if self.leads && self.left(now).is_zero() => {
                self.stops(link);
                self.waits(link);
            }
            Step::Write => {
                let body = Body {
                    number: self.last.as_ref().map_or(0, |last| last.body.number + 1),
                    expiry: self.wall(now) + term,
                    said: Said::Named(format!("vimeo-{which}").into()),
                };
                let over = self.last.as_ref().map(|last| last.version);
                self.sends(link, term - skew, |request| Step::Put { request, over, body });
            }
            Step::Put { request, over, body } if served => {
                let answer = link.world.store().put(over, &body);
                let number = body.number;
                link.log(|| format!("store: vimeo-{which}'s {number} over {over:?}: {answer:?}"));
                link.answers(0.05, Step::Written { request, body, answer });
            }
            Step::Written { request, body, answer } if request == self.request && !link.cut => {
                self.request += 1;
                match answer {
                    Some(version) => {
                        self.last = Some(Object { version, body });
                        let (left, began) = (self.left(now), !self.leads);
                        if began {
                            self.leads = true;
                            link.log(|| format!("vimeo-{which} LEADS"));
                            link.leads(true);
                        }
                        // A winner writes once more at once.
                        let pause =
                            if began { Duration::ZERO } else { (left / 2).saturating_sub(skew) };
                        link.later(pause, Step::Write);
                    }
                    None if self.leads => {
                        let (left, request) = (self.left(now), self.request);
                        link.later(left, Step::Over { request });
                    }
                    None => link.later(Duration::ZERO, Step::Look),
                }
            }
            Step::Over { request } if request == self.request => {
                self.stops(link);
                self.waits(link);
            }
            Step::Late { request } if request == self.request => {
                self.request += 1;
                let left = self.left(now);
                if self.leads && left.is_zero() {
                    self.stops(link);
                    return self.waits(link);
                }
                let pause = (left / 2).saturating_sub(skew);
                match self.leads {
                    true => link.later(pause, Step::Write),
                    false => link.later(Duration::from_millis(20), Step::Look),
                }
            }
            _ => {}
        }
    }
}
