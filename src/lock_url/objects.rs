//! Locks of `gs://BUCKET/PREFIX`, `s3://…` and `az://…`.

use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use crate::backends::object_storage::Bucket;
use crate::lock::Lock;

#[derive(Debug, Clone)]
pub(super) struct ObjectStorageTarget {
    /// The URL without options.
    url: String,
    max_lease: Option<Duration>,
    max_clock_skew: Option<Duration>,
    allow_http: bool,
    shown: String,
}

impl ObjectStorageTarget {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let bucket = parts.place().strip_prefix("//").unwrap_or_default();
        if bucket.starts_with('/') || bucket.is_empty() || bucket.contains('@') {
            return Err(parts.malformed("it names no bucket, as gs://my-bucket/elections does"));
        }
        Ok(Self {
            url: format!("{}:{}", parts.scheme(), parts.decoded(parts.place())?),
            max_lease: parts.take_duration("max-lease")?,
            max_clock_skew: parts.take_duration("max-clock-skew")?,
            allow_http: parts.take_flag("allow-http")?,
            shown: parts.shown().to_owned(),
        })
    }

    pub fn with_lease(&mut self, lease: Duration) {
        self.max_lease.get_or_insert(lease);
    }

    pub fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        Ok(Arc::new(self.bucket()?.lock()))
    }

    pub fn bucket(&self) -> Result<Bucket, LockUrlError> {
        let bucket = Bucket::from_url(&self.url).map_err(|error| {
            let message = format!("{} cannot be used", self.shown);
            LockUrlError::with_source(LockUrlErrorKind::Unusable, message, error)
        });
        let mut bucket = bucket?;
        if let Some(longest) = self.max_lease {
            bucket = bucket.max_lease(longest);
        }
        if let Some(skew) = self.max_clock_skew {
            bucket = bucket.max_clock_skew(skew);
        }
        if self.allow_http {
            bucket = bucket.allow_http();
        }
        Ok(bucket)
    }
}
