//! What lies between the candidates and the server, and what the server does with what arrives.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use incumbent::lock::{Content, Coverage, Entry, Hint, LockErrorKind, Reading, Release, Request};
use incumbent::protocol::{Event, Response};

use crate::event::SimEvent;
use crate::scenario::Fault;
use crate::server::{Keeping, failed, failure};
use crate::tampering::is_release;
use crate::trace;
use crate::world::World;

/// How long a message is under way; `None`: it is lost.
pub(super) fn passage(random: &mut Rng, calm: bool, loss: f64) -> Option<Duration> {
    if calm {
        return Some(Duration::from_micros(random.u64(200..2000)));
    }
    if random.f64() < loss {
        return None;
    }
    let millis = [1.0, 1.0, 1.0, 2.0, 5.0, 20.0, 100.0, 600.0];
    let mut delay = millis[random.usize(..millis.len())] * (0.5 + random.f64());
    if random.u8(..) == 0 {
        delay *= 8.0;
        if random.u8(..8) == 0 {
            delay *= 8.0; // as what was stuck in a proxy for most of a minute
        }
    }
    Some(Duration::from_micros((delay * 1000.0) as u64))
}

/// Between so many milliseconds.
pub(super) fn millis(random: &mut Rng, range: Range<u64>) -> Duration {
    Duration::from_micros(random.u64(range.start * 1000..range.end * 1000))
}

/// How often a message arrives, if it does: a few twice.
pub(super) fn copies(random: &mut Rng, calm: bool) -> u8 {
    if !calm && random.u8(..) < 6 { 2 } else { 1 }
}

impl World {
    /// How long a message is under way; `None`: it is lost.
    pub(super) fn passage(&mut self, loss: f64) -> Option<Duration> {
        passage(&mut self.random, self.calm, loss)
    }

    /// How often a message arrives, if it does.
    pub(super) fn copies(&mut self) -> u8 {
        copies(&mut self.random, self.calm)
    }

    pub(super) fn send(&mut self, who: usize, id: u64, request: Request) {
        let gives_up = matches!(request, Request::Release(_) | Request::NotifyStepDown(_));
        self.checker.request(who, self.now, gives_up);
        if let Request::Release(release) = &request
            && !release.is_check()
        {
            self.judge_release(who, release);
        }
        let local = self.candidates[who].local(self.now);
        let candidate = &mut self.candidates[who];
        let life = candidate.life;
        candidate.request = Some(id);
        let mut subscribes_for = Duration::ZERO;
        let timeout = match &request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => {
                let from = candidate.receives_all_from.unwrap_or_default();
                subscribes_for = from.saturating_sub(self.now).min(write.timeout / 4);
                self.checker.creates += u64::from(write.mark.token.is_none());
                candidate.sent.insert(write.mark.write.number, local);
                if let (None, Some(history)) = (write.expected, candidate.empty_on) {
                    candidate.rests_on.insert((life, id), history);
                }
                write.timeout
            }
            Request::Release(release) => release.timeout,
            Request::NotifyStepDown(_) => Duration::from_micros(200),
        };
        let (cut, knows_cut) =
            (self.now < candidate.faults.cut_out_until, candidate.faults.knows_cut);
        let crash = candidate.crashes_at_write.filter(|_| matches!(request, Request::Write(_)));
        if let Some(back_ms) = crash {
            let crash = Fault::Crash { who, back_ms };
            self.after(Duration::ZERO, SimEvent::Fault(crash));
        }
        let lost = |answer, from_server| SimEvent::Response { who, life, id, answer, from_server };
        if cut && knows_cut {
            let failure = failure(LockErrorKind::Unavailable, "not connected");
            let after = Duration::from_micros(self.random.u64(1..2000));
            return self.after(after, lost(failed(&request, failure), false));
        }
        if self.rests_on_another_ttl(who, &request) {
            // The lock has asked for the TTL, and not sent it.
            let lock = self.capabilities(who);
            self.candidates[who].known_ttl = lock.max_lease;
            let (after, event) = (self.millis(0..20), Event::Capabilities(lock));
            self.after(after, SimEvent::Inside { who, life, event });
            let failure = failure(LockErrorKind::Unavailable, "the TTL has changed");
            return self.after(after, lost(failed(&request, failure), false));
        }
        if self.store.is_some() && matches!(request, Request::NotifyStepDown(_)) {
            // There is no place for it.
            return self.after(Duration::ZERO, lost(Response::Notified(Ok(())), false));
        }
        let reads_objects = self.store.is_some() && matches!(request, Request::Read { .. });
        let outcome =
            if reads_objects { LockErrorKind::Unavailable } else { LockErrorKind::OutcomeUnknown };
        let timed_out = failure(outcome, "timed out");
        self.after(timeout, lost(failed(&request, timed_out), false));
        if self.store.is_some() {
            return self.room_asks(who, id, request, timeout);
        }
        let copies = self.copies();
        for _ in 0..copies {
            if let (false, Some(after)) = (cut, self.passage(0.05)) {
                let (after, request) = (subscribes_for + after, request.clone());
                self.after(after, SimEvent::Request { who, life, id, request });
            }
        }
    }

    /// Begins or ends a subscription to all hints of a candidate whose hints are sampled.
    pub(super) fn subscribe(&mut self, who: usize) {
        let candidate = &self.candidates[who];
        if candidate.setup.coverage != Coverage::Sampled {
            return;
        }
        let life = candidate.life;
        match (candidate.wants_all_hints(self.now), candidate.receives_all_from) {
            (true, None) => {
                let after = self.passage(0.0).unwrap_or_default();
                self.candidates[who].receives_all_from = Some(self.now + after);
                let hint = Hint::Recheck; // of what it has missed
                self.after(after, SimEvent::Hint { who, life, hint });
            }
            (false, Some(_)) => self.candidates[who].receives_all_from = None,
            _ => {}
        }
    }

    /// Whether it is a create over what shows nothing of the last holder's lease, whose writer
    /// knows another TTL than the bucket's.
    fn rests_on_another_ttl(&self, who: usize, request: &Request) -> bool {
        let Request::Write(write) = request else { return false };
        let released = self.server.last.as_ref().is_some_and(|last| {
            write.expected == Some(last.record.revision) && is_release(&last.record.content)
        });
        let known = self.candidates[who].known_ttl;
        write.mark.token.is_none() && !released && known != self.server.bucket_ttl
    }

    pub(super) fn serve(&mut self, who: usize, life: u32, id: u64, request: Request) {
        if !self.server.is_up(self.now) {
            return;
        }
        let denied = self.now < self.candidates[who].faults.denied_until;
        let writes = matches!(request, Request::Write(_) | Request::Release(_));
        // A row of a replica's that lacks it now may have been there meanwhile.
        let history = self.server.history;
        let rests_on = self.candidates[who].rests_on.get(&(life, id));
        let rests_elsewhere = rests_on.is_some_and(|on| *on != history);
        let before = self.server.shown(self.now).map(|record| record.content);
        let (answer, stored) = if denied && writes {
            let failure = failure(LockErrorKind::Denied, "permissions violation");
            (failed(&request, failure), false)
        } else if rests_elsewhere {
            (failed(&request, failure(LockErrorKind::Conflict, "another history")), false)
        } else if writes && !self.calm && self.random.u8(..) < 3 {
            // As a cluster refuses a write while another one is in flight (10164).
            (failed(&request, failure(LockErrorKind::Conflict, "another write")), false)
        } else {
            self.server.apply(self.now, &request)
        };
        self.log(|| {
            format!(
                "server: c{who}'s #{id}, {}: {}",
                trace::request(&request),
                trace::answer(&answer)
            )
        });
        if matches!(answer, Response::Read(Ok(Reading::Empty { .. }))) {
            self.candidates[who].found_empty_on.insert((life, id), history);
        }
        if let (Request::Write(write), Response::Written(Err(_))) = (&request, &answer)
            && self.candidates[who].life != life
        {
            self.count_late_write(write.mark.write.nonce);
        }
        let acknowledged = !(stored && self.server.lacks_its_replica(self.now));
        if stored {
            if let Request::Write(write) = &request
                && write.mark.token.is_none()
                && self.candidates[who].life == life
            {
                self.judge_create(who, write, before.as_ref());
            }
            if let Request::Write(write) = &request
                && acknowledged
                && self.candidates[who].life == life
            {
                self.candidates[who].applied(write.mark.write.number);
            }
            self.stored();
            if let Request::Release(Release { to: Some(to), .. }) = request {
                self.notify_successor(to);
            }
        }
        if let Request::NotifyStepDown(notice) = request {
            return self.deliver_hints(|_| Some(Hint::SteppedDown(notice)));
        }
        if !acknowledged {
            return; // the server ends the connection, and its backend waits no more
        }
        let copies = self.copies();
        for _ in 0..copies {
            if let Some(after) = self.passage(0.08) {
                let answer = answer.clone();
                self.after(after, SimEvent::Response { who, life, id, answer, from_server: true });
            }
        }
    }

    /// Something was stored: delivers hints, and schedules its expiry.
    pub(super) fn stored(&mut self) {
        let Some(last) = self.server.last.clone() else { return };
        let late = self.millis(0..250);
        self.after(last.expires.saturating_sub(self.now) + late, SimEvent::Expire);
        // A watch of a Lease does not report what a write replaced.
        let previous = last.previous.filter(|_| self.server.keeping != Keeping::Forever);
        self.deliver_hints(|coverage| match coverage {
            Coverage::None => None,
            Coverage::Partial => Some(Hint::Recheck),
            Coverage::Sampled | Coverage::Full => Some(Hint::Stored {
                record: last.record.clone(),
                previous,
                age: Some(Duration::from_millis(1)),
            }),
        });
    }

    pub(super) fn deliver_hints(&mut self, hint: impl Fn(Coverage) -> Option<Hint>) {
        for who in self.receivers() {
            let Some(hint) = hint(self.candidates[who].setup.coverage) else { continue };
            self.checker.deliveries += 1;
            let copies = self.copies();
            for _ in 0..copies {
                if let Some(after) = self.passage(0.15) {
                    let (life, hint) = (self.candidates[who].life, hint.clone());
                    self.after(after, SimEvent::Hint { who, life, hint });
                }
            }
        }
    }

    /// Which candidates receive a hint. Of those whose hints are sampled it goes to one of each
    /// queue group: also one that is paused or cut off may be drawn. A process with further
    /// elections stays in its group for these while it receives all hints of this one.
    fn receivers(&mut self) -> Vec<usize> {
        let stays = self.scenario.further_elections.is_some();
        let mut receivers = Vec::new();
        let mut groups = vec![Vec::new(); self.groups];
        for (who, candidate) in self.candidates.iter().enumerate() {
            let coverage = candidate.setup.coverage;
            let few = coverage == Coverage::Sampled;
            let all = !few || candidate.receives_all_from.is_some_and(|from| from <= self.now);
            if all && coverage != Coverage::None {
                receivers.push(who);
            }
            if few && (!all || stays) && candidate.machine.is_some() {
                groups[who % self.groups].push(who);
            }
        }
        for members in groups.iter().filter(|members| !members.is_empty()) {
            receivers.push(members[self.random.usize(..members.len())]);
        }
        receivers.sort_unstable();
        receivers
    }

    pub(super) fn expire(&mut self) {
        if !self.server.is_up(self.now) {
            let after = self.server.down_until - self.now;
            return self.after(after, SimEvent::Expire);
        }
        if self.server.expire(self.now) {
            self.log(|| "server: expired".to_owned());
            self.stored();
        }
    }

    pub(super) fn admin_deletes(&mut self) {
        if self.server.is_up(self.now) {
            match self.random.u8(..4) {
                0 => self.server.purge(self.now),
                _ => self.server.delete(self.now),
            }
            match self.server.last {
                Some(_) => self.stored(),
                None => self.deliver_hints(|_| Some(Hint::Recheck)),
            }
        }
    }

    pub(super) fn operator_evicts(&mut self) {
        let Some(last) = self.server.last.as_ref().filter(|_| self.server.is_up(self.now)) else {
            return;
        };
        let (max_lease, frees) = (self.server.bucket_ttl, self.server.keeping.frees());
        let eviction = Release::evicting(&last.record, max_lease, frees, Duration::ZERO);
        if let Some(eviction) = eviction {
            let (_, stored) = self.server.apply(self.now, &Request::Release(eviction));
            if stored {
                self.log(|| "server: evicted".to_owned());
                self.stored();
            }
        }
    }

    pub(super) fn admin_stores(&mut self, content: Content) {
        if !self.server.is_up(self.now) {
            return;
        }
        let life = self.server.bucket_ttl;
        self.server.store(self.now, content, life);
        self.stored();
    }

    pub(super) fn plain_entry(&self, identity: &str) -> Content {
        Content::Held(Entry {
            identity: identity.into(),
            mark: None,
            ttl: self.server.bucket_ttl,
            advertisement: None,
        })
    }
}
