//! Locks that pass on to another one what they are asked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::renamed::Renamed;
use super::{
    CandidateInfo, CandidateRequest, Capabilities, HintSink, Lock, LockAdmin, LockError,
    LockMember, Reading, Release, Revision, RollCall, StepDownNotice, Subscription, Write,
};
use crate::time::timing::TimingOptions;

/// `$lock`: the other one; `$as`: the name of the election there.
macro_rules! forward {
    (
        $type:ty $(where $of:ident)?, $self:ident => $lock:expr, $name:ident => $as:expr,
        holds_many: $many:expr, admin: $admin:expr
    ) => {
        #[async_trait]
        impl $(<$of: Lock + ?Sized>)? Lock for $type {
            fn capabilities(&$self) -> Capabilities {
                $lock.capabilities()
            }

            fn timing(&$self) -> TimingOptions {
                $lock.timing()
            }

            fn identity(&$self) -> Option<String> {
                $lock.identity()
            }

            fn members(&$self) -> Option<&[LockMember]> {
                $lock.members()
            }

            fn check_name(&$self, $name: &str) -> Result<(), String> {
                $lock.check_name($as)
            }

            fn holds_many(&$self) -> bool {
                $many
            }

            fn carries_messages(&$self) -> bool {
                $lock.carries_messages()
            }

            async fn read(&$self, $name: &str, timeout: Duration) -> Result<Reading, LockError> {
                $lock.read($as, timeout).await
            }

            async fn write(&$self, $name: &str, write: Write) -> Result<Revision, LockError> {
                $lock.write($as, write).await
            }

            async fn release(&$self, $name: &str, release: Release) -> Result<(), LockError> {
                $lock.release($as, release).await
            }

            async fn check_release(
                &$self,
                $name: &str,
                timeout: Duration,
            ) -> Result<(), LockError> {
                $lock.check_release($as, timeout).await
            }

            async fn notify_step_down(
                &$self,
                $name: &str,
                notice: StepDownNotice,
            ) -> Result<(), LockError> {
                $lock.notify_step_down($as, notice).await
            }

            fn admin(&$self) -> Option<&dyn LockAdmin> {
                $admin
            }

            async fn call_roll(
                &$self,
                $name: &str,
                request: CandidateRequest,
                within: Duration,
            ) -> Result<Vec<CandidateInfo>, LockError> {
                $lock.call_roll($as, request, within).await
            }

            async fn answer_roll_call(
                &$self,
                $name: &str,
                call: &RollCall,
                info: &CandidateInfo,
            ) -> Result<(), LockError> {
                $lock.answer_roll_call($as, call, info).await
            }

            fn subscribe(&$self, $name: &str, sink: HintSink) -> Subscription {
                $lock.subscribe($as, sink)
            }
        }
    };
}

forward!(Arc<L> where L, self => (**self), name => name, holds_many: (**self).holds_many(), admin: (**self).admin());
forward!(Renamed, self => self.lock, _name => &self.name, holds_many: false, admin: None);
