//! A command that SIGKILL does not end, because it waits for a disk.

use rustix::process::Signal;

use crate::env::TestEnv;
use crate::root::{FreezableDisk, is_root};

#[tokio::test]
async fn command_in_uninterruptible_sleep_does_not_hold_the_lease() {
    let Some(disk) = is_root().then(FreezableDisk::create).flatten() else { return };
    let env = TestEnv::start().await;
    disk.freeze();
    let script =
        format!("echo up; exec dd if=/dev/zero of={}/out 2>/dev/null", disk.path().display());
    let mut first = env.run("my_app", &[], &script);
    first.wait_for_line("up").await;
    first.wait_for_disk_sleep().await; // before this state a signal ends it
    let mut second = env.run("my_app", &[], "echo up; exec sleep 1000");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(1));
    let stderr = first.stderr();
    assert!(stderr.contains("(dd) was killed, and is in uninterruptible sleep"), "{stderr}");
    second.wait_for_line("up").await;
    disk.thaw();
    first.wait_for_no_descendants().await;
}
