//! Roll calls: who takes part.

use std::time::Duration;

use incumbent::lock::{LockError, LockErrorKind};
use incumbent::{CandidateInfo, Role, observe};

use super::{Service, appears, is_passing, leads, leads_before, soon};

/// Enough for the way, and short enough to ask again.
const WITHIN: Duration = Duration::from_millis(500);

/// Waits until this many answer: hints of a candidate may begin after it leads.
pub(super) async fn answers(
    call: impl AsyncFn(Duration) -> Result<Vec<CandidateInfo>, LockError>,
    count: usize,
) -> Vec<CandidateInfo> {
    soon(&format!("{count} answer"), async {
        loop {
            let mut found = match call(WITHIN).await {
                Ok(found) => found,
                Err(error) => {
                    assert!(is_passing(error.kind()), "a roll call: {error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            };
            if found.len() == count {
                found.sort_by_key(|info| info.identity.clone());
                return found;
            }
        }
    })
    .await
}

/// What a call came to. `None`: it failed as one may on a busy machine.
fn answered<T>(called: Result<T, LockError>) -> Option<Result<T, LockError>> {
    Some(called).filter(|called| !called.as_ref().is_err_and(|error| is_passing(error.kind())))
}

/// Every candidate answers, and no observer; where the lock carries no calls, that is the error.
pub async fn every_candidate_answers_a_roll_call<S: Service>() {
    let service = S::start().await;
    let observer = observe("my_app", service.lock().await).unwrap();
    let first = service.candidate("first").await.priority(7).start().unwrap();
    drop(leads(&first).await);
    let called = appears("an answer of the lock", async || {
        answered(observer.roll_call(Duration::ZERO).await)
    });
    if let Err(error) = called.await {
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("carries no roll calls"), "{error}");
        return;
    }
    let second = service.candidate("second").await.start().unwrap();
    let (token, found) = soon("both answer in one term", async {
        loop {
            let leadership = leads_before(&first, &[&second]).await;
            let found = answers(async |within| observer.roll_call(within).await, 2).await;
            if leadership.is_valid() {
                return (leadership.token(), found);
            }
        }
    })
    .await;
    let seen = |info: &CandidateInfo| (info.identity.to_string(), info.role, info.priority);
    let expected = [("first".to_owned(), Role::Leader, 7), ("second".to_owned(), Role::Standby, 0)];
    assert_eq!([seen(&found[0]), seen(&found[1])], expected);
    assert_ne!(found[0].nonce, found[1].nonce);
    for info in &found {
        assert_eq!(info.leader.as_deref(), Some("first"));
        assert_eq!(info.token, Some(token));
        assert_eq!(&*info.version, env!("CARGO_PKG_VERSION"));
        assert!(info.since_unix_ms > 1_600_000_000_000, "{info:?}");
    }

    second.stop().await;
    assert_eq!(
        &*answers(async |within| observer.roll_call(within).await, 1).await[0].identity,
        "first"
    );
    let itself =
        appears("a candidate may call too", async || answered(first.roll_call(WITHIN).await));
    let itself = itself.await.expect("a candidate may call too");
    assert!(itself.len() <= 1, "{itself:?}");
}
