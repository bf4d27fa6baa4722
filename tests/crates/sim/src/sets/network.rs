//! What lies between the members and the servers of the shards.

use std::time::Duration;

use incumbent::lock::{Content, Entry, Hint, LockErrorKind, Request};

use super::world::{Inner, SetEvent, SetWorld};
use crate::server::{Keeping, failed, failure};
use crate::trace;

impl SetWorld {
    pub(super) fn send(&mut self, who: usize, shard: u32, id: u64, request: Request) {
        let gives_up = matches!(request, Request::Release(_) | Request::NotifyStepDown(_));
        self.checkers[shard as usize].request(who, self.now, gives_up);
        let member = &mut self.members[who];
        let (local, life) = (member.clock.local(self.now), member.life);
        let cut = self.now < member.faults.cut_out_until;
        let knows_cut = member.faults.knows_cut;
        let Some(seat) = member.seat(shard) else { return };
        seat.request = Some(id);
        let timeout = match &request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => {
                seat.sent.insert(write.mark.write.number, local);
                write.timeout
            }
            Request::Release(release) => release.timeout,
            Request::NotifyStepDown(_) => Duration::from_micros(200),
        };
        let lost = |answer| Inner::Response { shard, id, answer, from_server: false };
        if cut && knows_cut {
            let failure = failure(LockErrorKind::Unavailable, "not connected");
            let after = Duration::from_micros(self.random.u64(1..2000));
            return self.later(after, who, lost(failed(&request, failure)));
        }
        let timed_out = failure(LockErrorKind::OutcomeUnknown, "timed out");
        self.later(timeout, who, lost(failed(&request, timed_out)));
        for _ in 0..self.copies() {
            if let (false, Some(after)) = (cut, self.passage(0.05)) {
                let request = request.clone();
                self.after(after, SetEvent::Request { who, life, shard, id, request });
            }
        }
    }

    pub(super) fn serve(&mut self, who: usize, life: u32, shard: u32, id: u64, request: Request) {
        let server = &mut self.servers[shard as usize];
        if !server.is_up(self.now) {
            return;
        }
        let denied = self.now < self.members[who].faults.denied_until;
        let writes = matches!(request, Request::Write(_) | Request::Release(_));
        let (answer, stored) = if denied && writes {
            let failure = failure(LockErrorKind::Denied, "permissions violation");
            (failed(&request, failure), false)
        } else if writes && !self.calm && self.random.u8(..) < 3 {
            (failed(&request, failure(LockErrorKind::Conflict, "another write")), false)
        } else {
            server.apply(self.now, &request)
        };
        self.log(|| {
            let (request, answer) = (trace::request(&request), trace::answer(&answer));
            format!("server {shard}: m{who}'s #{id}, {request}: {answer}")
        });
        if stored {
            if let Request::Write(write) = &request
                && self.members[who].life == life
                && let Some(seat) = self.members[who].seat(shard)
            {
                let sent = seat.sent.get(&write.mark.write.number).copied();
                seat.entitled_from = seat.entitled_from.max(sent);
            }
            self.stored(shard);
        }
        if let Request::NotifyStepDown(notice) = request {
            return self.deliver(shard, &Hint::SteppedDown(notice));
        }
        for _ in 0..self.copies() {
            if let Some(after) = self.passage(0.08) {
                let answer = answer.clone();
                let what = Inner::Response { shard, id, answer, from_server: true };
                self.after(after, SetEvent::In { who, life, what });
            }
        }
    }

    /// Something was stored: delivers hints, and schedules its expiry.
    pub(super) fn stored(&mut self, shard: u32) {
        let server = &self.servers[shard as usize];
        let Some(last) = server.last.clone() else { return };
        let previous = last.previous.filter(|_| server.keeping != Keeping::Forever);
        let late = self.millis(0..250);
        self.after(last.expires.saturating_sub(self.now) + late, SetEvent::Expire { shard });
        let age = Some(Duration::from_millis(1));
        self.deliver(shard, &Hint::Stored { record: last.record, previous, age });
    }

    pub(super) fn deliver(&mut self, shard: u32, hint: &Hint) {
        for who in 0..self.members.len() {
            for _ in 0..self.copies() {
                if let Some(after) = self.passage(0.15) {
                    self.later(after, who, Inner::Hint { shard, hint: hint.clone() });
                }
            }
        }
    }

    pub(super) fn expire(&mut self, shard: u32) {
        let server = &mut self.servers[shard as usize];
        if !server.is_up(self.now) {
            let after = server.down_until - self.now;
            return self.after(after, SetEvent::Expire { shard });
        }
        if server.expire(self.now) {
            self.stored(shard);
        }
    }

    /// An administrator deletes the entry of a shard.
    pub(super) fn admin_deletes(&mut self, shard: u32) {
        let server = &mut self.servers[shard as usize];
        if !server.is_up(self.now) {
            return;
        }
        match self.random.u8(..4) {
            0 => server.purge(self.now),
            _ => server.delete(self.now),
        }
        match server.last {
            Some(_) => self.stored(shard),
            None => self.deliver(shard, &Hint::Recheck),
        }
    }

    /// Another program stores an entry.
    pub(super) fn admin_stores(&mut self, shard: u32) {
        let server = &mut self.servers[shard as usize];
        if server.is_up(self.now) {
            let ttl = server.bucket_ttl;
            let entry = Entry { identity: "junk".into(), mark: None, ttl, advertisement: None };
            server.store(self.now, Content::Held(entry), ttl);
            self.stored(shard);
        }
    }
}
