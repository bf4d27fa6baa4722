//! What lies between the candidates and the servers, and what these do with what arrives.

use std::time::Duration;

use incumbent::lock::{Content, Coverage, Entry, Hint, LockErrorKind, Reading, Release, Request};
use incumbent::protocol::{Event, Response};

use crate::faults::Fault;
use crate::server::{Retention, Server, failed, failure};
use crate::tampering::is_release;
use crate::trace;
use crate::world::{Inner, SimEvent, World};

impl World {
    pub(super) fn send(&mut self, who: usize, id: u64, request: Request) {
        let gives_up = matches!(request, Request::Release(_) | Request::NotifyStepDown(_));
        self.checker.request(who, self.time.now, gives_up);
        if let Request::Release(release) = &request
            && !release.is_check()
        {
            self.judge_release(who, release);
        }
        let (now, local, life) = (self.time.now, self.local(who), self.life(who));
        let candidate = &mut self.candidates[who];
        let process = &self.processes[candidate.process];
        candidate.request = Some(id);
        let mut subscribes_for = Duration::ZERO;
        let timeout = match &request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => {
                let from = candidate.receives_all_from.unwrap_or_default();
                subscribes_for = from.saturating_sub(now).min(write.timeout / 4);
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
        let (cut, knows_cut) = (now < process.faults.cut_out_until, process.faults.knows_cut);
        let crash = process.crashes_at_write.filter(|_| matches!(request, Request::Write(_)));
        if let Some(back_ms) = crash {
            let crash = Fault::Crash { who: candidate.process, back_ms };
            self.time.after(Duration::ZERO, SimEvent::Fault(crash));
        }
        if self.scenario.quorum.is_some() {
            return self.ask_voter(who, id, request, timeout);
        }
        let lost = |answer| Inner::Response { id, answer, from_server: false };
        if cut && knows_cut {
            let failure = failure(LockErrorKind::Unavailable, "not connected");
            let after = Duration::from_micros(self.time.random.u64(1..2000));
            return self.later(who, after, lost(failed(&request, failure)));
        }
        if self.rests_on_another_ttl(who, &request) {
            // The lock has asked for the TTL, and not sent it.
            let lock = self.capabilities(who);
            self.candidates[who].known_ttl = lock.max_lease;
            let after = self.time.millis(0..20);
            self.later(who, after, Inner::Own(Event::Capabilities(lock)));
            let failure = failure(LockErrorKind::Unavailable, "the TTL has changed");
            return self.later(who, after, lost(failed(&request, failure)));
        }
        if self.store.is_some() && matches!(request, Request::NotifyStepDown(_)) {
            // There is no place for it.
            return self.later(who, Duration::ZERO, lost(Response::Notified(Ok(()))));
        }
        let reads_objects = self.store.is_some() && matches!(request, Request::Read { .. });
        let outcome =
            if reads_objects { LockErrorKind::Unavailable } else { LockErrorKind::OutcomeUnknown };
        let timed_out = failure(outcome, "timed out");
        self.later(who, timeout, lost(failed(&request, timed_out)));
        if self.store.is_some() {
            return self.room_asks(who, id, request, timeout);
        }
        for after in self.time.passages(0.05).filter(|_| !cut) {
            let (after, request) = (subscribes_for + after, request.clone());
            self.time.after(after, SimEvent::Request { who, life, id, request });
        }
    }

    /// Begins or ends a subscription to all hints of a candidate whose hints are sampled.
    pub(super) fn subscribe(&mut self, who: usize) {
        let candidate = &self.candidates[who];
        if candidate.setup.coverage != Coverage::Sampled {
            return;
        }
        match (candidate.wants_all_hints(self.local(who)), candidate.receives_all_from) {
            (true, None) => {
                let after = self.time.passage(0.0).unwrap_or_default();
                self.candidates[who].receives_all_from = Some(self.time.now + after);
                self.later(who, after, Inner::Hint(Hint::Recheck)); // of what it has missed
            }
            (false, Some(_)) => self.candidates[who].receives_all_from = None,
            _ => {}
        }
    }

    /// Whether it is a create over what shows nothing of the last holder's lease, whose writer
    /// knows another TTL than the bucket's.
    fn rests_on_another_ttl(&self, who: usize, request: &Request) -> bool {
        let Request::Write(write) = request else { return false };
        let server = &self.servers[self.candidates[who].key];
        let released = server.last.as_ref().is_some_and(|last| {
            write.expected == Some(last.record.revision) && is_release(&last.record.content)
        });
        let known = self.candidates[who].known_ttl;
        write.mark.token.is_none() && !released && known != server.bucket_ttl
    }

    pub(super) fn serve(&mut self, who: usize, life: u32, id: u64, request: Request) {
        let (now, key) = (self.time.now, self.candidates[who].key);
        let server = &self.servers[key];
        if !server.is_up(now) {
            return;
        }
        // A row of a replica's that lacks it now may have been there meanwhile.
        let history = server.history;
        let rests_on = self.candidates[who].rests_on.get(&(life, id));
        let rests_elsewhere = rests_on.is_some_and(|on| *on != history);
        let before = server.shown(now).map(|record| record.content);
        // Replicas agree on a write, and meanwhile on the marker of what it replaces: that comes
        // second, before whatever is sent by those who know of the write.
        let is_over = server.last.as_ref().is_some_and(|last| last.expires <= now);
        let is_marked = is_over && server.leaves_marker() && !self.time.calm;
        let denied = now < self.process(who).faults.denied_until;
        let refusal = rests_elsewhere.then_some("another history");
        let (answer, stored) = self.execute(key, &request, denied, refusal);
        self.time.log(|| {
            let (request, answer) = (trace::request(&request), trace::answer(&answer));
            format!("server: c{who}'s #{id}, {request}: {answer}")
        });
        if matches!(answer, Response::Read(Ok(Reading::Empty { .. }))) {
            self.candidates[who].found_empty_on.insert((life, id), history);
        }
        let is_of_now = self.life(who) == life;
        if let (Request::Write(write), Response::Written(Err(_))) = (&request, &answer)
            && !is_of_now
        {
            self.count_late_write(write.mark.write.nonce);
        }
        let acknowledged = !(stored && self.servers[key].lacks_its_replica(now));
        if stored {
            if let Request::Write(write) = &request
                && is_of_now
            {
                if write.mark.token.is_none() {
                    self.judge_create(who, write, before.as_ref());
                }
                if acknowledged {
                    self.candidates[who].applied(write.mark.write.number);
                }
            }
            self.stored(key);
            if is_marked && self.time.random.u8(..4) == 0 {
                self.time.log(|| "server: the marker of what it replaces".to_owned());
                self.servers[key].store_marker(now);
                self.stored(key);
            }
            if let Request::Release(Release { to: Some(to), .. }) = request {
                self.notify_successor(to);
            }
        }
        if let Request::NotifyStepDown(notice) = request {
            return self.deliver_hints(key, |_| Some(Hint::SteppedDown(notice)));
        }
        if !acknowledged {
            return; // the server ends the connection, and its backend waits no more
        }
        for after in self.time.passages(0.08) {
            let what = Inner::Response { id, answer: answer.clone(), from_server: true };
            self.time.after(after, SimEvent::In { who, life, what });
        }
    }

    /// What a server makes of a request. The second value: whether something was stored.
    pub(super) fn execute(
        &mut self,
        key: usize,
        request: &Request,
        denied: bool,
        refusal: Option<&str>,
    ) -> (Response, bool) {
        let writes = matches!(request, Request::Write(_) | Request::Release(_));
        let fails = |kind, why: &str| (failed(request, failure(kind, why)), false);
        if denied && writes {
            return fails(LockErrorKind::Denied, "permissions violation");
        }
        if let Some(why) = refusal {
            return fails(LockErrorKind::Conflict, why);
        }
        if writes && !self.time.calm && self.time.random.u8(..) < 3 {
            // As a cluster refuses a write while another one is in flight (10164).
            return fails(LockErrorKind::Conflict, "another write");
        }
        self.servers[key].apply(self.time.now, request)
    }

    /// Something was stored: delivers hints, and schedules its expiry.
    pub(super) fn stored(&mut self, key: usize) {
        let server = &self.servers[key];
        let Some(last) = server.last.clone() else { return };
        // A watch of a Lease does not report what a write replaced.
        let previous = last.previous.filter(|_| server.retention != Retention::Forever);
        let late = self.time.millis(0..250);
        let expires = last.expires.max(self.time.now);
        self.time.at(expires + late, SimEvent::Expire { key });
        self.deliver_hints(key, |coverage| match coverage {
            Coverage::None => None,
            Coverage::Partial => Some(Hint::Recheck),
            Coverage::Sampled | Coverage::Full => Some(Hint::Stored {
                record: last.record.clone(),
                previous,
                age: Some(Duration::from_millis(1)),
            }),
        });
    }

    /// What is stored may expire at another time than before.
    pub(super) fn expiry_changed(&mut self, key: usize) {
        if let Some(last) = &self.servers[key].last {
            let expires = last.expires.max(self.time.now);
            self.time.at(expires, SimEvent::Expire { key });
        }
    }

    pub(super) fn deliver_hints(&mut self, key: usize, hint: impl Fn(Coverage) -> Option<Hint>) {
        for who in self.receivers(key) {
            let Some(hint) = hint(self.candidates[who].setup.coverage) else { continue };
            self.checker.deliveries += 1;
            for after in self.time.passages(0.15) {
                self.later(who, after, Inner::Hint(hint.clone()));
            }
        }
    }

    /// Which candidates receive a hint. Of those whose hints are sampled it goes to one of each
    /// queue group: also one that is paused or cut off may be drawn. A process with further
    /// elections stays in its group for these while it receives all hints of this one.
    fn receivers(&mut self, key: usize) -> Vec<usize> {
        let stays = self.scenario.further_elections.is_some();
        let mut receivers = Vec::new();
        let mut groups = vec![Vec::new(); self.groups];
        for who in self.of_election(key) {
            let candidate = &self.candidates[who];
            let coverage = candidate.setup.coverage;
            let few = coverage == Coverage::Sampled;
            let all = !few || candidate.receives_all_from.is_some_and(|from| from <= self.time.now);
            if all && coverage != Coverage::None {
                receivers.push(who);
            }
            if few && (!all || stays) && candidate.machine.is_some() {
                groups[who % self.groups].push(who);
            }
        }
        for members in groups.iter().filter(|members| !members.is_empty()) {
            receivers.push(members[self.time.random.usize(..members.len())]);
        }
        receivers.sort_unstable();
        receivers
    }

    /// The server of an election, while it can be reached.
    pub(super) fn living_server(&mut self, key: usize) -> Option<&mut Server> {
        Some(&mut self.servers[key]).filter(|server| server.is_up(self.time.now))
    }

    pub(super) fn expire(&mut self, key: usize) {
        let now = self.time.now;
        let server = &mut self.servers[key];
        if !server.is_up(now) {
            return self.time.at(server.down_until, SimEvent::Expire { key });
        }
        if server.expire(now) {
            self.time.log(|| "server: expired".to_owned());
            self.stored(key);
        }
    }

    pub(super) fn admin_deletes(&mut self, key: usize) {
        if self.living_server(key).is_none() {
            return;
        }
        match self.time.random.u8(..4) {
            0 => self.servers[key].purge(self.time.now),
            _ => self.servers[key].delete(self.time.now),
        }
        match self.servers[key].last {
            Some(_) => self.stored(key),
            None => self.deliver_hints(key, |_| Some(Hint::Recheck)),
        }
    }

    pub(super) fn operator_evicts(&mut self, key: usize) {
        let now = self.time.now;
        let Some(server) = self.living_server(key) else { return };
        let (max_lease, frees) = (server.bucket_ttl, server.retention.frees());
        let last = server.last.as_ref();
        let eviction =
            last.and_then(|last| Release::evicting(&last.record, max_lease, frees, Duration::ZERO));
        if let Some(eviction) = eviction {
            let (_, stored) = server.apply(now, &Request::Release(eviction));
            if stored {
                self.time.log(|| "server: evicted".to_owned());
                self.stored(key);
            }
        }
    }

    /// A program that does not know this library stores an entry in that name.
    pub(super) fn stores_plainly(&mut self, key: usize, identity: &str) {
        let now = self.time.now;
        if let Some(server) = self.living_server(key) {
            let ttl = server.bucket_ttl;
            let entry = Entry { identity: identity.into(), mark: None, ttl, advertisement: None };
            server.store(now, Content::Held(entry), ttl);
            self.stored(key);
        }
    }
}
