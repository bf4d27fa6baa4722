//! The requests of the lock to the store for one request of an election, and its reading of the
//! replies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use incumbent::lock::{LockErrorKind, Reading, Request, Revision};
use incumbent::protocol::{Event, Response};
use incumbent::seen::{Before, Known, SeenRevisions};
use incumbent::vimeo_timing::VimeoTiming;

use super::store::{Body, Object, Said, Store, Version};
use crate::candidate::Candidate;
use crate::server::{Time, failed, failure};
use crate::trace;
use crate::world::{Inner, SimEvent, World};

/// The lock as one process has it, or several campaigns of one.
#[derive(Debug, Default)]
pub struct Room {
    election: SeenRevisions<Version>,
    /// Whether the store has shown that it checks conditions.
    checks: AtomicBool,
}

/// A request of the campaign that the lock is at work on.
#[derive(Debug, Clone)]
pub struct Exchange {
    id: u64,
    request: Request,
    /// When its time is over.
    by: Time,
    asked: HttpRequest,
    /// Which HTTP request of it is under way.
    attempt: u32,
    before: Before<Version>,
    /// An earlier try of the same may have been applied.
    ambiguous: bool,
    /// What was stored, while the store is tried out.
    stored: Option<Known<Version>>,
    /// How many of its two trials have been refused.
    trials: u8,
}

impl World {
    /// Whose locks cannot see that this version is not the last.
    pub(super) fn unaware(fleet: &[Candidate], version: Version, to: Revision) -> Vec<usize> {
        let cannot_tell = |it: &Candidate| {
            let election = &it.room.election;
            election.newest().is_none_or(|newest| newest <= to)
                || election.known().is_some_and(|known| known.version == version)
        };
        (0..fleet.len()).filter(|who| cannot_tell(&fleet[*who])).collect()
    }

    pub(super) fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("only worlds with a store have rooms")
    }

    fn wall(&self, who: usize) -> Duration {
        Store::wall(self.time.now, self.candidates[who].setup.wall_ms)
    }

    pub(crate) fn room_asks(&mut self, who: usize, id: u64, request: Request, timeout: Duration) {
        let by = self.time.now + timeout;
        let room = Arc::clone(&self.candidates[who].room);
        let exchange = Exchange {
            id,
            request,
            by,
            asked: HttpRequest::Get,
            attempt: 0,
            before: room.election.before(),
            ambiguous: false,
            stored: None,
            trials: 0,
        };
        let expected = expected(&exchange.request);
        self.candidates[who].exchange = Some(exchange);
        match (expected, room.election.known()) {
            (None, _) | (Some(Some(_)), None) => self.room_sends(who),
            (Some(Some(_)), known) => self.room_puts(who, known),
            (Some(None), _) => self.room_puts(who, None),
        }
    }

    /// Writes over `known`, if that is what the campaign expects.
    fn room_puts(&mut self, who: usize, known: Option<Known<Version>>) {
        let (now, wall) = (self.time.now, self.wall(who));
        let terms = self.store().terms;
        let candidate = &mut self.candidates[who];
        let room = Arc::clone(&candidate.room);
        let Some(exchange) = &mut candidate.exchange else { return };
        if Some(known.as_ref().map(|known| known.revision)) != expected(&exchange.request) {
            return self.room_fails(who, LockErrorKind::Conflict, "written by another");
        }
        let number = room.election.next_number(known.as_ref(), wall.as_millis() as u64);
        let Some(body) = body_of(&exchange.request, number, terms, wall) else { return };
        let newest = room.election.newest();
        let over = known.map(|known| known.version);
        exchange.asked = HttpRequest::Put { over, body, newest, sent: now };
        exchange.ambiguous = false;
        self.room_sends(who);
    }

    /// Sends the HTTP request that is next.
    pub(crate) fn room_sends(&mut self, who: usize) {
        let cut = self.time.now < self.process(who).faults.cut_out_until;
        let life = self.life(who);
        let Some(exchange) = &mut self.candidates[who].exchange else { return };
        exchange.attempt += 1;
        let (id, attempt, asked) = (exchange.id, exchange.attempt, exchange.asked.clone());
        // A proxy in between may send it twice.
        for after in self.time.passages(0.05).filter(|_| !cut) {
            let asked = asked.clone();
            self.time.after(after, SimEvent::Asked { who, life, id, attempt, asked });
        }
    }

    /// A request arrives at the store.
    pub(crate) fn store_serves(
        &mut self,
        who: usize,
        life: u32,
        id: u64,
        attempt: u32,
        asked: HttpRequest,
    ) {
        let now = self.time.now;
        if !self.servers[0].is_up(now) {
            return;
        }
        let denied = now < self.process(who).faults.denied_until;
        let (busy_until, status, retry_after) = self.store().busy;
        let conflicts = now < busy_until && status == 409;
        let busy = now < busy_until && !conflicts;
        // A store that is too busy may have done it all the same; one that gets too many requests
        // has not.
        let applies = !busy || (status == 503 && self.time.random.bool());
        let raced = !self.time.calm && self.time.random.u8(..) < 3;
        let mut reply = match &asked {
            HttpRequest::Get => Reply::Found(self.store().object.clone()),
            HttpRequest::Put { .. } if denied => Reply::Denied,
            // As S3 answers where another write is under way.
            HttpRequest::Put { .. } if raced || conflicts => Reply::Refused,
            HttpRequest::Put { over, body, newest, sent } if applies => {
                match self.store().put(*over, body) {
                    Some(version) => {
                        self.was_put(who, life, body, *newest, *sent);
                        Reply::Stored(version)
                    }
                    None => Reply::Refused,
                }
            }
            HttpRequest::Put { .. } => Reply::Refused,
        };
        if busy {
            reply = Reply::Busy { status, retry_after };
        }
        self.time.log(|| format!("store: c{who}'s #{id}, {asked}: {reply}"));
        if let Some(after) = self.time.passage(0.08) {
            let what = Inner::Replied { id, attempt, reply };
            self.time.after(after, SimEvent::In { who, life, what });
        }
    }

    /// A write was stored, and what follows for those who check it.
    fn was_put(
        &mut self,
        who: usize,
        life: u32,
        body: &Body,
        newest: Option<Revision>,
        sent: Time,
    ) {
        let now = self.time.now;
        if let Some(until) = self.store().excuses(now, who, sent) {
            self.time.log(|| format!("c{who} knows nothing of what was lost"));
            self.checker.excuse(until);
        }
        let Said::Held(_, mark, _) = &body.said else { return };
        let number = mark.write.number;
        if self.life(who) == life {
            self.candidates[who].applied(number);
        }
        if mark.token.is_none() {
            (self.candidates[who].knew, self.candidates[who].asked) = (newest, sent);
        }
    }

    /// A reply arrives.
    pub(crate) fn room_receives(&mut self, who: usize, id: u64, attempt: u32, reply: Reply) {
        let candidate = &self.candidates[who];
        if !candidate.awaits(id, attempt) {
            return;
        }
        let room = Arc::clone(&candidate.room);
        let (terms, wall) = (self.store().terms, self.wall(who));
        let (now, hashed) = (self.time.now, self.store().hashed);
        let Some(exchange) = &mut self.candidates[who].exchange else { return };
        let reads = matches!(exchange.request, Request::Read { .. });
        match reply {
            Reply::Found(None) => {
                room.election.forget(&exchange.before);
                if reads {
                    let nothing = Reading::Empty { proof: false };
                    return self.room_answers(who, Response::Read(Ok(nothing)));
                }
                self.room_puts(who, None);
            }
            Reply::Found(Some(Object { version, body })) => {
                let Some(content) = body.content(terms, wall) else {
                    let what = "is not the entry of an election";
                    return self.room_fails(who, LockErrorKind::Misconfigured, what);
                };
                let (election, before) = (&room.election, &exchange.before);
                let known = election.found(before, version, body.number, content, terms.longest);
                if reads {
                    let found = Reading::Found(known.record());
                    return self.room_answers(who, Response::Read(Ok(found)));
                }
                self.room_puts(who, Some(known));
            }
            Reply::Stored(_) if exchange.trials > 0 || exchange.stored.is_some() => {
                let what = "can be overwritten";
                self.room_fails(who, LockErrorKind::Misconfigured, what);
            }
            Reply::Stored(version) => {
                let HttpRequest::Put { body, .. } = &exchange.asked else { return };
                let Some(content) = body.content(terms, wall) else { return };
                let (number, revision) = (body.number, Revision(body.number + 1));
                exchange.stored = Some(Known { version, number, revision, content });
                if hashed && !room.checks.load(Ordering::Relaxed) {
                    return self.room_tries(who, None);
                }
                self.room_has_written(who);
            }
            Reply::Refused if exchange.stored.is_some() && !exchange.ambiguous => {
                exchange.trials += 1;
                if exchange.trials == 1 {
                    return self.room_tries(who, Some(Version::NONE));
                }
                room.checks.store(true, Ordering::Relaxed);
                self.room_has_written(who);
            }
            Reply::Refused if exchange.ambiguous => {
                let what = "refused after an earlier attempt without a response";
                self.room_fails(who, LockErrorKind::OutcomeUnknown, what);
            }
            Reply::Refused => {
                self.room_fails(who, LockErrorKind::Conflict, "written by another");
            }
            Reply::Denied => self.room_fails(who, LockErrorKind::Denied, "a right is missing"),
            Reply::Busy { status, retry_after } => {
                exchange.ambiguous |= status == 503 && retry_after.is_some();
                let pause = retry_after.filter(|pause| now + *pause < exchange.by);
                let ambiguous = exchange.ambiguous || status == 503;
                match pause {
                    Some(pause) => {
                        let pause = pause.max(Duration::from_millis(100));
                        self.later(who, pause, Inner::AskAgain { id, attempt });
                    }
                    None if ambiguous && !reads => {
                        self.room_fails(
                            who,
                            LockErrorKind::OutcomeUnknown,
                            "the store is too busy",
                        );
                    }
                    None => {
                        self.room_fails(who, LockErrorKind::Unavailable, "the store is too busy");
                    }
                }
            }
        }
    }

    /// The delay that the store requested is over.
    pub(crate) fn room_asks_again(&mut self, who: usize, id: u64, attempt: u32) {
        if self.candidates[who].awaits(id, attempt) {
            self.room_sends(who);
        }
    }

    /// Writes what must be refused.
    fn room_tries(&mut self, who: usize, over: Option<Version>) {
        let (now, wall) = (self.time.now, self.wall(who));
        let terms = self.store().terms;
        let expiry = wall + terms.expiry(terms.longest.saturating_mul(2));
        let Some(exchange) = &mut self.candidates[who].exchange else { return };
        let HttpRequest::Put { body, newest, .. } = &exchange.asked else { return };
        let body = Body { number: body.number, expiry, said: Said::Nobody };
        exchange.asked = HttpRequest::Put { over, body, newest: *newest, sent: now };
        exchange.ambiguous = false;
        self.room_sends(who);
    }

    fn room_has_written(&mut self, who: usize) {
        let candidate = &mut self.candidates[who];
        let Some(exchange) = &mut candidate.exchange else { return };
        let Some(known) = exchange.stored.take() else { return };
        let answer = match exchange.request {
            Request::Release(_) => Response::Released(Ok(())),
            _ => Response::Written(Ok(known.revision)),
        };
        candidate.room.election.learn(known);
        self.room_answers(who, answer);
    }

    fn room_fails(&mut self, who: usize, kind: LockErrorKind, what: &str) {
        let Some(exchange) = &self.candidates[who].exchange else { return };
        // Something was stored, and the store is being tried out.
        let kind = match kind {
            LockErrorKind::Misconfigured => kind,
            _ if exchange.stored.is_some() => LockErrorKind::OutcomeUnknown,
            _ => kind,
        };
        let answer = failed(&exchange.request, failure(kind, what));
        self.room_answers(who, answer);
    }

    fn room_answers(&mut self, who: usize, answer: Response) {
        let Some(exchange) = self.candidates[who].exchange.take() else { return };
        self.candidates[who].request = None;
        let id = exchange.id;
        self.time.log(|| format!("c{who} <- #{id} {}", trace::answer(&answer)));
        self.feed(who, Event::Response { id, response: answer });
    }
}

impl Candidate {
    /// Whether it still waits for what this HTTP request brings.
    fn awaits(&self, id: u64, attempt: u32) -> bool {
        let current = self.exchange.as_ref();
        self.request == Some(id) && current.is_some_and(|it| it.id == id && it.attempt == attempt)
    }
}

/// What is written for a request. `wall`: the writer's wall clock.
pub(super) fn body_of(
    request: &Request,
    number: u64,
    terms: VimeoTiming,
    wall: Duration,
) -> Option<Body> {
    let (said, life) = match request {
        Request::Write(write) => {
            let (identity, advertisement) = (write.identity.clone(), write.advertisement.clone());
            (Said::Held(identity, write.mark.clone(), advertisement), write.ttl)
        }
        Request::Release(release) => (
            Said::Released {
                by: release.by,
                left: release.left,
                cause: release.cause,
                to: release.to,
                pause: release.pause,
            },
            release.left,
        ),
        Request::Read { .. } | Request::NotifyStepDown(_) => return None,
    };
    Some(Body { number, expiry: wall + terms.expiry(life), said })
}

/// What a write is to replace; `None`: it is none.
fn expected(request: &Request) -> Option<Option<Revision>> {
    match request {
        Request::Write(write) => Some(write.expected),
        Request::Release(release) => Some(Some(release.expected)),
        Request::Read { .. } | Request::NotifyStepDown(_) => None,
    }
}

/// One HTTP request.
#[derive(Debug, Clone)]
pub enum HttpRequest {
    Get,
    Put { over: Option<Version>, body: Body, newest: Option<Revision>, sent: Time },
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// What a read finds.
    Found(Option<Object>),
    /// 200.
    Stored(Version),
    /// 412, 409.
    Refused,
    /// 429, 503.
    Busy { status: u16, retry_after: Option<Duration> },
    /// 403.
    Denied,
}

impl fmt::Display for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("GET"),
            Self::Put { over, body, .. } => {
                let over = over.map_or_else(|| "nothing".to_owned(), |over| format!("{over:?}"));
                write!(f, "PUT of number {} over {over}", body.number)
            }
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(None) => f.write_str("404"),
            Self::Found(Some(Object { version, body })) => {
                write!(f, "{version:?}, number {}", body.number)?;
                match &body.said {
                    Said::Held(identity, mark, _) => {
                        write!(f, " of {identity} (write {})", mark.write.number)
                    }
                    Said::Released { left, .. } => write!(f, ", released with {left:?} left"),
                    Said::Named(identity) => write!(f, " of {identity}"),
                    Said::Nobody => f.write_str(" of nobody"),
                    Said::Junk => f.write_str(", junk"),
                }
            }
            Self::Stored(version) => write!(f, "200, {version:?}"),
            Self::Refused => f.write_str("412"),
            Self::Busy { status, retry_after } => {
                write!(f, "{status}, again after {retry_after:?}")
            }
            Self::Denied => f.write_str("403"),
        }
    }
}
