//! Where the objects are.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::{ObjectStore, RetryConfig};

use super::lock::ObjectStorageLock;
use super::store::Store;
use super::transport::Connector;
use super::vimeo_timing::VimeoTiming;
use crate::protocol::{MAX_LEASE, MIN_LEASE};

/// Between two renewals there must be a second: Google Cloud Storage takes no more writes of one object.
const LONGEST_LEASE: Duration = Duration::from_secs(15);
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// A bucket, or container, and a prefix of the objects in it.
///
/// ```no_run
/// use incumbent::object_storage::Bucket;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let bucket = Bucket::from_url("s3://my-bucket/elections")?;
/// let election = incumbent::new_election("my_app", bucket.lock()).start()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bucket {
    pub(super) store: Store,
    connector: Connector,
    pub(super) prefix: String,
    terms: VimeoTiming,
    is_known_to_check: bool,
}

impl Bucket {
    /// `gs://BUCKET/PREFIX`, `s3://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, with the credentials and the settings that
    /// the environment has for it: `GOOGLE_APPLICATION_CREDENTIALS`, `AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_NAME` and so
    /// on, or those of the machine that this runs on. Does no request.
    ///
    /// # Errors
    /// For another URL, a store that was not built in, or settings that cannot be used.
    pub fn from_url(url: &str) -> Result<Self, BucketError> {
        let wrong = || {
            let message =
                "a bucket is named gs://BUCKET/PREFIX, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX";
            BucketError { message: message.to_owned(), source: None }
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains(['@', '?', '#']) {
            return Err(wrong());
        }
        let opened = match scheme {
            #[cfg(feature = "gcs")]
            "gs" => {
                use object_store::gcp::GoogleCloudStorageBuilder;
                Self::google(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket))
            }
            #[cfg(feature = "s3")]
            "s3" => {
                use object_store::aws::AmazonS3Builder;
                Self::amazon(AmazonS3Builder::from_env().with_bucket_name(bucket))
            }
            #[cfg(feature = "azure")]
            "az" => {
                use object_store::azure::MicrosoftAzureBuilder;
                Self::azure(MicrosoftAzureBuilder::from_env().with_container_name(bucket))
            }
            #[cfg(not(feature = "gcs"))]
            "gs" => Err(BucketError::not_built_in(scheme, "gcs")),
            #[cfg(not(feature = "s3"))]
            "s3" => Err(BucketError::not_built_in(scheme, "s3")),
            #[cfg(not(feature = "azure"))]
            "az" => Err(BucketError::not_built_in(scheme, "azure")),
            _ => Err(wrong()),
        };
        Ok(opened?.prefix(prefix))
    }

    /// A bucket of Google Cloud Storage. Elections in it can be shared with campaigners of vimeo/leaderelection. What the
    /// builder says of its client (retries, TLS, timeouts, proxies) is not used.
    ///
    /// # Errors
    /// What the builder finds wrong.
    #[cfg(feature = "gcs")]
    pub fn google(
        builder: object_store::gcp::GoogleCloudStorageBuilder,
    ) -> Result<Self, BucketError> {
        use object_store::gcp::GoogleConfigKey;
        let name = builder.get_config_value(&GoogleConfigKey::Bucket);
        let connector = Connector::default();
        let builder = builder.with_retry(never()).with_http_connector(connector.clone());
        // Its own default allows http, for the sake of the machine's metadata, which is asked with options of its own.
        let store = builder.with_client_options(object_store::ClientOptions::new()).build();
        Self::new("gs", name, store, connector, true)
    }

    /// A bucket of Amazon S3, or of a store that speaks its protocol and heeds `If-Match` and `If-None-Match`: the first write
    /// to it sees whether it does. What the builder says of retries, conditional writes, TLS, timeouts and proxies is
    /// not used.
    ///
    /// # Errors
    /// What the builder finds wrong.
    #[cfg(feature = "s3")]
    pub fn amazon(builder: object_store::aws::AmazonS3Builder) -> Result<Self, BucketError> {
        use object_store::aws::{AmazonS3ConfigKey, S3ConditionalPut};
        let name = builder.get_config_value(&AmazonS3ConfigKey::Bucket);
        let builder = builder.with_conditional_put(S3ConditionalPut::ETagMatch);
        let connector = Connector::default();
        let store = builder.with_retry(never()).with_http_connector(connector.clone()).build();
        Self::new("s3", name, store, connector, false)
    }

    /// A container of Azure Blob Storage. What the builder says of retries, TLS, timeouts and proxies is not used.
    ///
    /// # Errors
    /// What the builder finds wrong.
    #[cfg(feature = "azure")]
    pub fn azure(builder: object_store::azure::MicrosoftAzureBuilder) -> Result<Self, BucketError> {
        use object_store::azure::AzureConfigKey;
        let name = builder.get_config_value(&AzureConfigKey::ContainerName);
        let connector = Connector::default();
        let store = builder.with_retry(never()).with_http_connector(connector.clone()).build();
        Self::new("az", name, store, connector, true)
    }

    fn new<S: ObjectStore>(
        scheme: &str,
        name: Option<String>,
        store: object_store::Result<S>,
        connector: Connector,
        is_known_to_check: bool,
    ) -> Result<Self, BucketError> {
        let place = format!("{scheme}://{}", name.unwrap_or_default());
        // Its text may repeat a key that cannot be parsed.
        let store = store.map_err(|error| BucketError {
            message: format!("{place} cannot be used: see to its settings and credentials"),
            source: Some(Box::new(error)),
        })?;
        Ok(Self {
            store: Store::new(Arc::new(store), place),
            connector,
            prefix: String::new(),
            terms: VimeoTiming { longest: LONGEST_LEASE, skew: MAX_CLOCK_SKEW },
            is_known_to_check,
        })
    }

    /// Lets requests go to an `http://` address of the store, with the credentials in clear. Default: they fail with
    /// [`Misconfigured`](crate::lock::LockErrorKind::Misconfigured) and are not sent, unless the builder allows it, or the environment:
    /// `AWS_ALLOW_HTTP=true`, `AZURE_ALLOW_HTTP=true`. (For Google Cloud Storage the builder always does, so it is not asked.)
    pub fn allow_http(self) -> Self {
        self.connector.allow_http();
        self
    }

    /// The folder of the objects: `elections` has `my_app` be the object `elections/my_app`. Default: none.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        let prefix = prefix.as_ref().trim_matches('/');
        self.prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        self
    }

    /// The longest lease of anybody in these elections, and the lease of whoever says nothing of it: from 1 s to an hour,
    /// default 15 s. All campaigners must say the same. Beside Go's campaigners: their `TermLength`, or longer.
    ///
    /// It is what a candidate waits that knows nothing of the last leader: in an election's first term, and after its object
    /// was deleted. The leader writes every third of its lease; Google Cloud Storage takes one write a second of one object.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.terms.longest = lease.clamp(MIN_LEASE, MAX_LEASE);
        self
    }

    /// By how much the wall clocks of this machine and of Go's campaigners may differ; default 1 s. Only they go by it: a leader
    /// of this library writes a deadline for them that is so much later.
    pub fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.terms.skew = skew.min(MAX_LEASE);
        self
    }

    /// The lock of all elections here.
    pub fn lock(&self) -> ObjectStorageLock {
        ObjectStorageLock::new(
            self.store.clone(),
            self.prefix.clone(),
            self.terms,
            self.is_known_to_check,
        )
    }
}

/// The protocol decides what is tried again, and when: a conditional write that is repeated behind its back looks like
/// somebody else's.
fn never() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("store", &self.store)
            .field("prefix", &self.prefix)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

/// Why a bucket cannot be used.
#[derive(Debug)]
pub struct BucketError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BucketError {
    #[cfg(not(all(feature = "gcs", feature = "s3", feature = "azure")))]
    fn not_built_in(scheme: &str, feature: &str) -> Self {
        let message = format!("{scheme}:// needs the feature `{feature}` of incumbent");
        Self { message, source: None }
    }
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BucketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|error| error as &(dyn Error + 'static))
    }
}

#[cfg(all(test, feature = "azure", feature = "s3"))]
mod tests {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;

    use super::*;

    #[test]
    fn no_debug_output_holds_a_secret() {
        let azure = |key: &str| {
            let builder = MicrosoftAzureBuilder::new().with_account("me");
            Bucket::azure(builder.with_container_name("bucket").with_access_key(key))
        };
        let amazon = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_region("s3cret region")
            .with_access_key_id("s3cret")
            .with_secret_access_key("s3cret");
        let good = [azure("czNjcmV0").unwrap(), Bucket::amazon(amazon).unwrap()];
        let wrong = azure("no base64: s3cret").unwrap_err();
        let shown = format!("{good:?} {:?} {wrong:?} {wrong}", good[0].lock());
        assert!(!shown.contains("s3cret") && !shown.contains("czNjcmV0"), "{shown}");
    }
}
