//! The replay window: which datagrams of one start of a member were received.

/// The size of the window: how far a late datagram may lag behind.
const WORDS: usize = 16;
const WIDTH: u64 = 64 * WORDS as u64;

/// Accepts each number once, and no number older than the window.
#[derive(Debug, Clone)]
pub(super) struct Window {
    newest: u64,
    /// One bit per number of the window, in a ring.
    taken: [u64; WORDS],
}

impl Window {
    /// Creates a window that accepts no number up to `first`.
    pub fn after(first: u64) -> Self {
        Self { newest: first, taken: [u64::MAX; WORDS] }
    }

    /// Marks the number as received, and returns whether it is new.
    pub fn take(&mut self, number: u64) -> bool {
        if number > self.newest {
            let from = self.newest.max(number.saturating_sub(WIDTH));
            for passed in from..number {
                self.set(passed.wrapping_add(1), false);
            }
            self.newest = number;
        } else if self.newest - number >= WIDTH {
            return false;
        }
        self.set(number, true)
    }

    /// Sets a number's bit. Returns whether the bit has changed.
    fn set(&mut self, number: u64, taken: bool) -> bool {
        let at = usize::try_from(number / 64 % WORDS as u64).unwrap_or_default();
        let Some(word) = self.taken.get_mut(at) else { return false };
        let bit = 1 << (number % 64);
        let was = *word & bit != 0;
        *word = if taken { *word | bit } else { *word & !bit };
        was != taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_taken_once() {
        let mut random = fastrand::Rng::with_seed(7);
        let first = 1000;
        let (mut window, mut taken) = (Window::after(first), BTreeSet::new());
        let mut newest = first;
        for _ in 0..100_000 {
            let number = match random.u8(0..20) {
                0 => newest + random.u64(0..3000),
                _ => (newest + 3).saturating_sub(random.u64(0..1500)),
            };
            let new = number > first && number + WIDTH > newest && !taken.contains(&number);
            assert_eq!(window.take(number), new, "{number} after {newest}");
            if new {
                taken.insert(number);
                newest = newest.max(number);
            }
        }
        assert!(window.take(u64::MAX) && !window.take(u64::MAX));
    }
}
