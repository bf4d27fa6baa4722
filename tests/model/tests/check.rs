//! Small elections, explored to the end.

use incumbent_model::{Bounds, Config, explore};

fn holds(config: Config) {
    let outcome = explore(config, Bounds { threads: 2, ..Bounds::default() });
    println!("{outcome}");
    assert!(outcome.broken.is_none(), "{}", outcome.broken.unwrap_or_default());
    assert!(outcome.complete);
}

#[test]
fn one_of_two_leads_whatever_fault_strikes() {
    holds(Config::equal("two campaigners, one fault", 2, 4, 1));
}
