//! A candidate that behaves like client-go's, on a lock that frees nothing by itself.
//!
//! It reads every retry period. A record that it has not seen before begins a wait of as many whole
//! seconds as the record states, on its own clock; then it writes over it, and leads from the
//! answer on. When it could not renew for a retry period and its renew deadline after the last
//! response, it reads once more, and empties the record, unless the last that it saw was another's.
//! Its work continues until that is answered, or has hung for another renew deadline. When it is
//! stopped, its work ends first, and it releases what it holds. What is not there it makes, at
//! once.
//!
//! The retry period is a fifteenth of the lease, the renew deadline a third, and an answer that
//! takes longer than 0.15 of it counts as lost: as client-go reckons from the answer and waits for
//! its release, retry period, two renew deadlines and an answer must be shorter than a lease, or it
//! works beside a successor that takes over when its lease is out. Its defaults are not. A retry
//! period of a second or more is assumed: client-go compares the times of records in whole seconds,
//! and does not see a second renewal within one.
//!
//! One thing of client-go's is left out, as no candidate can be safe beside it: a leader that was
//! stopped for so long that another else leads releases that other one's record when it ends.

use std::time::Duration;

use incumbent::lock::{Content, Nonce, Record, Revision, Tombstone};

use crate::event::SimEvent;
use crate::server::Time;
use crate::world::World;

#[derive(Debug, Default)]
pub struct ClientGo {
    /// Which process this is.
    pub life: u32,
    /// How fast its clock runs, in parts per million.
    ppm: i64,
    /// What it has seen last, and when.
    observed: Option<(Revision, Time)>,
    /// Whether it has seen its own record last.
    is_leader: bool,
    /// Its own last write that it knows of.
    held: Option<Revision>,
    pub leads_until: Option<Time>,
    pub cut_until: Time,
    /// The request whose answer is awaited.
    request: u64,
    /// The release that its work waits for.
    releasing: Option<u64>,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    Try,
    /// The pause after this request is over.
    Again {
        request: u64,
    },
    /// A read arrives at the server.
    Read {
        request: u64,
    },
    /// Its answer arrives.
    Seen {
        request: u64,
        record: Option<Record>,
    },
    /// A write arrives at the server.
    Write {
        request: u64,
        expected: Option<Revision>,
    },
    Written {
        request: u64,
        answer: Option<Revision>,
    },
    /// An answer has not come in time.
    Late {
        request: u64,
    },
    /// It could not renew until then.
    Over {
        until: Time,
    },
    /// The read before a release arrives at the server.
    ReleaseReads {
        release: u64,
    },
    /// Its answer arrives.
    ReleaseSeen {
        release: u64,
        expected: Option<Revision>,
    },
    /// A release arrives at the server.
    Release {
        release: Option<u64>,
        expected: Revision,
    },
    /// A release is answered, or has hung for too long: its work ends.
    Stopped {
        release: u64,
    },
}

impl ClientGo {
    pub fn new(ppm: i64) -> Self {
        Self { ppm, ..Self::default() }
    }

    /// How long something lasts that takes this long by its clock.
    fn real(&self, local: Duration) -> Duration {
        local.mul_f64(1.0 / (1.0 + self.ppm as f64 / 1e6))
    }

    /// A new process, which knows nothing.
    pub fn crash(&mut self) {
        *self = Self { life: self.life + 1, ppm: self.ppm, ..Self::default() };
    }
}

/// In whole seconds, as in a Lease.
fn seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}

impl World {
    fn go_name(which: usize) -> String {
        format!("go-{which}")
    }

    fn go_later(&mut self, which: usize, local: Duration, step: Step) {
        let (life, after) = (self.client_gos[which].life, self.client_gos[which].real(local));
        self.time.after(after, SimEvent::ClientGo { which, life, step });
    }

    /// Sends what arrives as `step`.
    fn go_sends(&mut self, which: usize, step: impl FnOnce(u64) -> Step) {
        self.client_gos[which].request += 1;
        let request = self.client_gos[which].request;
        let cut = self.time.now < self.client_gos[which].cut_until;
        if let Some(after) = self.time.passage(0.05).filter(|_| !cut) {
            let life = self.client_gos[which].life;
            self.time.after(after, SimEvent::ClientGo { which, life, step: step(request) });
        }
        let timeout = self.servers[0].bucket_ttl * 3 / 20;
        self.go_later(which, timeout, Step::Late { request });
    }

    /// Sends what arrives as `step`, unless it is cut off.
    fn go_posts(&mut self, which: usize, step: Step) {
        let cut = self.time.now < self.client_gos[which].cut_until;
        if let Some(after) = self.time.passage(0.05).filter(|_| !cut) {
            let life = self.client_gos[which].life;
            self.time.after(after, SimEvent::ClientGo { which, life, step });
        }
    }

    fn go_answers(&mut self, which: usize, step: Step) {
        if let Some(after) = self.time.passage(0.05) {
            let life = self.client_gos[which].life;
            self.time.after(after, SimEvent::ClientGo { which, life, step });
        }
    }

    /// Tries again after a retry period. While it is a standby, the period grows at random by up to
    /// 1.2 times itself: client-go's `JitterFactor`.
    fn go_tries_again(&mut self, which: usize) {
        let mut pause = self.servers[0].bucket_ttl / 15;
        if self.client_gos[which].leads_until.is_none() {
            pause = pause.mul_f64(1.0 + 1.2 * self.time.random.f64());
        }
        let request = self.client_gos[which].request;
        self.go_later(which, pause, Step::Again { request });
    }

    /// It could not renew: it releases the record, and its work continues until that is over.
    fn go_gives_up(&mut self, which: usize) {
        let go = &mut self.client_gos[which];
        go.request += 1; // nothing else is awaited any more
        let release = go.request;
        (go.leads_until, go.held, go.releasing) = (None, None, Some(release));
        self.time.log(|| format!("go-{which} gives up"));
        if !self.client_gos[which].is_leader {
            return self.go_later(which, Duration::ZERO, Step::Stopped { release });
        }
        self.go_posts(which, Step::ReleaseReads { release });
        let hangs = self.servers[0].bucket_ttl / 3;
        self.go_later(which, hangs, Step::Stopped { release });
    }

    /// It is stopped: its work has ended, and it releases what it knows to hold.
    pub(super) fn go_stops(&mut self, which: usize) {
        let leads = self.client_gos[which].leads_until.take().is_some();
        self.client_gos[which].releasing = None;
        self.checker.peer(which, false, self.time.now);
        let held = self.client_gos[which].held.take();
        if let Some(expected) = held.filter(|_| leads) {
            self.time.log(|| format!("go-{which} stops leading"));
            self.go_answers(which, Step::Release { release: None, expected });
        }
    }

    pub(super) fn step_client_go(&mut self, which: usize, life: u32, step: Step) {
        // What is under way arrives, whatever has become of its sender.
        let arrives =
            matches!(step, Step::Write { .. } | Step::Release { .. } | Step::ReleaseReads { .. });
        let now = self.time.now;
        let go = &mut self.client_gos[which];
        if go.life != life && !arrives {
            return;
        }
        let cut = now < go.cut_until;
        match step {
            Step::Again { request } if request != go.request => {}
            Step::Try | Step::Again { .. } => match go.held.filter(|_| go.leads_until.is_some()) {
                held @ Some(_) => {
                    self.go_sends(which, |request| Step::Write { request, expected: held });
                }
                None => self.go_sends(which, |request| Step::Read { request }),
            },
            Step::Read { request } if self.servers[0].is_up(now) => {
                let record = self.servers[0].last.as_ref().map(|last| last.record.clone());
                self.go_answers(which, Step::Seen { request, record });
            }
            Step::Seen { request, record } if request == go.request && !cut => {
                let revision = record.as_ref().map(|record| record.revision);
                if let Some(revision) = revision
                    && go.observed.is_none_or(|(seen, _)| seen != revision)
                {
                    go.observed = Some((revision, now));
                }
                go.is_leader = matches!(
                    record.as_ref().map(|record| &record.content),
                    Some(Content::Held(entry)) if *entry.identity == *Self::go_name(which)
                );
                let wait = match record.map(|record| record.content) {
                    Some(Content::Held(entry)) if *entry.identity != *Self::go_name(which) => {
                        seconds(entry.ttl)
                    }
                    // Where something is left to wait, our release keeps a holder and states how
                    // long, and so does an eviction.
                    Some(Content::Vacant(Tombstone::Released { cause: Some(_), left, .. })) => {
                        seconds(left)
                    }
                    _ => Duration::ZERO,
                };
                let go = &self.client_gos[which];
                let valid = go.observed.is_some_and(|(_, at)| now < at + go.real(wait));
                if valid && !wait.is_zero() {
                    return self.go_waits(which);
                }
                self.go_sends(which, |request| Step::Write { request, expected: revision });
            }
            Step::Write { request, expected } if self.servers[0].is_up(now) => {
                let applied = self.servers[0].last_revision() == expected;
                if applied {
                    self.time.log(|| format!("server: of go-{which} over {expected:?}"));
                    self.stores_plainly(0, &Self::go_name(which));
                }
                if self.client_gos[which].life == life {
                    let answer = self.servers[0].last_revision().filter(|_| applied);
                    self.go_answers(which, Step::Written { request, answer });
                }
            }
            Step::Written { request, answer } if request == go.request && !cut => {
                go.request += 1; // nothing is late any more
                go.held = answer;
                if let Some(revision) = answer {
                    go.observed = Some((revision, now));
                    go.is_leader = true;
                    let began = go.leads_until.is_none();
                    // The next renewal begins a retry period later, and is tried until the renew
                    // deadline.
                    let lasts = self.servers[0].bucket_ttl * 6 / 15;
                    let until = now + self.client_gos[which].real(lasts);
                    self.client_gos[which].leads_until = Some(until);
                    self.go_later(which, lasts, Step::Over { until });
                    if began {
                        self.time.log(|| format!("go-{which} LEADS"));
                        self.checker.peer(which, true, now);
                    }
                }
                self.go_tries_again(which);
            }
            Step::Late { request } if request == go.request => {
                go.request += 1;
                go.held = None; // look what has become of it
                self.go_tries_again(which);
            }
            Step::Over { until } if go.leads_until == Some(until) => self.go_gives_up(which),
            Step::ReleaseReads { release } if self.servers[0].is_up(now) => {
                let expected = self.servers[0].last_revision();
                self.go_answers(which, Step::ReleaseSeen { release, expected });
            }
            Step::ReleaseSeen { release, expected: Some(expected) }
                if go.releasing == Some(release) && !cut =>
            {
                self.go_posts(which, Step::Release { release: Some(release), expected });
            }
            Step::Release { release, expected } if self.servers[0].is_up(now) => {
                if self.servers[0].last_revision() == Some(expected) {
                    // As the lock reads it: the lease of the last holder is waited out.
                    let left = self.servers[0].bucket_ttl;
                    let released = Tombstone::Released {
                        by: Nonce::NOBODY,
                        left,
                        cause: None,
                        to: None,
                        pause: None,
                    };
                    self.servers[0].store(now, Content::Vacant(released), left);
                    self.time.log(|| format!("server: go-{which} has released"));
                    self.stored(0);
                }
                if let Some(release) = release.filter(|_| self.client_gos[which].life == life) {
                    self.go_answers(which, Step::Stopped { release });
                }
            }
            Step::Stopped { release } if go.releasing == Some(release) => {
                (go.releasing, go.request) = (None, go.request + 1);
                self.time.log(|| format!("go-{which}'s work has ended"));
                self.checker.peer(which, false, now);
                self.go_tries_again(which);
            }
            _ => {}
        }
    }

    /// Another candidate leads.
    fn go_waits(&mut self, which: usize) {
        self.client_gos[which].request += 1;
        self.client_gos[which].held = None;
        self.go_tries_again(which);
    }
}
