//! Configuration of buckets.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};

use super::lock::ObjectStorageLock;
use super::store::Store;
use super::transport::Connector;
use crate::backends::vimeo_timing::VimeoTiming;
use crate::lock::{LockError, LockErrorKind};
use crate::protocol::{COMMON_MIN_LEASE, MAX_LEASE};
use crate::util::text::causes;

/// The default maximum lease. Two renewals must be a second apart: Google Cloud Storage accepts no
/// more writes of one object.
const DEFAULT_MAX_LEASE: Duration = Duration::from_secs(15);
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// A bucket, or container, and a prefix of its objects.
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
    pub(super) prefix: String,
    terms: VimeoTiming,
}

impl Bucket {
    /// Parses `gs://BUCKET/PREFIX`, `s3://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`. Credentials
    /// and settings come from the environment (`GOOGLE_APPLICATION_CREDENTIALS`,
    /// `AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_NAME` and so on), or from the machine's own
    /// identity in its cloud. Sends no request.
    ///
    /// # Errors
    /// If the URL is a different one, its store is not compiled in, or the settings cannot be used.
    pub fn from_url(url: &str) -> Result<Self, BucketError> {
        let wrong = || {
            let message = "the URL of a bucket is gs://BUCKET/PREFIX, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX";
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

    /// Uses a bucket of Google Cloud Storage. Candidates of vimeo/leaderelection can take part in
    /// its elections. The builder's client settings (retries, TLS, timeouts, proxies) are not used.
    ///
    /// # Errors
    /// If the builder reports an error.
    #[cfg(feature = "gcs")]
    pub fn google(
        builder: object_store::gcp::GoogleCloudStorageBuilder,
    ) -> Result<Self, BucketError> {
        use object_store::gcp::GoogleConfigKey;
        let name = builder.get_config_value(&GoogleConfigKey::Bucket);
        let connector = Connector::default();
        let builder = builder.with_retry(never()).with_http_connector(connector.clone());
        // The builder's own default allows http, for the machine's metadata, which is requested
        // with separate options.
        let store = builder.with_client_options(object_store::ClientOptions::new()).build();
        Self::new("gs", name, store, connector)
    }

    /// Uses a bucket of Amazon S3, or of a compatible store that respects `If-Match` and
    /// `If-None-Match`: the first write checks whether the store does, as it does for the other
    /// kinds at an address that is not the cloud's own. The builder's settings of retries,
    /// conditional writes, TLS, timeouts and proxies are not used.
    ///
    /// # Errors
    /// If the builder reports an error.
    #[cfg(feature = "s3")]
    pub fn amazon(builder: object_store::aws::AmazonS3Builder) -> Result<Self, BucketError> {
        use object_store::aws::{AmazonS3ConfigKey, S3ConditionalPut};
        let name = builder.get_config_value(&AmazonS3ConfigKey::Bucket);
        let builder = builder.with_conditional_put(S3ConditionalPut::ETagMatch);
        let connector = Connector::default();
        let store = builder.with_retry(never()).with_http_connector(connector.clone()).build();
        Self::new("s3", name, store, connector)
    }

    /// Uses a container of Azure Blob Storage. The builder's settings of retries, TLS, timeouts and
    /// proxies are not used.
    ///
    /// # Errors
    /// If the builder reports an error.
    #[cfg(feature = "azure")]
    pub fn azure(builder: object_store::azure::MicrosoftAzureBuilder) -> Result<Self, BucketError> {
        use object_store::azure::AzureConfigKey;
        let name = builder.get_config_value(&AzureConfigKey::ContainerName);
        let connector = Connector::default();
        let store = builder.with_retry(never()).with_http_connector(connector.clone()).build();
        Self::new("az", name, store, connector)
    }

    /// Returns the store, and the path of an object of the prefix.
    pub(crate) fn object(&self, name: &str) -> Result<(Store, Path), LockError> {
        let whole = format!("{}{name}", self.prefix);
        match Path::parse(&whole) {
            Ok(path) if !name.is_empty() && path.as_ref() == whole => {
                Ok((self.store.clone(), path))
            }
            _ => Err(LockError::new(
                LockErrorKind::Misconfigured,
                format!(
                    "{name:?} is not the name of an object: it must neither begin nor end with a slash"
                ),
            )),
        }
    }

    fn new<S: ObjectStore>(
        scheme: &str,
        name: Option<String>,
        store: object_store::Result<S>,
        connector: Connector,
    ) -> Result<Self, BucketError> {
        let place = format!("{scheme}://{}", name.unwrap_or_default());
        let store = store.map_err(|error| BucketError {
            message: format!("{place} cannot be used: check its settings and credentials"),
            source: Some(without_contents(error)),
        })?;
        Ok(Self {
            store: Store::new(Arc::new(store), connector, place),
            prefix: String::new(),
            terms: VimeoTiming { longest: DEFAULT_MAX_LEASE, skew: MAX_CLOCK_SKEW },
        })
    }

    /// Allows requests to an `http://` address of the store, with the credentials in clear. By
    /// default such requests fail with [`Misconfigured`](crate::lock::LockErrorKind::Misconfigured)
    /// and are not sent, unless the builder allows them, or the environment: `AWS_ALLOW_HTTP=true`,
    /// `AZURE_ALLOW_HTTP=true`. (The builder for Google Cloud Storage always allows them, so its
    /// setting is ignored.)
    pub fn allow_http(self) -> Self {
        self.store.connector.allow_http();
        self
    }

    /// Sets the folder of the objects: with `elections`, the election `my_app` is the object
    /// `elections/my_app`. Default: none.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        let prefix = prefix.as_ref().trim_matches('/');
        self.prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        self
    }

    /// Sets the maximum lease of all candidates in these elections, which is also the default
    /// lease: from 1 s to an hour, default 15 s. All candidates must use the same value. If Go's
    /// candidates take part, use their `TermLength`, or more.
    ///
    /// A candidate waits this long if it knows nothing of the last leader: in an election's first
    /// term, and after its object was deleted. The leader writes every third of its lease; Google
    /// Cloud Storage accepts one write per second of one object.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.terms.longest = lease.clamp(COMMON_MIN_LEASE, MAX_LEASE);
        self
    }

    /// Sets the maximum difference between the wall clocks of this machine and of Go's candidates;
    /// default 1 s. Only Go's candidates rely on it: a leader of this library writes a deadline for
    /// them that is later by this amount.
    pub fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.terms.skew = skew.min(MAX_LEASE);
        self
    }

    /// Returns the lock of all elections in the bucket.
    pub fn lock(&self) -> ObjectStorageLock {
        ObjectStorageLock::new(self.store.clone(), self.prefix.clone(), self.terms)
    }
}

/// Disables retries: the protocol decides what is retried, and when. A conditional write that the
/// client repeats by itself looks like another candidate's.
fn never() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns the error, unless it repeats the content of credentials that cannot be parsed: a key in
/// JSON that was encoded twice is one string. Then returns the location of the problem.
fn without_contents(error: object_store::Error) -> Box<dyn Error + Send + Sync> {
    let wrong = causes(&error).find_map(|error| error.downcast_ref::<serde_json::Error>());
    let Some(wrong) = wrong else { return error.into() };
    let (line, column) = (wrong.line(), wrong.column());
    format!("the JSON of the credentials is wrong at line {line}, column {column}").into()
}

partial_debug!(Bucket, self, store: self.store, prefix: self.prefix, terms: self.terms);

/// The reason why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
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

#[cfg(all(test, feature = "azure", feature = "gcs", feature = "s3"))]
mod tests {
    use object_store::aws::AmazonS3Builder;
    use object_store::azure::MicrosoftAzureBuilder;
    use object_store::gcp::GoogleCloudStorageBuilder;

    use super::*;
    use crate::util::text::error_chain;

    #[test]
    fn no_error_holds_a_service_account_key() {
        let key = r#"{"private_key": "s3cret", "client_email": "me"}"#;
        let encoded_twice = serde_json::to_string(key).unwrap();
        for key in [&*encoded_twice, r#"{"private_key": "s3cret", "type": 7}"#, "s3cret"] {
            let builder = GoogleCloudStorageBuilder::new().with_bucket_name("bucket");
            let error = Bucket::google(builder.with_service_account_key(key)).unwrap_err();
            let shown = format!("{error:?} {}", error_chain(&error));
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(
                shown.contains("JSON of the credentials is wrong at line 1, column"),
                "{shown}"
            );
        }
        let nameless = Bucket::google(GoogleCloudStorageBuilder::new()).unwrap_err();
        assert!(error_chain(&nameless).contains("Missing bucket name"), "{nameless:?}");
    }

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
        let shown = format!("{good:?} {:?} {wrong:?} {}", good[0].lock(), error_chain(&wrong));
        assert!(!shown.contains("s3cret") && !shown.contains("czNjcmV0"), "{shown}");
    }
}
