//! A value whose changes tasks can wait for.

use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

/// A value whose changes tasks can wait for, level-triggered.
///
/// Takes half the memory of one of tokio's watch channels, which are made for many readers: there
/// is one of these for each election.
pub(crate) struct Watched<T>(Arc<Inner<T>>);

struct Inner<T> {
    value: RwLock<Versioned<T>>,
    changed: Notify,
}

/// A value, with the number of its changes.
pub(crate) struct Versioned<T> {
    value: T,
    version: u64,
}

impl<T> std::ops::Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The value, which cannot change meanwhile.
pub(crate) type Borrowed<'w, T> = RwLockReadGuard<'w, Versioned<T>>;

impl<T> Watched<T> {
    pub fn new(value: T) -> Self {
        let value = RwLock::new(Versioned { value, version: 0 });
        Self(Arc::new(Inner { value, changed: Notify::new() }))
    }

    pub fn borrow(&self) -> Borrowed<'_, T> {
        self.0.borrow()
    }

    /// Changes the value, and wakes those who wait for that.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Wakes those who wait if `modify` returns whether what it changed is of interest to them.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        if modify(&mut value.value) {
            value.version += 1;
            drop(value);
            self.0.changed.notify_waiters();
        }
    }

    /// A reader that has seen the value as it is.
    pub fn subscribe(&self) -> Reader<T> {
        Reader { of: Arc::clone(&self.0), seen: self.borrow().version }
    }
}

impl<T> Inner<T> {
    fn borrow(&self) -> Borrowed<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the value is another version than the one seen, and returns the version.
    async fn changed_since(&self, seen: u64) -> u64 {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable(); // before the look, so that no change is missed
            let version = self.borrow().version;
            if version != seen {
                return version;
            }
            changed.await;
        }
    }
}

/// Waits for changes of a [`Watched`].
pub(crate) struct Reader<T> {
    of: Arc<Inner<T>>,
    seen: u64,
}

impl<T> Reader<T> {
    pub fn borrow(&self) -> Borrowed<'_, T> {
        self.of.borrow()
    }

    /// The value, which counts as seen.
    pub fn borrow_and_update(&mut self) -> Borrowed<'_, T> {
        let value = self.of.borrow();
        self.seen = value.version;
        value
    }

    /// Has the next wait for a change end at once.
    pub fn mark_changed(&mut self) {
        self.seen = self.seen.wrapping_sub(1);
    }

    /// Waits until the value has changed since it was last seen, and counts it as seen. Cancel
    /// safe.
    pub async fn changed(&mut self) {
        self.seen = self.of.changed_since(self.seen).await;
    }

    /// Waits until the value is as wanted, also if it is at once. Cancel safe.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Borrowed<'_, T> {
        loop {
            let seen = {
                let value = self.of.borrow();
                self.seen = value.version;
                if wanted(&value) {
                    return value;
                }
                value.version
            };
            self.of.changed_since(seen).await;
        }
    }
}

partial_debug!(Watched<T>, self);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn changes_wake_those_who_wait_and_are_seen_once() {
        let watched = Watched::new(1);
        let (mut reader, mut late) = (watched.subscribe(), watched.subscribe());
        assert!(reader.changed().now_or_never().is_none());
        assert_eq!(**reader.wait_for(|value| *value == 1).await, 1);
        let waits = tokio::spawn(async move { **late.wait_for(|value| *value == 3).await });
        tokio::task::yield_now().await;
        watched.send_modify(|value| *value = 2);
        reader.changed().await;
        assert!(reader.changed().now_or_never().is_none());
        watched.send_if_modified(|value| {
            *value = 3;
            false // of no interest
        });
        assert!(reader.changed().now_or_never().is_none());
        assert_eq!(**reader.borrow(), 3);
        watched.send_modify(|_| {});
        assert_eq!(**reader.borrow_and_update(), 3);
        assert!(reader.changed().now_or_never().is_none());
        reader.mark_changed();
        reader.changed().await;
        assert_eq!(waits.await.ok(), Some(3));
    }
}
