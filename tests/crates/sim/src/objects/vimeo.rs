//! A candidate that behaves like vimeo/leaderelection's.
//!
//! It goes by wall clocks. A candidate sleeps until the term in the object is over, its allowance
//! for skew and a jitter besides, and writes over what it has read; what is not there it makes at
//! once. A leader writes when half of its term is left, its allowance less. A write that is refused
//! has it lead until the end of its term; one that hangs does so until a term less the
//! allowance has passed since it was sent, and only then its work is stopped. It releases nothing.

use std::time::Duration;

use super::store::{Body, Object, Said, Store, Version};
use crate::event::SimEvent;
use crate::server::Time;
use crate::world::World;

#[derive(Debug, Default)]
pub struct Vimeo {
    /// Which process this is.
    pub life: u32,
    /// By how much its wall clock is ahead, in milliseconds.
    pub wall_ms: i16,
    pub cut_until: Time,
    /// What it has read or written last.
    last: Option<Object>,
    pub leads: bool,
    /// The request whose answer is awaited.
    request: u64,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    Look,
    /// A read arrives at the store.
    Read {
        request: u64,
    },
    Seen {
        request: u64,
        object: Option<Object>,
    },
    /// Writes over what it has seen last.
    Write,
    /// That arrives at the store.
    Put {
        request: u64,
        over: Option<Version>,
        body: Body,
    },
    Written {
        request: u64,
        body: Body,
        answer: Option<Version>,
    },
    /// No answer has come in time.
    Late {
        request: u64,
    },
    /// It was refused, and its term is over.
    Over {
        request: u64,
    },
}

impl Vimeo {
    pub fn new(wall_ms: i16) -> Self {
        Self { wall_ms, ..Self::default() }
    }

    /// A new process, which knows nothing.
    pub fn crash(&mut self) {
        *self = Self { life: self.life + 1, wall_ms: self.wall_ms, ..Self::default() };
    }

    fn wall(&self, now: Time) -> Duration {
        Store::wall(now, self.wall_ms)
    }

    /// How long its term goes on, as far as it knows.
    fn left(&self, now: Time) -> Duration {
        let expiry = self.last.as_ref().map_or(Duration::ZERO, |last| last.body.expiry);
        expiry.saturating_sub(self.wall(now))
    }
}

/// How long a read may hang.
const READ: Duration = Duration::from_secs(2);

impl World {
    fn go_terms(&self) -> (Duration, Duration) {
        let terms = self.store.as_ref().map(|store| store.terms);
        terms.map_or((Duration::ZERO, Duration::ZERO), |terms| (terms.longest, terms.skew))
    }

    fn vimeo_later(&mut self, which: usize, after: Duration, step: Step) {
        let life = self.vimeos[which].life;
        self.time.after(after, SimEvent::Vimeo { which, life, step });
    }

    fn vimeo_sends(&mut self, which: usize, timeout: Duration, step: impl FnOnce(u64) -> Step) {
        self.vimeos[which].request += 1;
        let request = self.vimeos[which].request;
        let cut = self.time.now < self.vimeos[which].cut_until;
        if let Some(after) = self.time.passage(0.05).filter(|_| !cut) {
            self.vimeo_later(which, after, step(request));
        }
        self.vimeo_later(which, timeout, Step::Late { request });
    }

    fn vimeo_stops(&mut self, which: usize) {
        self.vimeos[which].leads = false;
        self.time.log(|| format!("vimeo-{which} leads no more"));
        self.checker.peer(which, false, self.time.now);
    }

    /// A candidate waits until another's term is over.
    fn vimeo_waits(&mut self, which: usize) {
        let (term, skew) = self.go_terms();
        let left = self.vimeos[which].left(self.time.now);
        let jitter = (term / 10).mul_f64(self.time.random.f64());
        let sleeps = match self.vimeos[which].last {
            Some(_) => left + skew + jitter,
            None => jitter,
        };
        // A term that is long over is no reason to send requests without a pause.
        self.vimeo_later(which, sleeps.max(Duration::from_millis(20)), Step::Write);
    }

    pub(crate) fn step_vimeo(&mut self, which: usize, life: u32, step: Step) {
        let now = self.time.now;
        let arrives = matches!(step, Step::Put { .. });
        if self.vimeos[which].life != life && !arrives {
            return;
        }
        let (term, skew) = self.go_terms();
        let Some(store) = &mut self.store else { return };
        let served = self.servers[0].is_up(now) && now >= store.busy.0;
        let go = &mut self.vimeos[which];
        let cut = now < go.cut_until;
        match step {
            Step::Look => self.vimeo_sends(which, READ, |request| Step::Read { request }),
            Step::Read { request } if served => {
                let object = store.object.clone();
                if let Some(after) = self.time.passage(0.05) {
                    self.vimeo_later(which, after, Step::Seen { request, object });
                }
            }
            Step::Seen { request, object } if request == go.request && !cut => {
                go.request += 1; // nothing is late any more
                go.last = object;
                self.vimeo_waits(which);
            }
            Step::Write if go.leads && go.left(now).is_zero() => {
                self.vimeo_stops(which);
                self.vimeo_waits(which);
            }
            Step::Write => {
                let body = Body {
                    number: go.last.as_ref().map_or(0, |last| last.body.number + 1),
                    expiry: go.wall(now) + term,
                    said: Said::Named(format!("vimeo-{which}").into()),
                };
                let over = go.last.as_ref().map(|last| last.version);
                self.vimeo_sends(which, term - skew, |request| Step::Put { request, over, body });
            }
            Step::Put { request, over, body } if served => {
                let answer = store.put(over, &body);
                let number = body.number;
                self.time
                    .log(|| format!("store: vimeo-{which}'s {number} over {over:?}: {answer:?}"));
                if let Some(after) = self.time.passage(0.05)
                    && self.vimeos[which].life == life
                {
                    self.vimeo_later(which, after, Step::Written { request, body, answer });
                }
            }
            Step::Written { request, body, answer } if request == go.request && !cut => {
                go.request += 1;
                match answer {
                    Some(version) => {
                        go.last = Some(Object { version, body });
                        let (left, began) = (go.left(now), !go.leads);
                        if began {
                            go.leads = true;
                            self.time.log(|| format!("vimeo-{which} LEADS"));
                            self.checker.peer(which, true, now);
                        }
                        // A winner writes once more at once.
                        let pause =
                            if began { Duration::ZERO } else { (left / 2).saturating_sub(skew) };
                        self.vimeo_later(which, pause, Step::Write);
                    }
                    None if go.leads => {
                        let (left, request) = (go.left(now), go.request);
                        self.vimeo_later(which, left, Step::Over { request });
                    }
                    None => self.vimeo_later(which, Duration::ZERO, Step::Look),
                }
            }
            Step::Over { request } if request == go.request => {
                self.vimeo_stops(which);
                self.vimeo_waits(which);
            }
            Step::Late { request } if request == go.request => {
                go.request += 1;
                let left = go.left(now);
                if go.leads && left.is_zero() {
                    self.vimeo_stops(which);
                    return self.vimeo_waits(which);
                }
                let pause = (left / 2).saturating_sub(skew);
                match go.leads {
                    true => self.vimeo_later(which, pause, Step::Write),
                    false => self.vimeo_later(which, Duration::from_millis(20), Step::Look),
                }
            }
            _ => {}
        }
    }
}
