//! Locks of `gs://BUCKET/PREFIX`, `s3://…` and `az://…`.

use std::sync::Arc;
use std::time::Duration;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::object_storage::Bucket;
use crate::lock::Lock;

/// The credentials of S3, and what has the password of a proxy.
const OF_S3: [&str; 9] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", // with a random part that nobody else knows
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_PROXY_URL",
];
/// The credentials of Google Cloud Storage.
const OF_GCS: [&str; 7] = [
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_PROXY_URL",
    "SERVICE_ACCOUNT",
];
/// The credentials of Azure.
const OF_AZURE: [&str; 13] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_FABRIC_SESSION_TOKEN",
    "AZURE_STORAGE_ENCRYPTION_KEY",
    "AZURE_PROXY_URL",
    "IDENTITY_HEADER", // of a managed identity
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

#[cfg(all(test, feature = "azure", feature = "gcs", feature = "s3"))]
mod tests {
    use std::str::FromStr;

    use object_store::aws::AmazonS3ConfigKey;
    use object_store::azure::AzureConfigKey;
    use object_store::gcp::GoogleConfigKey;

    use super::*;

    /// Those that the object store does not read by this name.
    fn unread<K: FromStr>(names: &[&'static str]) -> Vec<&'static str> {
        let is_read = |name: &str| name.to_ascii_lowercase().parse::<K>().is_ok();
        names.iter().copied().filter(|name| !is_read(name)).collect()
    }

    #[test]
    fn withheld_variables_are_those_that_object_stores_read() {
        assert_eq!(unread::<AmazonS3ConfigKey>(&OF_S3), [""; 0]);
        assert_eq!(unread::<GoogleConfigKey>(&OF_GCS), [""; 0]);
        assert_eq!(unread::<AzureConfigKey>(&OF_AZURE), ["IDENTITY_HEADER"], "read apart");
    }
}
