//! A command that does not end when it is killed: it waits for a disk, and no signal ends such a wait.

use rustix::process::Signal;

use crate::root::{Frozen, is_root};
use crate::scene::Scene;

#[tokio::test]
async fn one_in_uninterruptible_sleep_holds_no_lease_for_ever() {
    let Some(disk) = is_root().then(Frozen::make).flatten() else { return };
    let scene = Scene::start().await;
    disk.freeze();
    let script =
        format!("echo up; exec dd if=/dev/zero of={}/out 2>/dev/null", disk.path().display());
    let mut first = scene.run("my_app", &[], &script);
    first.says("up").await;
    first.one_sleeps().await; // until then a signal ends it
    let mut second = scene.run("my_app", &[], "echo up; exec sleep 1000");
    first.signal(Signal::TERM);
    assert_eq!(first.exit_code().await, Some(1));
    let told = first.errors();
    assert!(told.contains("(dd) was killed, and is in uninterruptible sleep"), "{told}");
    second.says("up").await;
    disk.thaw();
    first.nothing_is_left().await;
}
