//! The callbacks of a set, and how they become those of its elections.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::change::ShardChange;
use super::shared::SetShared;
use crate::builder::ElectionBuilder;
use crate::election::leadership::Leadership;
use crate::election::loss::{DrainNotice, Loss};

/// A callback of the user's.
pub(super) type ShardCallback<T> = Arc<dyn Fn(u32, T) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Default, Clone)]
pub(super) struct ShardCallbacks {
    pub won: Option<ShardCallback<Leadership>>,
    pub lost: Option<ShardCallback<Loss>>,
    pub drain: Option<ShardCallback<DrainNotice>>,
}

impl ShardCallbacks {
    /// Adds them to the election of a shard.
    pub fn install(
        &self,
        builder: ElectionBuilder,
        shard: u32,
        set: &Arc<SetShared>,
    ) -> ElectionBuilder {
        let (won, lost, drain) = (self.won.clone(), self.lost.clone(), self.drain.clone());
        let sets = [Arc::clone(set), Arc::clone(set), Arc::clone(set)];
        let [by_won, by_lost, by_drain] = sets;
        builder
            .on_won(move |leadership| begin(Arc::clone(&by_won), shard, won.clone(), leadership))
            .on_lost(move |loss| {
                let (set, lost) = (Arc::clone(&by_lost), lost.clone());
                async move {
                    if !set.leave(shard, loss.token) {
                        return; // given back before its work began
                    }
                    let (token, cause) = (loss.token, loss.cause.clone());
                    set.publish(ShardChange::Lost { shard, token, cause });
                    if let Some(lost) = lost {
                        lost(shard, loss).await;
                    }
                }
            })
            .on_drain(move |notice| {
                by_drain.publish(ShardChange::Draining { shard, token: notice.token });
                let drain = drain.clone();
                async move {
                    if let Some(drain) = drain {
                        drain(shard, notice).await;
                    }
                }
            })
    }
}

async fn begin(
    set: Arc<SetShared>,
    shard: u32,
    won: Option<ShardCallback<Leadership>>,
    leadership: Leadership,
) {
    if !set.admit(shard, leadership.token()) {
        return leadership.resign();
    }
    match won {
        Some(won) => won(shard, leadership).await,
        None => drop(leadership.draining().await), // nothing in here has to come to its end
    }
}
