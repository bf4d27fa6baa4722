//! Handovers, on every lock that carries roll calls.

use incumbent::lock::LockErrorKind;
use incumbent::{Cause, Election, HandOverError, Readiness, Successor};

use super::roll_call::answers;
use super::{Service, leads, lost, sees, soon};

/// Waits until this many candidates see the leader and answer. `false`: the lock carries no calls.
async fn ready(leader: &Election, standbys: &[&Election]) -> bool {
    match leader.roll_call(std::time::Duration::ZERO).await {
        Err(error) if error.kind() == LockErrorKind::Misconfigured => return false,
        _ => {}
    }
    for standby in standbys {
        sees(standby, leader.identity()).await;
    }
    answers(async |within| leader.roll_call(within).await, standbys.len() + 1).await;
    true
}

/// The named candidate leads next, whoever else stands by; among several the one with the highest
/// priority.
pub async fn the_candidate_that_was_handed_over_to_leads_next<S: Service>() {
    let service = S::start().await;
    let (first, mut changes) = service.candidate("first").await.start_with_changes().unwrap();
    let leadership = leads(&first).await;
    let second = service.candidate("second").await.priority(200).start().unwrap();
    let third = service.candidate("third").await.start().unwrap();
    if !ready(&first, &[&second, &third]).await {
        let refused = leadership.hand_over("third").await.expect_err("it carries no calls");
        return assert!(matches!(refused, HandOverError::Lock(_)), "{refused}");
    }

    let to = soon("the handover", leadership.hand_over("third")).await.expect("it is ready");
    assert_eq!(&*to, "third");
    drop(leadership);
    drop(leads(&third).await);
    assert_eq!(lost(&mut changes).await, Cause::HandedOver { to: "third".into() });

    assert!(ready(&third, &[&first, &second]).await);
    let to = soon("the handover", third.hand_over(Successor::Any)).await.expect("it is ready");
    assert_eq!(&*to, "second");
    drop(leads(&second).await);
}

/// Nothing stops where nobody is ready, and one that stands aside leads only if it is named.
pub async fn a_handover_to_nobody_is_refused<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    let leadership = leads(&first).await;
    if !ready(&first, &[]).await {
        return;
    }
    const REFUSED: &str = "no candidate that may lead next is ready: ";
    let refused = soon("the refusal", leadership.hand_over("second")).await.unwrap_err();
    let none = format!("{REFUSED}none answered; see `incumbent election members`");
    assert_eq!(refused.to_string(), none);

    let second = service.candidate("second").await.stand_aside(true).start().unwrap();
    assert!(ready(&first, &[&second]).await);
    let refused = soon("the refusal", leadership.hand_over(Successor::Any)).await.unwrap_err();
    let aside = format!("{REFUSED}1 answered, 0 of them sick and 1 standing aside");
    assert_eq!(refused.to_string(), aside);
    assert!(leadership.is_valid());

    soon("the handover", leadership.hand_over("second")).await.expect("it was named");
    drop(leadership);
    drop(leads(&second).await);
    assert_eq!(second.watch().current().readiness, Readiness::Cordoned);
}

/// An operator moves the leader, and reads why it does not move.
pub async fn an_operator_moves_the_leader<S: Service>() {
    let service = S::start().await;
    let operator = incumbent::observe("my_app", service.operators_lock().await).unwrap();
    let first = service.candidate("first").await.start().unwrap();
    let leadership = leads(&first).await;
    if !ready(&first, &[]).await {
        return;
    }
    let refused = soon("the refusal", operator.move_leader(Successor::Any)).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.starts_with("no candidate that may lead next is ready"), "{refused}");
    assert!(leadership.is_valid());

    let second = service.candidate("second").await.site("fra1").start().unwrap();
    assert!(ready(&first, &[&second]).await);
    let elsewhere = Successor::Site("ams3".into());
    soon("the refusal", operator.move_leader(elsewhere)).await.expect_err("it is elsewhere");
    let there = Successor::Site("fra1".into());
    let to = soon("the move", operator.move_leader(there)).await.expect("it is ready");
    assert_eq!(&*to, "second");
    drop(leadership);
    drop(leads(&second).await);
}
