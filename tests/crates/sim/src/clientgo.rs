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

use crate::peers::Link;
use crate::server::Time;

#[derive(Debug, Default)]
pub struct ClientGo {
    /// How fast its clock runs, in parts per million.
    ppm: i64,
    /// What it has seen last, and when.
    observed: Option<(Revision, Time)>,
    /// Whether it has seen its own record last.
    is_leader: bool,
    /// Its own last write that it knows of.
    held: Option<Revision>,
    leads_until: Option<Time>,
    /// The request whose answer is awaited.
    request: u64,
    /// The release that its work waits for.
    releasing: Option<u64>,
}

/// What happens to it.
#[derive(Debug, Clone)]
pub enum Step {
    /// It reads the record, or renews.
    Try,
    /// The pause after this request is over.
    Again { request: u64 },
    /// A read arrives at the server.
    Read { request: u64 },
    /// Its answer arrives.
    Seen { request: u64, record: Option<Record> },
    /// A write arrives at the server.
    Write { request: u64, expected: Option<Revision> },
    /// A write's answer arrives.
    Written { request: u64, answer: Option<Revision> },
    /// An answer has not come in time.
    Late { request: u64 },
    /// It could not renew until then.
    Over { until: Time },
    /// The read before a release arrives at the server.
    ReleaseReads { release: u64 },
    /// Its answer arrives.
    ReleaseSeen { release: u64, expected: Option<Revision> },
    /// A release arrives at the server.
    Release { release: Option<u64>, expected: Revision },
    /// A release is answered, or has hung for too long: its work ends.
    Stopped { release: u64 },
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
        *self = Self::new(self.ppm);
    }

    fn name(which: usize) -> String {
        format!("go-{which}")
    }

    /// After this long by its clock.
    fn later(&self, link: &mut Link<'_>, local: Duration, step: Step) {
        link.later(self.real(local), step);
    }

    /// Sends what arrives as `step`.
    fn sends(&mut self, link: &mut Link<'_>, step: impl FnOnce(u64) -> Step) {
        self.request += 1;
        link.sends(step(self.request));
        let timeout = link.server().bucket_ttl * 3 / 20;
        self.later(link, timeout, Step::Late { request: self.request });
    }

    /// Tries again after a retry period. While it is a standby, the period grows at random by up to
    /// 1.2 times itself: client-go's `JitterFactor`.
    fn tries_again(&self, link: &mut Link<'_>) {
        let mut pause = link.server().bucket_ttl / 15;
        if self.leads_until.is_none() {
            pause = pause.mul_f64(1.0 + 1.2 * link.world.time.random.f64());
        }
        self.later(link, pause, Step::Again { request: self.request });
    }

    /// It could not renew: it releases the record, and its work continues until that is over.
    fn gives_up(&mut self, link: &mut Link<'_>) {
        self.request += 1; // nothing else is awaited any more
        let (release, which) = (self.request, link.which);
        (self.leads_until, self.held, self.releasing) = (None, None, Some(release));
        link.log(|| format!("go-{which} gives up"));
        if !self.is_leader {
            return link.later(Duration::ZERO, Step::Stopped { release });
        }
        link.sends(Step::ReleaseReads { release });
        let hangs = link.server().bucket_ttl / 3;
        self.later(link, hangs, Step::Stopped { release });
    }

    /// It is stopped: its work has ended, and it releases what it knows to hold.
    pub fn stops(&mut self, link: &mut Link<'_>) {
        let leads = self.leads_until.take().is_some();
        self.releasing = None;
        link.leads(false);
        let held = self.held.take();
        if let Some(expected) = held.filter(|_| leads) {
            let which = link.which;
            link.log(|| format!("go-{which} stops leading"));
            link.answers(0.05, Step::Release { release: None, expected });
        }
    }

    pub fn react(&mut self, link: &mut Link<'_>, step: Step) {
        // What is under way arrives, whatever has become of its sender.
        let arrives =
            matches!(step, Step::Write { .. } | Step::Release { .. } | Step::ReleaseReads { .. });
        if !link.is_current && !arrives {
            return;
        }
        let (now, which) = (link.now(), link.which);
        match step {
            Step::Again { request } if request != self.request => {}
            Step::Try | Step::Again { .. } => {
                match self.held.filter(|_| self.leads_until.is_some()) {
                    held @ Some(_) => {
                        self.sends(link, |request| Step::Write { request, expected: held });
                    }
                    None => self.sends(link, |request| Step::Read { request }),
                }
            }
            Step::Read { request } if link.server().is_up(now) => {
                let record = link.server().last.as_ref().map(|last| last.record.clone());
                link.answers(0.05, Step::Seen { request, record });
            }
            Step::Seen { request, record } if request == self.request && !link.cut => {
                let revision = record.as_ref().map(|record| record.revision);
                if let Some(revision) = revision
                    && self.observed.is_none_or(|(seen, _)| seen != revision)
                {
                    self.observed = Some((revision, now));
                }
                self.is_leader = matches!(
                    record.as_ref().map(|record| &record.content),
                    Some(Content::Held(entry)) if *entry.identity == *Self::name(which)
                );
                let wait = match record.map(|record| record.content) {
                    Some(Content::Held(entry)) if *entry.identity != *Self::name(which) => {
                        seconds(entry.ttl)
                    }
                    // Where something is left to wait, our release keeps a holder and states how
                    // long, and so does an eviction.
                    Some(Content::Vacant(Tombstone::Released { cause: Some(_), left, .. })) => {
                        seconds(left)
                    }
                    _ => Duration::ZERO,
                };
                let valid = self.observed.is_some_and(|(_, at)| now < at + self.real(wait));
                if valid && !wait.is_zero() {
                    // Another candidate leads.
                    (self.request, self.held) = (self.request + 1, None);
                    return self.tries_again(link);
                }
                self.sends(link, |request| Step::Write { request, expected: revision });
            }
            Step::Write { request, expected } if link.server().is_up(now) => {
                let applied = link.server().last_revision() == expected;
                if applied {
                    link.log(|| format!("server: of go-{which} over {expected:?}"));
                    link.world.stores_plainly(0, &Self::name(which));
                }
                if link.is_current {
                    let answer = link.server().last_revision().filter(|_| applied);
                    link.answers(0.05, Step::Written { request, answer });
                }
            }
            Step::Written { request, answer } if request == self.request && !link.cut => {
                self.request += 1; // nothing is late any more
                self.held = answer;
                if let Some(revision) = answer {
                    self.observed = Some((revision, now));
                    self.is_leader = true;
                    let began = self.leads_until.is_none();
                    // The next renewal begins a retry period later, and is tried until the renew
                    // deadline.
                    let lasts = link.server().bucket_ttl * 6 / 15;
                    let until = now + self.real(lasts);
                    self.leads_until = Some(until);
                    self.later(link, lasts, Step::Over { until });
                    if began {
                        link.log(|| format!("go-{which} LEADS"));
                        link.leads(true);
                    }
                }
                self.tries_again(link);
            }
            Step::Late { request } if request == self.request => {
                self.request += 1;
                self.held = None; // look what has become of it
                self.tries_again(link);
            }
            Step::Over { until } if self.leads_until == Some(until) => self.gives_up(link),
            Step::ReleaseReads { release } if link.server().is_up(now) => {
                let expected = link.server().last_revision();
                link.answers(0.05, Step::ReleaseSeen { release, expected });
            }
            Step::ReleaseSeen { release, expected: Some(expected) }
                if self.releasing == Some(release) && !link.cut =>
            {
                link.sends(Step::Release { release: Some(release), expected });
            }
            Step::Release { release, expected } if link.server().is_up(now) => {
                if link.server().last_revision() == Some(expected) {
                    // As the lock reads it: the lease of the last holder is waited out.
                    let left = link.server().bucket_ttl;
                    let released = Tombstone::Released {
                        by: Nonce::NOBODY,
                        left,
                        cause: None,
                        to: None,
                        pause: None,
                    };
                    link.server().store(now, Content::Vacant(released), left);
                    link.log(|| format!("server: go-{which} has released"));
                    link.world.stored(0);
                }
                if let Some(release) = release.filter(|_| link.is_current) {
                    link.answers(0.05, Step::Stopped { release });
                }
            }
            Step::Stopped { release } if self.releasing == Some(release) => {
                (self.releasing, self.request) = (None, self.request + 1);
                link.log(|| format!("go-{which}'s work has ended"));
                link.leads(false);
                self.tries_again(link);
            }
            _ => {}
        }
    }
}

/// In whole seconds, as in a Lease.
fn seconds(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}
