//! The example checks itself.

use std::process::Command;

#[test]
fn every_message_is_handled_and_no_former_leader_writes() {
    let program = env!("CARGO_BIN_EXE_sharded_worker");
    let status = Command::new(program).args(["--messages", "320", "--lease", "2"]).status();
    assert!(status.expect("the example").success());
}
