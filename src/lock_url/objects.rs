//! Locks of `gs://BUCKET/PREFIX`, `s3://…` and `az://…`.

use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::object_storage::Bucket;
use crate::lock::Lock;

/// The credentials of S3.
const OF_S3: [&str; 6] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];
/// The credentials of Google Cloud Storage.
const OF_GCS: [&str; 4] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// The credentials of Azure.
const OF_AZURE: [&str; 9] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_FEDERATED_TOKEN_FILE",
];

#[derive(Debug, Clone)]
pub(super) struct ObjectStorageTarget {
    /// The URL without options.
    url: String,
    max_lease: Option<Duration>,
    max_clock_skew: Option<Duration>,
    allow_http: bool,
    shown: String,
}

impl StoreTarget for ObjectStorageTarget {
    type Named = Bucket;

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
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

    fn credential_variables(&self) -> &'static [&'static str] {
        match self.url.split_once(':') {
            Some(("s3", _)) => &OF_S3,
            Some(("gs", _)) => &OF_GCS,
            _ => &OF_AZURE,
        }
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        Ok(Arc::new(self.named(options)?.lock()))
    }

    fn named(&self, options: OpenOptions) -> Result<Bucket, LockUrlError> {
        let bucket = Bucket::from_url(&self.url).map_err(|error| {
            let message = format!("{} cannot be used", self.shown);
            LockUrlError::with_source(LockUrlErrorKind::Unusable, message, error)
        });
        let mut bucket = bucket?;
        if let Some(longest) = self.max_lease.or(options.lease) {
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
