//! Hearing of objects of Kubernetes by watches, each of which ends after a while.

use std::future::{Future, pending};
use std::time::Duration;

use incumbent::lock::{LockError, LockErrorKind};

use super::Heard;
use crate::failure::Failure;

/// How long to wait before a watch that failed is begun anew.
const PAUSE: Duration = Duration::from_secs(1);

/// What can be watched.
pub trait Watched {
    type Watch: Send;

    fn begin(&self) -> impl Future<Output = Result<Self::Watch, LockError>> + Send;

    /// `None`: the watch is over. Cancel safe.
    fn next(
        watch: &mut Self::Watch,
    ) -> impl Future<Output = Option<Result<Heard, LockError>>> + Send;
}

/// What is heard by one watch after another.
pub struct WatchEar<W: Watched> {
    watched: W,
    watch: Option<W::Watch>,
    /// Whether the server refuses to tell.
    refused: bool,
    failed: bool,
}

impl<W: Watched> WatchEar<W> {
    /// Begins; without the right to do so nothing is heard.
    pub async fn begin(watched: W) -> Result<Self, Failure> {
        let (watch, refused) = match watched.begin().await {
            Ok(watch) => (Some(watch), false),
            Err(error) if error.kind() == LockErrorKind::Denied => (None, true),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { watched, watch, refused, failed: false })
    }

    /// Whether every change is heard.
    pub fn hears_all(&self) -> bool {
        !self.refused
    }

    /// Cancel safe.
    pub async fn next(&mut self) -> Heard {
        if self.refused {
            return pending().await;
        }
        let Some(watch) = &mut self.watch else {
            if self.failed {
                tokio::time::sleep(PAUSE).await;
            }
            return match self.watched.begin().await {
                Ok(watch) => {
                    self.watch = Some(watch);
                    Heard::Look // what happened meanwhile is not told
                }
                Err(error) => {
                    self.failed = true;
                    Heard::Failed(error.into())
                }
            };
        };
        match W::next(watch).await {
            Some(Ok(heard)) => heard,
            Some(Err(error)) => {
                self.watch = None;
                self.failed = true;
                Heard::Failed(error.into())
            }
            None => {
                self.watch = None;
                self.failed = false;
                Heard::Look
            }
        }
    }
}
