//! The API server's address, and the credentials for it.

use std::env;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::api_client::{ApiClient, Reload, reload};
use super::connection::without_secrets;
use super::namespace;
use crate::lock::LockError;
use crate::util::text::causes;

/// The environment variable in which a pod's manifest passes the pod its name, from the field
/// `metadata.name`.
const POD_NAME: &str = "POD_NAME";
/// The variable for `metadata.namespace`.
const POD_NAMESPACE: &str = "POD_NAMESPACE";

/// An API server, and a namespace of it.
///
/// In a pod, the pod provides everything. The server and the credentials come from its service
/// account, the namespace from the service account or from `POD_NAMESPACE`, and the identity from
/// `POD_NAME` or else from the host's name, which in a pod is the pod's. A kubeconfig, its client
/// certificate and a token file are read again when the server refuses the credentials, a token
/// file also every minute. A kubeconfig's program for the credentials (`exec`) runs again then, at
/// most once in 10 s.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    access: ApiClient,
    namespace: String,
    identity: Option<String>,
}

impl Cluster {
    /// Reads `KUBECONFIG`, else `~/.kube/config`, else the service account of the current pod.
    /// Sends no request.
    ///
    /// # Errors
    /// If none of them can be used.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn infer() -> Result<Self, ClusterError> {
        let config = Config::infer().await.map_err(|error| {
            ClusterError::new(
                "no API server: set KUBECONFIG, or run in a pod with a service account",
                without_contents(error),
            )
        })?;
        Self::with_config(config, reload(async || Config::infer().await.ok()))
    }

    /// Reads `KUBECONFIG`, else `~/.kube/config`, and selects another context than the current one.
    /// Sends no request.
    ///
    /// # Errors
    /// If they cannot be used, or have no such context.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn in_context(context: &str) -> Result<Self, ClusterError> {
        let options = options(Some(context));
        let config = Config::from_kubeconfig(&options).await.map_err(|error| {
            ClusterError::new("the kubeconfig cannot be used", without_contents(error))
        })?;
        let reload = reload(move || {
            let options = options.clone();
            async move { Config::from_kubeconfig(&options).await.ok() }
        });
        Self::with_config(config, reload)
    }

    /// Reads the service account of the current pod.
    ///
    /// # Errors
    /// Outside a pod, or in a pod without a service account.
    pub fn in_pod() -> Result<Self, ClusterError> {
        let config = Config::incluster().map_err(|error| {
            ClusterError::new(
                "no service account: run in a pod with one, or use a kubeconfig",
                error,
            )
        })?;
        Self::with_config(config, reload(async || Config::incluster().ok()))
    }

    /// Reads a kubeconfig file. `context` selects another context than the file's current one.
    ///
    /// # Errors
    /// If the file cannot be read, or has no such context.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn from_kubeconfig(
        file: impl AsRef<Path>,
        context: Option<&str>,
    ) -> Result<Self, ClusterError> {
        let (file, options) = (file.as_ref().to_owned(), options(context));
        let read = async |file: &Path, options: &KubeConfigOptions| {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, options).await
        };
        let config = read(&file, &options).await.map_err(|error| {
            let message = format!("the kubeconfig {} cannot be used", file.display());
            ClusterError::new(message, without_contents(error))
        })?;
        let reload = reload(move || {
            let (file, options) = (file.clone(), options.clone());
            async move { read(&file, &options).await.ok() }
        });
        Self::with_config(config, reload)
    }

    /// Uses a client, and its default namespace.
    ///
    /// A client that retries by itself, as kube's does by default, hides the waiting time from the
    /// election: turn that off (`Config::default_retry`).
    pub fn new(client: Client) -> Self {
        Self::from_access(ApiClient::from_client(client))
    }

    fn from_access(access: ApiClient) -> Self {
        let client = access.client().client;
        let namespace = client.default_namespace().to_owned();
        let identity = env::var(POD_NAME).ok().filter(|name| !name.is_empty());
        Self { client, access, namespace, identity }
    }

    fn with_config(mut config: Config, reload: Reload) -> Result<Self, ClusterError> {
        if config.root_cert.is_some() && config.cluster_url.scheme_str() != Some("https") {
            return Err(ClusterError::new(
                "the kubeconfig has a certificate authority, but its server is no https:// URL, so \
                 credentials would be sent in clear: use https://, or remove the authority",
                "a certificate authority without TLS",
            ));
        }
        config.default_retry = false; // the elector retries, within its deadline
        let access = ApiClient::with(config, reload).map_err(|error| {
            ClusterError::new("the API server's settings cannot be used", without_secrets(error))
        })?;
        let cluster = Self::from_access(access);
        Ok(match env::var(POD_NAMESPACE) {
            Ok(namespace) if !namespace.is_empty() => cluster.in_namespace(namespace),
            _ => cluster,
        })
    }

    /// Returns the same API server with another namespace.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns whether the namespace exists. Requires the permission to `get` it, which few callers
    /// need otherwise.
    ///
    /// # Errors
    /// [`Denied`](crate::lock::LockErrorKind::Denied) if that permission is missing, and
    /// [`Unavailable`](crate::lock::LockErrorKind::Unavailable) if no response arrived within
    /// `timeout`.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn has_namespace(&self, timeout: Duration) -> Result<bool, LockError> {
        namespace::exists(&self.access, &self.namespace, timeout).await
    }

    /// Returns the client, for other uses.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn access(&self) -> &ApiClient {
        &self.access
    }

    pub(super) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Returns the name of this process's pod: `POD_NAME`, else the host's name.
    pub(super) fn pod_name(&self) -> String {
        let host = || gethostname::gethostname().to_string_lossy().into_owned();
        self.identity.clone().unwrap_or_else(host)
    }
}

partial_debug!(Cluster, self, namespace: self.namespace);

/// Whether a kubeconfig has a program run for its credentials. Does not run it.
#[cfg(any(feature = "url", test))]
pub(crate) async fn runs_a_program(file: Option<&Path>, context: Option<&str>) -> bool {
    let options = options(context);
    let config = match (file.map(Kubeconfig::read_from), context) {
        (Some(Ok(read)), _) => Config::from_custom_kubeconfig(read, &options).await.ok(),
        (Some(Err(_)), _) => None,
        (None, Some(_)) => Config::from_kubeconfig(&options).await.ok(),
        (None, None) => Config::infer().await.ok(),
    };
    config.is_some_and(|config| super::api_client::has_program(&config.auth_info))
}

fn options(context: Option<&str>) -> KubeConfigOptions {
    KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() }
}

/// Returns the error, unless it repeats the content of the kubeconfig, which may be a secret; then
/// returns the location of the problem.
fn without_contents(error: impl Error + Send + Sync + 'static) -> Box<dyn Error + Send + Sync> {
    for error in causes(&error) {
        if let Some(KubeconfigError::Parse(wrong)) = error.downcast_ref() {
            let line = wrong.location().map(|at| format!(", line {}", at.line()));
            return format!("it is not a kubeconfig in YAML{}", line.unwrap_or_default()).into();
        }
        if let Some(KubeconfigError::LoadContext(context)) = error.downcast_ref() {
            return format!("it has no context {context:?}").into();
        }
    }
    error.into()
}

/// The reason why a [`Cluster`] cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ClusterError {
    message: String,
    source: Box<dyn Error + Send + Sync>,
}

impl ClusterError {
    fn new(message: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { message: message.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use kube::client::AuthError;

    use super::*;

    /// A self-signed certificate.
    const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJjakNDQVJlZ0F3SUJBZ0lVRUhEUDNLbCtEK2VDMVVx\
        NFZLR2c5eEtoQlJNd0NnWUlLb1pJemowRUF3SXcKRFRFTE1Ba0dBMVVFQXd3Q1kyRXdJQmNOTWpZeE1USTFN\
        VFV6TXpReFdoZ1BNakV5TmpFeE1ERXhOVE16TkRGYQpNQTB4Q3pBSkJnTlZCQU1NQW1OaE1Ga3dFd1lIS29a\
        SXpqMENBUVlJS29aSXpqMERBUWNEUWdBRXUvejRZeHFiCnBaV2Z5ZW5UZzJwaXU4U2lldzV1SS8rS0w5VmRy\
        ZjRzOVhVMkNGMzh3UGtzaml4YU1tME5TZ2VXamwzeHo0aWsKRDVIZEVvYjFuZ1dsU2FOVE1GRXdIUVlEVlIw\
        T0JCWUVGR0NKLzNxaC9BNFFTN3NiL040cURLRmJvb0hUTUI4RwpBMVVkSXdRWU1CYUFGR0NKLzNxaC9BNFFT\
        N3NiL040cURLRmJvb0hUTUE4R0ExVWRFd0VCL3dRRk1BTUJBZjh3CkNnWUlLb1pJemowRUF3SURTUUF3UmdJ\
        aEFOZGZkMytjSTFFdVBsejBhaGJRS0FPYld2NEYvY2dqTlZIQm9EL2YKYk9FQkFpRUEvbUh4YlJQd0xDTnhI\
        c3lwWEhEK3ZNVGNvTVJEQmhreHIvSzgzdExIZVRrPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {cluster}}}], \
             users: [{{name: u, user: {{{user}}}}}]}}"
        )
    }

    #[tokio::test]
    async fn certificate_authority_requires_tls() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (scheme, is_refused) in [("http", true), ("https", false)] {
            let cluster =
                format!("{{server: '{scheme}://127.0.0.1:1', certificate-authority-data: {CA}}}");
            let text = kubeconfig(&cluster, "token: t");
            std::fs::write(&file, text).unwrap();
            let cluster = Cluster::from_kubeconfig(&file, None).await;
            let message = cluster.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message.contains("in clear"), is_refused, "{message}");
        }
    }

    #[tokio::test]
    async fn program_for_the_credentials_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-program}";
        for (user, expected) in [("token: t", false), (exec, true)] {
            let text = kubeconfig("{server: 'https://127.0.0.1:1'}", user);
            std::fs::write(&file, text).unwrap();
            assert_eq!(runs_a_program(Some(file.path()), None).await, expected, "{user}");
        }
    }

    #[tokio::test]
    async fn content_of_an_unreadable_kubeconfig_is_not_repeated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["token: [s3cret", "users: s3cret", "current-context: {s3cret: 1}"] {
            std::fs::write(&file, text).unwrap();
            let error = Cluster::from_kubeconfig(&file, None).await.unwrap_err();
            let cause = error.source().expect("a cause").to_string();
            assert!(cause.starts_with("it is not a kubeconfig in YAML"), "{cause}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn secrets_of_a_program_for_the_credentials_are_not_repeated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (script, why) in [
            ("echo s3cret; echo s3cret >&2; exit 3", "failed (exit status: 3)"),
            ("echo s3cret", "cannot be used"),
            ("echo '{\"status\": {\"token\": 5, \"s3cret\": [}}'", "cannot be used"),
        ] {
            let script = script.replace('\'', "''");
            let user = format!(
                "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
                 command: sh, args: [-c, '{script}', --secret=s3cret], \
                 env: [{{name: SECRET, value: s3cret}}]}}"
            );
            std::fs::write(&file, kubeconfig("{server: 'http://127.0.0.1:1'}", &user)).unwrap();
            let error = Cluster::from_kubeconfig(&file, None).await.unwrap_err();
            let chain = crate::util::text::error_chain(&error);
            assert!(chain.contains(why), "{chain}");
            assert!(!format!("{chain} {error:?}").contains("s3cret"), "{chain}: {error:?}");
        }
    }

    #[test]
    fn program_that_fails_later_is_reported_by_its_kind() {
        let error = AuthError::AuthExec("s3cret".into());
        let error = without_secrets(kube::Error::Service(error.into()));
        assert!(error.to_string().contains("cannot be used"), "{error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}
