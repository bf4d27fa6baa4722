//! Who watches for all subscribers of an election, where its runtime ends.

use std::time::Duration;

use crate::heard::{hints_go_on, one_task_tells};
use crate::scene::{InLease, Kind, Scene, timing};

const LEASE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_go_on_when_the_runtime_of_the_first_subscriber_ends() {
    let scene = Scene::<InLease>::new(LEASE).await;
    let lock = InLease::lock(&scene.cluster().await, timing(LEASE));
    let writer = InLease::lock(&scene.cluster().await, timing(LEASE));
    hints_go_on(lock, writer, ["my_app", "my_app"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_tells_everything() {
    let scene = Scene::<InLease>::new(LEASE).await;
    let lock = InLease::lock(&scene.cluster().await, timing(LEASE));
    one_task_tells(lock, &["my_app", "my_app", "my_app"]).await;
}
