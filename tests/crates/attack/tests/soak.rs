//! The long plans, small and short. `make soak` runs them as they are meant.

use std::process::Command;

/// Runs a plan; answers what it printed.
fn attack(words: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_incumbent-attack"))
        .args(words.split(' '))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{printed}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("0 broken promises, 0 failures"));
    printed
}

#[test]
fn a_fleet_rides_out_restarts_of_each_server() {
    let printed = attack("soak --elections 30 --candidates 4 --ttl 10 --minutes 0 --quiet 2");
    assert!(printed.contains("3 restarts, "));
}

fn set(store: &str) {
    let size = "--shards 16 --members 5 --lease 2 --minutes 0 --quiet 1";
    let printed = attack(&format!("sets --store {store} {size}"));
    for kind in ["killed", "stopped", "paused", "partitioned", "added"] {
        assert!(printed.contains(kind), "each kind of fault comes, {kind} too");
    }
    assert!(!printed.contains("\n0 ticks"));
}

#[test]
fn a_set_on_nats_rides_out_what_happens_to_its_members() {
    set("nats");
}

#[test]
fn a_set_on_postgres_rides_out_what_happens_to_its_members() {
    set("postgres");
}
