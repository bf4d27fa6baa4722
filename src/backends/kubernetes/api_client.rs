//! The way to the API server, which goes on when its credentials are exchanged.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::config::Config;
use tracing::{debug, info};

/// Makes requests with the token that is in its file now, where it is in one.
///
/// kube reads the file once a minute, which is soon enough for a token that stays valid beside its successor, as the kubelet
/// has it. Where the old one is refused at once, a minute is longer than a lease; so the file is read when that happens.
#[derive(Clone)]
pub(super) struct ApiClient(Arc<State>);

struct State {
    /// How to make another client; `None` where there is no file to read.
    config: Option<Config>,
    current: Mutex<Current>,
}

struct Current {
    client: Client,
    /// How many clients there were before it.
    number: u64,
    /// What was in the file when it was made.
    token: Option<String>,
}

/// A client, and which one it is.
pub(super) struct Generation {
    pub(super) client: Client,
    number: u64,
}

impl ApiClient {
    /// By this client for ever.
    pub(super) fn by(client: Client) -> Self {
        Self::new(client, None, None)
    }

    /// By a client made from `config`, or another one once its token is refused.
    pub(super) fn with(config: Config) -> Result<Self, kube::Error> {
        let has_file = config.auth_info.token.is_none() && config.auth_info.token_file.is_some();
        let token = token(&config); // before the client reads it: a newer one is taken up later
        let client = Client::try_from(config.clone())?;
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

    /// After the server has refused the credentials of `used`: whether there are others by now.
    pub(super) fn renew(&self, used: &Generation) -> bool {
        let Some(config) = &self.0.config else { return false };
        let Some(token) = token(config) else { return false };
        let mut current = self.current();
        if current.number != used.number {
            return true; // somebody else was faster
        }
        if current.token.as_ref() == Some(&token) {
            return false;
        }
        match Client::try_from(config.clone()) {
            Ok(client) => {
                let number = current.number.wrapping_add(1);
                *current = Current { client, number, token: Some(token) };
                info!("the API server refuses the token: going on with the new one in its file");
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
