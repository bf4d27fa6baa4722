//! A guard is bound by the clock: its work ends with the term, whatever becomes of the campaign
//! that won it.

use std::sync::Arc;

use incumbent::{Cause, Leadership};
use tokio::sync::oneshot;

use super::{Process, Service, leads, leads_before, soon};

/// Work on this runtime, under a term of a campaign on another: how it ends.
async fn begin_work(
    leadership: Leadership,
) -> (oneshot::Receiver<()>, tokio::task::JoinHandle<Option<Cause>>) {
    let (held, dropped) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let work = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        leadership.run(work).await.err().map(|loss| loss.cause)
    });
    (dropped, work)
}

/// The runtime of a campaign is shut down while work of its term runs on another one.
pub async fn work_elsewhere_ends_in_time_when_its_campaign_is_gone<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start(&service, "first").await;
    drop(leads(&first.election).await);
    let second = service.candidate("second").await.start().unwrap();
    let (mut dropped, work) = begin_work(leads_before(&first.election, &[&second]).await).await;
    first.crash();
    let _leadership = leads(&second).await;
    assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed), "two work at once");
    let cause = work.await.unwrap();
    assert!(matches!(cause, Some(Cause::Expired { .. })), "{cause:?}");
}

/// The runtime of a campaign is blocked, as by a log subscriber, while work of its term runs on
/// another one.
pub async fn work_elsewhere_ends_in_time_when_its_campaign_is_blocked<S: Service>() {
    let service = Arc::new(S::start().await);
    let first = Process::start(&service, "first").await;
    drop(leads(&first.election).await);
    let second = service.candidate("second").await.start().unwrap();
    let leadership = Arc::new(leads_before(&first.election, &[&second]).await);
    let watched = Arc::clone(&leadership);
    let watch = tokio::spawn(async move { watched.ended().await });
    let worked = Arc::clone(&leadership);
    let (held, mut dropped) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let work = async move {
            let _held = held;
            std::future::pending::<()>().await;
        };
        worked.run(work).await
    });
    let blocked = first.block();
    let _leadership = leads(&second).await;
    assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed), "two work at once");
    let loss = soon("the work ends", work).await.unwrap().unwrap_err();
    assert_eq!(soon("the watch ends", watch).await.unwrap(), loss, "every holder is told the same");
    assert!(matches!(loss.cause, Cause::Expired { .. }) && !leadership.is_valid());
    drop(blocked);
}
