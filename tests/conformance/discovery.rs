//! Finding the leader.

use incumbent::{Advertisement, Change, Changes, ElectionBuilder, Leader, observe};

use super::{Service, change, leads, sees};

/// Waits until the leader is `identity`.
async fn leader(changes: &mut Changes<incumbent::Change>, identity: &str) -> Leader {
    change(changes, "who leads is told", |change| match change {
        Change::Leader(Some(leader)) if &*leader.identity == identity => Some(leader.clone()),
        _ => None,
    })
    .await
}

/// Candidates and observers read the leader's address, also when it has changed, and after a
/// takeover.
pub async fn every_candidate_and_observer_sees_the_advertisement<S: Service>() {
    let service = S::start().await;
    let observer = observe("my_app", service.lock().await).unwrap();
    let mut observed = observer.changes();
    let first = Advertisement::new("10.0.0.1:50051").with("zone", "größer");
    let second = Advertisement::new("https://c2.example.net");
    let advertising =
        |builder: ElectionBuilder, said: &Advertisement| builder.advertise(said.clone()).start();

    let leading = advertising(service.candidate("first").await, &first).unwrap();
    drop(leads(&leading).await);
    assert_eq!(leading.leader().unwrap().advertisement.as_deref(), Some(&first));
    let stands = advertising(service.candidate("second").await, &second).unwrap();
    sees(&stands, "first").await;
    for seen in [leader(&mut observed, "first").await, stands.leader().unwrap()] {
        assert_eq!((seen.advertisement.as_deref(), seen.is_me), (Some(&first), false));
    }
    let fresh = observer.fresh_leader().expect("it renews");
    assert_eq!(fresh.advertisement.as_deref(), Some(&first));
    assert!(observer.leader_age().is_some_and(|age| age < fresh.lease));

    let moved = Advertisement::new("10.0.0.1:50052");
    leading.advertise(moved.clone()).unwrap();
    assert!(leading.advertise("here there").is_err());
    let seen = leader(&mut observed, "first").await;
    assert_eq!(seen.advertisement.as_deref(), Some(&moved));
    assert_eq!(service.holder("my_app").await.as_deref(), Some("first"));

    leading.stop().await;
    let _leadership = leads(&stands).await;
    let seen = leader(&mut observed, "second").await;
    assert_eq!(seen.advertisement.as_deref(), Some(&second));
    assert_eq!(service.holder("my_app").await.as_deref(), Some("second"));
}
