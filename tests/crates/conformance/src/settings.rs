//! Starting and stopping.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use incumbent::{StartError, new_election};

use super::{LEASE, Service, leads};

/// A requested stop is carried out even if its caller does not wait for it (google/trillian#3789,
/// kubernetes#112023).
pub async fn stop_continues_when_its_caller_is_cancelled<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    let second = service.candidate("second").await.start().unwrap();
    let _ = first.stop().now_or_never(); // the caller gives up at once
    let _leadership = leads(&second).await;
}

/// What cannot work is refused at the start, with the numbers, and nothing is started.
pub async fn invalid_settings_are_refused_under_the_names_the_user_knows<S: Service>() {
    let service = S::start().await;
    let lock = service.lock().await;
    let refused = |builder: incumbent::ElectionBuilder| builder.start().unwrap_err().to_string();
    let new = || new_election("my_app", Arc::clone(&lock)).identity("only").lease(LEASE);
    assert_eq!(
        refused(new().lease(Duration::from_millis(199))),
        "a lease of 199ms is below the minimum of 200ms"
    );
    let least = lock.capabilities().min_lease;
    if least > Duration::from_millis(250) {
        assert_eq!(
            refused(new().lease(Duration::from_millis(250))),
            format!("a lease of 250ms is too short for this lock: give it {least:?} or more")
        );
    }
    assert_eq!(
        refused(new().renewal(Duration::from_millis(900))),
        "a renewal every 900ms comes too late: the lease less drift and grace is 829.333334ms"
    );
    assert_eq!(
        refused(new().takeover_delay(Duration::from_secs(9999))),
        "a takeover_delay of 9999s is above the maximum of 3600s"
    );
    assert_eq!(refused(new().identity("")), "\"\" cannot be an identity: it is empty");
    assert_eq!(
        refused(new().identity("two\nlines")),
        "\"two\\nlines\" cannot be an identity: it has a control character"
    );
    assert_eq!(
        refused(new().advertise("here there")),
        "this cannot be advertised: the address has a blank or a control character"
    );
    let unnamed = new_election("", Arc::clone(&lock)).start();
    assert!(matches!(unnamed, Err(StartError::Name { .. })));
    assert_eq!(service.holder("my_app").await, None);
}
