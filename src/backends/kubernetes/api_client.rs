//! Access to the API server, which continues when its credentials are rotated.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::config::Config;
use tracing::{debug, info};

use super::connection::connect;

/// A client that uses the token currently in its token file, if it has one.
///
/// kube reads the file once a minute. That is soon enough for a token that stays valid beside its
/// successor, as the kubelet rotates tokens. If the old token is refused at once, a minute is
/// longer than a lease; the file is therefore also read upon a refusal.
#[derive(Clone)]
pub(super) struct ApiClient(Arc<State>);

struct State {
    /// The configuration of a further client; `None`: there is no file to read.
    config: Option<Config>,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    /// The number of clients before this one.
    number: u64,
    /// The content of the file when the client was created.
    token: Option<String>,
}

/// A client, and its number.
pub(super) struct Generation {
    pub(super) client: Client,
    number: u64,
}

impl ApiClient {
    /// Uses this client permanently.
    pub(super) fn by(client: Client) -> Self {
        Self::new(client, None, None)
    }

    /// Uses a client created from `config`, and another one once its token is refused.
    pub(super) fn with(config: Config) -> Result<Self, kube::Error> {
        let has_file = config.auth_info.token.is_none() && config.auth_info.token_file.is_some();
        let token = token(&config); // before the client reads it, so that a newer one is noticed
        let client = connect(config.clone())?;
        Ok(Self::new(client, has_file.then_some(config), token))
    }

    fn new(client: Client, config: Option<Config>, token: Option<String>) -> Self {
        let current = Mutex::new(Current { client, number: 0, token });
        Self(Arc::new(State { config, current }))
    }

    pub(super) fn client(&self) -> Generation {
        let current = self.current();
        Generation { client: current.client.clone(), number: current.number }
    }

    /// After the server refused the credentials of `used`: returns whether there are newer ones.
    pub(super) fn renew(&self, used: &Generation) -> bool {
        let Some(config) = &self.0.config else { return false };
        let Some(token) = token(config) else { return false };
        let mut current = self.current();
        if current.number != used.number {
            return true; // another request has renewed it
        }
        if current.token.as_ref() == Some(&token) {
            return false;
        }
        match connect(config.clone()) {
            Ok(client) => {
                let number = current.number.wrapping_add(1);
                *current = Current { client, number, token: Some(token) };
                info!("token refused: using the new one from its file");
                true
            }
            Err(error) => {
                debug!(%error, "no client with the new token");
                false
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn token(config: &Config) -> Option<String> {
    fs::read_to_string(config.auth_info.token_file.as_ref()?).ok()
}
