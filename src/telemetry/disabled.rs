//! What is called in the place of metrics where there are none.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::{MemberLoad, Standing};
use crate::protocol::set::TakeOutcome;
use crate::protocol::{Cause, Leader, PreviousTerm, State};
use crate::time::clock::Instant;
use crate::time::timing::Timing;

pub(crate) struct Telemetry;

impl Telemetry {
    pub fn new(_election: &Arc<str>, _identity: &Arc<str>, _timing: Timing) -> Self {
        Self
    }

    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    pub fn for_life(_election: &str, _identity: &str) -> Self {
        Self
    }

    #[cfg_attr(not(feature = "kubernetes"), allow(dead_code))]
    pub fn resumed(&self) {}

    pub fn campaigned(&self, _state: State) {}

    pub fn won(&self, _takeover: Option<Duration>, _after: PreviousTerm) {}

    pub fn lost(&self, _cause: &Cause) {}

    pub fn renewed(&self, _latency: Duration, _left: Option<Duration>) {}

    pub fn standing(&self, _standing: Standing) {}

    pub fn lock_up(&self, _up: bool) {}

    pub fn observe(
        &mut self,
        _now: Instant,
        _state: State,
        _leader: Option<&Leader>,
        _lock_fails: bool,
    ) {
    }

    pub fn draining(&self) {}

    pub fn paused_until(&self, _unix_ms: Option<u64>) {}

    pub fn roll_call_answered(&self) {}

    pub fn finished(&self) {}
}

pub(crate) struct SetTelemetry;

impl SetTelemetry {
    pub fn new(_set: &Arc<str>, _identity: &Arc<str>) -> Self {
        Self
    }

    pub fn update(&mut self, _load: MemberLoad, _members: usize) {}

    pub fn took(&self, _outcome: TakeOutcome) {}

    pub fn gave(&self, _outcome: TakeOutcome) {}

    pub fn finished(&self) {}
}
