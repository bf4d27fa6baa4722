//! Access to the API server, which continues when its credentials are rotated.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use kube::Client;
use kube::config::{AuthInfo, Config};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::connection::{connect, without_secrets};
use crate::util::locked;

/// How long refused credentials of a program stay before it runs again: a server may refuse each.
const PROGRAM_PAUSE: Duration = Duration::from_secs(10);

/// How long a program for the credentials may run before another one may.
const PROGRAM_HANGS: Duration = Duration::from_secs(20);
/// The most programs for the credentials at once: one that hangs, and its successor.
const MAX_PROGRAMS: usize = 2;

/// Reads a configuration again.
pub(super) type Reload = Box<dyn Fn() -> BoxFuture<'static, Option<Config>> + Send + Sync>;

/// A client that uses the credentials currently in its kubeconfig, and in the files that this
/// names.
///
/// kube reads the file of a token once a minute, and nothing else. That is soon enough for a token
/// that stays valid beside its successor, as the kubelet rotates tokens. If the old one is refused
/// at once, a minute is longer than a lease; all files are therefore read upon a refusal. The API
/// server refuses a client certificate that has expired with a 401, too. A program for the
/// credentials (`exec`) runs again then, as kube runs it only for a token that expires.
#[derive(Clone)]
pub(super) struct ApiClient(Arc<State>);

struct State {
    current: Mutex<Generation>,
    /// `None`: the client stays.
    renewal: Option<Arc<tokio::sync::Mutex<Renewal>>>,
    programs: Arc<Semaphore>,
}

/// How to create the next client. Locked while that is done.
struct Renewal {
    reload: Reload,
    /// When a client was last created here, or failed to be.
    began: Option<Instant>,
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

/// A client, and the number of clients before it.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) client: Client,
    /// What the client was created with, if it may have a successor.
    credentials: Option<Arc<Credentials>>,
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
        let credentials = Some(Arc::new(Credentials::of(&config)));
        let renewal = Renewal { reload, began: None };
        Ok(Self::new(connect(config)?, credentials, Some(renewal)))
    }

    fn new(
        client: Client,
        credentials: Option<Arc<Credentials>>,
        renewal: Option<Renewal>,
    ) -> Self {
        let current = Mutex::new(Generation { client, credentials, number: 0 });
        let renewal = renewal.map(|renewal| Arc::new(tokio::sync::Mutex::new(renewal)));
        Self(Arc::new(State { current, renewal, programs: Arc::new(Semaphore::new(MAX_PROGRAMS)) }))
    }

    pub(super) fn client(&self) -> Generation {
        locked(&self.0.current).clone()
    }

    /// After the server refused the credentials of `used`: returns whether there is a newer client.
    ///
    /// # Cancel safety
    /// A client whose creation has begun is used once it is there.
    pub(super) async fn renew(&self, used: &Generation) -> bool {
        let Some(renewal) = &self.0.renewal else { return false };
        let mut renewal = Arc::clone(renewal).lock_owned().await;
        let current = self.client();
        if current.number != used.number {
            return true; // another request has renewed it
        }
        let Some(mut config) = (renewal.reload)().await else { return false };
        config.default_retry = false;
        let (Some(before), now) = (current.credentials, Credentials::of(&config)) else {
            return false;
        };
        // The current context may be of another cluster by now: elections stay where they are.
        if before.server != now.server {
            return false;
        }
        let is_due = renewal.began.is_none_or(|began| began.elapsed() >= PROGRAM_PAUSE);
        if *before == now && !(is_due && has_program(&config.auth_info)) {
            return false;
        }
        let Ok(place) = Arc::clone(&self.0.programs).try_acquire_owned() else { return false };
        renewal.began = Some(Instant::now());
        let (state, number) = (Arc::clone(&self.0), current.number);
        // A program for the credentials may take long, or hang: requests with the current client
        // go on, and the next client is used whenever it comes.
        let creating = spawn_blocking(move || {
            let _place = place;
            match connect(config) {
                Ok(client) => {
                    let mut current = locked(&state.current);
                    if current.number == number {
                        let (credentials, number) = (Some(Arc::new(now)), number.wrapping_add(1));
                        *current = Generation { client, credentials, number };
                        info!("credentials refused: reading them again");
                    }
                    true
                }
                Err(error) => {
                    debug!(error = %without_secrets(error), "no client with the new credentials");
                    false
                }
            }
        });
        // It keeps the renewal for a while, so that no other program runs beside it.
        let created = tokio::spawn(async move {
            let _renewal = renewal;
            timeout(PROGRAM_HANGS, creating).await
        });
        match created.await {
            Ok(Ok(created)) => created.unwrap_or(false), // an error: the runtime ends
            Ok(Err(_)) => {
                warn!("the program for the credentials of Kubernetes does not end");
                false
            }
            Err(_) => false, // as above
        }
    }
}

/// Whether a program may run for the credentials.
pub(super) fn has_program(auth: &AuthInfo) -> bool {
    auth.exec.is_some() || auth.auth_provider.is_some()
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
