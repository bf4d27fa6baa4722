//! Which datagrams of one start of a member have been taken.

/// How far back a datagram may be that comes late.
const WORDS: usize = 16;
const WIDTH: u64 = 64 * WORDS as u64;

/// Takes each number once, and none that is older than those that it remembers.
#[derive(Debug, Clone)]
pub(super) struct Window {
    greatest: u64,
    /// A bit for each of the last numbers, in a ring.
    taken: [u64; WORDS],
}

impl Window {
    /// One that takes nothing up to `first`.
    pub fn after(first: u64) -> Self {
        Self { greatest: first, taken: [u64::MAX; WORDS] }
    }

    /// Whether the number is new.
    pub fn take(&mut self, number: u64) -> bool {
        if number > self.greatest {
            let from = self.greatest.max(number.saturating_sub(WIDTH));
            for passed in from..number {
                self.set(passed.wrapping_add(1), false);
            }
            self.greatest = number;
        } else if self.greatest - number >= WIDTH {
            return false;
        }
        self.set(number, true)
    }

    /// Sets a number's bit. Answers whether it has changed.
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
        let mut greatest = first;
        for _ in 0..100_000 {
            let number = match random.u8(0..20) {
                0 => greatest + random.u64(0..3000),
                _ => (greatest + 3).saturating_sub(random.u64(0..1500)),
            };
            let new = number > first && number + WIDTH > greatest && !taken.contains(&number);
            assert_eq!(window.take(number), new, "{number} after {greatest}");
            if new {
                taken.insert(number);
                greatest = greatest.max(number);
            }
        }
        assert!(window.take(u64::MAX) && !window.take(u64::MAX));
    }
}
