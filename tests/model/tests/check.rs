//! Small elections, explored to their end or to a depth that a broken rule shows at.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;

use incumbent_model::{Bounds, explore, small};

#[test]
fn one_leads_whatever_the_schedule() {
    for (config, depth) in small() {
        let depth = depth.and_then(NonZeroUsize::new);
        // On one thread a bound on the depth is exact.
        let threads = if depth.is_some() { 1 } else { 2 };
        let outcome = explore(config, Bounds { depth, threads, ..Bounds::default() });
        println!("{outcome}");
        assert!(
            outcome.broken.is_none(),
            "{outcome}\n{}",
            outcome.broken.as_deref().unwrap_or_default()
        );
        assert!(outcome.complete);
        assert!(outcome.sights.terms.load(Ordering::Relaxed) > 1000, "too few terms: {outcome}");
    }
}
