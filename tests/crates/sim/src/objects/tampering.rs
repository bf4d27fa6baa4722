//! Changes to the object by other programs.

use std::time::Duration;

use incumbent::lock::{Record, Release, Request, Revision};

use super::requests::body_of;
use super::store::{Body, Said, Store};
use crate::world::{SimEvent, World};

impl World {
    /// The store, while it can be reached.
    fn living_store(&mut self) -> Option<&mut Store> {
        let (now, up) = (self.time.now, self.servers[0].is_up(self.time.now));
        let store = self.store.as_mut().filter(|_| up)?;
        store.touched = now;
        Some(store)
    }

    pub(crate) fn store_is_busy(&mut self, status: u16, after: Option<Duration>, lasts: Duration) {
        let until = self.time.now + lasts;
        if let Some(store) = &mut self.store {
            store.busy = (until, status, after);
        }
    }

    pub(crate) fn object_is_deleted(&mut self) {
        if let Some(store) = self.living_store() {
            store.delete();
        }
    }

    /// Overwritten with another name; `numbered`: and with a number that follows the last one.
    pub(crate) fn object_is_overwritten(&mut self, numbered: bool) {
        let wall = Store::wall(self.time.now, 0);
        if let Some(store) = self.living_store() {
            let number = if numbered { store.last_number() } else { 0 };
            let expiry = wall + store.terms.longest;
            store.overwrite(Body { number, expiry, said: Said::Named("admin".into()) });
        }
    }

    /// The leader is evicted, as an operator does.
    pub(crate) fn object_is_evicted(&mut self) {
        let wall = Store::wall(self.time.now, 0);
        let Some(store) = self.living_store() else { return };
        let Some(object) = store.object.clone() else { return };
        let Some(content) = object.body.content(store.terms, wall) else { return };
        let record = Record { revision: Revision(0), content };
        let eviction = Release::evicting(&record, store.terms.longest, false, Duration::ZERO);
        let Some(eviction) = eviction.map(Request::Release) else { return };
        let number = (object.body.number + 1).max(wall.as_millis() as u64);
        if let Some(body) = body_of(&eviction, number, store.terms, wall) {
            store.put(Some(object.version), &body);
        }
    }

    pub(crate) fn object_is_spoiled(&mut self, for_how_long: Duration, restored: bool) {
        let Some(store) = self.living_store() else { return };
        store.overwrite(Body { number: 0, expiry: Duration::ZERO, said: Said::Junk });
        self.time.after(for_how_long, SimEvent::Mended { restored });
    }

    /// Junk is deleted, or the content before it is put back.
    pub(crate) fn object_is_mended(&mut self, restored: bool) {
        let (now, fleet) = (self.time.now, &self.candidates);
        if let Some(store) = self.store.as_mut().filter(|store| store.is_junk()) {
            store.touched = now;
            let unaware = |version, to| Self::unaware(fleet, version, to);
            if !(restored && store.set_back(now, 0, unaware)) {
                store.delete();
            }
        }
        self.time.log(|| "the object is mended".to_owned());
    }

    pub(crate) fn object_is_set_back(&mut self, by: u8) {
        let (now, fleet) = (self.time.now, &self.candidates);
        if let Some(store) = self.store.as_mut().filter(|_| self.servers[0].is_up(now)) {
            store.touched = now;
            store.set_back(now, usize::from(by), |version, to| Self::unaware(fleet, version, to));
        }
    }

    pub(crate) fn store_recovers(&mut self) {
        self.store_is_busy(0, None, Duration::ZERO);
        self.object_is_mended(false);
    }
}
