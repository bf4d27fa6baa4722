//! Callbacks of the user.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tracing::error;

use crate::election::leadership::Leadership;
use crate::election::loss::{DrainNotice, Loss};
use crate::election::shared::Shared;
use crate::election::watch::StatusWatch;
use crate::protocol::{Leader, State};

/// A callback of the user's.
pub(crate) type Callback<T> = Arc<dyn Fn(T) -> BoxFuture<'static, ()> + Send + Sync>;

/// User callbacks, each run in a task of its own.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub won: Option<Callback<Leadership>>,
    pub lost: Option<Callback<Loss>>,
    pub drain: Option<Callback<DrainNotice>>,
    pub campaign: Option<Callback<State>>,
    pub new_leader: Option<Callback<Option<Leader>>>,
}

impl Callbacks {
    /// `None` if there is no callback, as in many elections of a set.
    pub fn boxed(self) -> Option<Box<Self>> {
        let Self { won, lost, drain, campaign, new_leader } = &self;
        let none =
            matches!((won, lost, drain, campaign, new_leader), (None, None, None, None, None));
        (!none).then(|| Box::new(self))
    }
}

/// Calls `callback`, and logs a panic of it.
pub(super) async fn call<T>(callback: &Callback<T>, argument: T, name: &str) {
    // The closure runs inside too: it may panic before there is a future.
    let call = AssertUnwindSafe(async { callback(argument).await });
    if call.catch_unwind().await.is_err() {
        error!("{name} panicked");
    }
}

/// Calls `callback` with each new leader, one call at a time, until the candidate has stopped: a
/// call that is running then is dropped. Leaders that come and go during a call are left out.
pub(crate) async fn report_leaders(shared: Arc<Shared>, callback: Callback<Option<Leader>>) {
    let mut stopped = shared.status.subscribe();
    let mut watch = StatusWatch::new(shared);
    let calls = async {
        let mut last = None;
        while let Some(status) = watch.next().await {
            let leader =
                status.leader.as_ref().map(|leader| (leader.identity.clone(), leader.token));
            if leader != last {
                last = leader;
                call(&callback, status.leader, "on_new_leader").await;
            }
        }
    };
    tokio::select! {
        () = calls => {}
        _ = stopped.wait_for(|status| status.finished) => {}
    }
}
