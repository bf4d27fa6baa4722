//! What hints are good for.

use std::time::Duration;

use incumbent::lock::{Content, Hint, HintSink, Lock, Nonce, Release, Tombstone};
use tokio::sync::mpsc;

use crate::conformance::{LEASE, TIMEOUT, first_write, soon};
use crate::env::{TestEnv, read, write};

/// A standby that hears of a release writes over it at once: a read first would cost the former
/// holder's lead.
#[tokio::test]
async fn a_standby_writes_over_what_a_hint_has_shown() {
    let env = TestEnv::<1>::new(LEASE).await;
    let (holder, standby) = (env.etcd_lock(), env.etcd_lock());
    let (sender, mut hints) = mpsc::unbounded_channel();
    let _subscription =
        standby.subscribe("my_app", HintSink::new(move |hint| drop(sender.send(hint))));
    let covered = async { while !matches!(hints.recv().await, Some(Hint::Coverage(_))) {} };
    soon("a watch", covered).await;
    let held = write(&holder, "my_app", first_write(LEASE, 1, None, None)).await.unwrap();
    read(&standby, "my_app").await;
    let (by, left, timeout) = (Nonce(1), Duration::ZERO, TIMEOUT);
    let release =
        Release { expected: held, by, left, cause: "resigned", to: None, pause: None, timeout };
    holder.release("my_app", release).await.unwrap();
    let released = soon("the release", async {
        loop {
            if let Some(Hint::Stored { record, .. }) = hints.recv().await
                && matches!(record.content, Content::Vacant(Tombstone::Released { .. }))
            {
                return record.revision;
            }
        }
    })
    .await;
    let next = write(&standby, "my_app", first_write(LEASE, 2, Some(released), None))
        .await
        .expect("no read");
    assert!(next > released);
}
