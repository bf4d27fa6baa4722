//! The most telling faults, once each. `make chaos` runs them all, for as long as one likes.

use std::process::Command;

/// Runs the harness on these faults; answers what it printed.
fn attack(seed: &str, options: &[&str], faults: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_incumbent-attack"))
        .args(["chaos", "--seed", seed])
        .args(options)
        .args(faults.iter().flat_map(|fault| ["--fault", fault]))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{printed}\n{complaint}", output.status);
    for fault in faults {
        assert!(printed.contains(fault), "{fault} is neither run nor told as not run:\n{printed}");
    }
    printed
}

/// In network namespaces where they are allowed.
#[test]
fn at_most_one_leads_under_cuts_and_kills() {
    let faults = [
        "leader with a minority",
        "key deleted, leader paused",
        "stream leader killed",
        "leader terminated",
    ];
    attack("1", &[], &faults);
}

/// Where network namespaces are not allowed, the rest still runs, and what does not is reported.
#[test]
fn at_most_one_leads_on_the_loopback_interface() {
    let faults = ["requests lost", "leader killed", "key deleted, leader alone"];
    let printed = attack("2", &["--loopback"], &faults);
    assert!(printed.contains("network: the loopback interface"), "{printed}");
    let printed = attack("3", &["--loopback"], &["stream leader alone"]);
    let line = printed.lines().find(|line| line.starts_with("stream leader alone"));
    assert!(line.is_some_and(|line| line.contains("not run: no network namespaces")), "{printed}");
}
