//! Handovers, on every lock that carries roll calls.

use std::sync::Arc;

use incumbent::lock::LockErrorKind;
use incumbent::{Cause, Election, HandOverError, Leadership, Readiness, Successor};

use super::roll_call::answers;
use super::{Service, any_leads, appears, in_one_term, leads, leads_before, soon};

/// Whether the lock carries calls.
async fn carries_calls(leader: &Election) -> bool {
    match leader.roll_call(std::time::Duration::ZERO).await {
        Err(error) => error.kind() != LockErrorKind::Misconfigured,
        Ok(_) => true,
    }
}

/// Whether nobody could be asked, as it may be on a busy machine.
fn could_not_ask(refused: &HandOverError) -> bool {
    refused.to_string().starts_with("cannot ask who is ready: ")
}

/// Waits until the leader and all the others know each other, and answer.
async fn ready(leader: &Election, standbys: &[&Election]) {
    drop(leads_before(leader, standbys).await);
    answers(async |within| leader.roll_call(within).await, standbys.len() + 1).await;
}

/// The leader hands over to the first of these, which leads next. One that is too slow on a busy
/// machine is not among those that answer in time, or loses its turn: it gets another one, a few
/// times.
async fn moves(
    leader: &Election,
    standbys: &[&Election],
    hand_over: impl AsyncFn(&Leadership) -> Result<Arc<str>, HandOverError>,
) {
    let next = standbys[0];
    let all: Vec<&Election> = standbys.iter().copied().chain([leader]).collect();
    let mut found = Vec::new();
    for _ in 0..4 {
        ready(leader, standbys).await;
        let leadership = leads_before(leader, standbys).await;
        let outcome = soon("the handover", hand_over(&leadership)).await;
        found.push(outcome.as_ref().map_or_else(ToString::to_string, |to| to.to_string()));
        let Ok(to) = outcome else { continue };
        let cause = soon("the end", leadership.ended()).await.cause;
        drop(leadership);
        if matches!(cause, Cause::Expired { .. }) {
            continue;
        }
        assert_eq!(cause, Cause::HandedOver { to: Arc::clone(&to) });
        if &*to == next.identity() && any_leads(&all).await.0 == 0 {
            return;
        }
    }
    panic!("{} does not lead next: {found:?}", next.identity());
}

/// The named candidate leads next, whoever else stands by; among several the one with the highest
/// priority.
pub async fn the_candidate_that_was_handed_over_to_leads_next<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    if !carries_calls(&first).await {
        let hand_over = async |leadership: &Leadership| leadership.hand_over("third").await;
        let refused = in_one_term(&first, hand_over).await.expect_err("it carries no calls");
        return assert!(matches!(refused, HandOverError::Lock(_)), "{refused}");
    }
    let second = service.candidate("second").await.priority(200).start().unwrap();
    let third = service.candidate("third").await.start().unwrap();

    let to_third = async |leadership: &Leadership| leadership.hand_over("third").await;
    moves(&first, &[&third, &second], to_third).await;
    let to_any = async |_: &Leadership| third.hand_over(Successor::Any).await;
    moves(&third, &[&second, &first], to_any).await;
}

/// Nothing stops where nobody is ready, and one that stands aside leads only if it is named.
pub async fn a_handover_to_nobody_is_refused<S: Service>() {
    let service = S::start().await;
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    if !carries_calls(&first).await {
        return;
    }
    const REFUSED: &str = "no candidate that may lead next is ready: ";
    let refused = appears("the refusal", async || {
        let hand_over = async |leadership: &Leadership| leadership.hand_over("second").await;
        let refused = in_one_term(&first, hand_over).await.expect_err("nobody stands by");
        (!could_not_ask(&refused)).then(|| refused.to_string())
    });
    let none = format!("{REFUSED}none answered; see `incumbent election members`");
    assert_eq!(refused.await, none);

    let second = service.candidate("second").await.stand_aside(true).start().unwrap();
    ready(&first, &[&second]).await;
    // One that is too slow on a busy machine is not among those that answer.
    let refused = soon("one answers", async {
        loop {
            let leadership = leads_before(&first, &[&second]).await;
            let refused = leadership.hand_over(Successor::Any).await.unwrap_err();
            let answered = refused.to_string();
            if leadership.is_valid() && !could_not_ask(&refused) && answered != none {
                return answered;
            }
        }
    });
    let aside = format!("{REFUSED}1 answered, 0 of them sick and 1 standing aside");
    assert_eq!(refused.await, aside);

    let named = async |leadership: &Leadership| leadership.hand_over("second").await;
    moves(&first, &[&second], named).await;
    assert_eq!(second.watch().current().readiness, Readiness::Cordoned);
}

/// An operator moves the leader, and reads why it does not move.
pub async fn an_operator_moves_the_leader<S: Service>() {
    let service = S::start().await;
    let operator = incumbent::observe("my_app", service.operators_lock().await).unwrap();
    let first = service.candidate("first").await.start().unwrap();
    drop(leads(&first).await);
    if !carries_calls(&first).await {
        return;
    }
    ready(&first, &[]).await;
    let refused = soon("the refusal", async {
        loop {
            let leadership = leads(&first).await;
            let refused = operator.move_leader(Successor::Any).await.unwrap_err();
            let answered = !matches!(refused, HandOverError::NoAnswer) && !could_not_ask(&refused);
            if leadership.is_valid() && answered {
                return refused.to_string();
            }
        }
    })
    .await;
    assert!(refused.starts_with("no candidate that may lead next is ready"), "{refused}");

    let second = service.candidate("second").await.site("fra1").start().unwrap();
    ready(&first, &[&second]).await;
    let elsewhere = Successor::Site("ams3".into());
    soon("the refusal", operator.move_leader(elsewhere)).await.expect_err("it is elsewhere");
    let there = Successor::Site("fra1".into());
    let to_site = async |_: &Leadership| operator.move_leader(there.clone()).await;
    moves(&first, &[&second], to_site).await;
}
