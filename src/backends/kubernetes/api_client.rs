//! Access to the API server, which continues when its credentials are rotated.

use std::fs;
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};
use kube::Client;
use kube::config::Config;
use tracing::{debug, info};

use super::connection::connect;
use crate::util::locked;

/// Reads a configuration again.
pub(super) type Reload = Box<dyn Fn() -> BoxFuture<'static, Option<Config>> + Send + Sync>;

/// A client that uses the credentials currently in its kubeconfig, and in the files that this
/// names.
///
/// kube reads the file of a token once a minute, and nothing else. That is soon enough for a token
/// that stays valid beside its successor, as the kubelet rotates tokens. If the old one is refused
/// at once, a minute is longer than a lease; all files are therefore read upon a refusal. The API
/// server refuses a client certificate that has expired with a 401, too.
#[derive(Clone)]
pub(super) struct ApiClient(Arc<State>);

struct State {
    /// `None`: the client stays.
    reload: Option<Reload>,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    /// The number of clients before this one.
    number: u64,
    credentials: Option<Credentials>,
}

/// What a client was created with.
#[derive(PartialEq, Eq)]
struct Credentials {
    server: http::Uri,
    /// As in the kubeconfig.
    auth: serde_json::Value,
    /// The contents of the files that it names.
    files: [Option<Vec<u8>>; 3],
}

/// A client, and its number.
pub(super) struct Generation {
    pub(super) client: Client,
    number: u64,
}

/// Returns a function that reads a configuration again.
pub(super) fn reload<F>(read: impl Fn() -> F + Send + Sync + 'static) -> Reload
where
    F: Future<Output = Option<Config>> + Send + 'static,
{
    Box::new(move || read().boxed())
}

impl ApiClient {
    /// Uses this client permanently.
    pub(super) fn from_client(client: Client) -> Self {
        Self::new(client, None, None)
    }

    /// Uses a client created from `config`, and another one once its credentials are refused.
    pub(super) fn with(config: Config, reload: Reload) -> Result<Self, kube::Error> {
        // Before the client reads them, so that newer ones are noticed.
        let credentials = Credentials::of(&config);
        Ok(Self::new(connect(config)?, Some(reload), Some(credentials)))
    }

    fn new(client: Client, reload: Option<Reload>, credentials: Option<Credentials>) -> Self {
        let current = Mutex::new(Current { client, number: 0, credentials });
        Self(Arc::new(State { reload, current }))
    }

    pub(super) fn client(&self) -> Generation {
        let current = locked(&self.0.current);
        Generation { client: current.client.clone(), number: current.number }
    }

    /// After the server refused the credentials of `used`: returns whether there are newer ones.
    pub(super) async fn renew(&self, used: &Generation) -> bool {
        let Some(reload) = &self.0.reload else { return false };
        let Some(mut config) = reload().await else { return false };
        config.default_retry = false;
        let now = Credentials::of(&config);
        let mut current = locked(&self.0.current);
        if current.number != used.number {
            return true; // another request has renewed it
        }
        let Some(known) = &current.credentials else { return false };
        // The current context may be of another cluster by now: elections stay where they are.
        if *known == now || known.server != now.server {
            return false;
        }
        match connect(config) {
            Ok(client) => {
                let number = current.number.wrapping_add(1);
                *current = Current { client, number, credentials: Some(now) };
                info!("credentials refused: using the new ones from their files");
                true
            }
            Err(error) => {
                debug!(%error, "no client with the new credentials");
                false
            }
        }
    }
}

impl Credentials {
    fn of(config: &Config) -> Self {
        let auth = &config.auth_info;
        let files = [&auth.token_file, &auth.client_certificate, &auth.client_key];
        Self {
            server: config.cluster_url.clone(),
            auth: serde_json::to_value(auth).unwrap_or_default(),
            files: files.map(|file| fs::read(file.as_ref()?).ok()),
        }
    }
}
