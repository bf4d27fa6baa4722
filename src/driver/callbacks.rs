//! Callbacks of the user.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::election::leadership::Leadership;
use crate::election::loss::Loss;
use crate::protocol::State;

/// A callback of the user's.
pub(crate) type Callback<T> = Arc<dyn Fn(T) -> BoxFuture<'static, ()> + Send + Sync>;

/// User callbacks, each run in a task of its own.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub won: Option<Callback<Leadership>>,
    pub lost: Option<Callback<Loss>>,
    pub campaign: Option<Callback<State>>,
}
