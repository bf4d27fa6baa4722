//! The transport to the store: HTTP with rustls, and a record of each request's outcome.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::uri::Scheme;
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, Extensions};
use rustls::crypto::ring;

use crate::util::locked;

/// The maximum size of a response in bytes: that of a list of 1,000 objects.
const MAX_RESPONSE_LEN: usize = 8 << 20;
/// The ends of the addresses of the stores that are known to respect conditions.
const CLOUDS: [&str; 2] = [".googleapis.com", ".core.windows.net"];

/// The outcome of one request, for the caller that puts it into the request's extensions.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange(Arc<Mutex<Outcome>>);

/// See [`Exchange`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) reached: Reached,
    pub(super) status: Option<u16>,
    /// How long the store asks clients to wait.
    pub(super) retry_after: Option<Duration>,
}

/// How far a request got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reached {
    /// The request was never sent: its credentials are requested first.
    #[default]
    Nowhere,
    /// The request was not sent, as it would have been sent in clear.
    InClear,
    /// There was no connection for the request.
    NoConnection,
    /// The store may have received the request.
    Store,
}

impl Exchange {
    /// Returns the extensions for a request whose outcome is recorded.
    pub(super) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    pub(super) fn outcome(&self) -> Outcome {
        *locked(&self.0)
    }

    fn note(&self, outcome: Outcome) {
        *locked(&self.0) = outcome;
    }
}

/// Creates HTTP clients. Of `ClientOptions`, only `allow_http` is used, which the clients for a
/// cloud machine's metadata set.
#[derive(Debug, Clone, Default)]
pub(super) struct Connector {
    /// Whether requests may be sent in clear, whatever the options state.
    allow_http: Arc<AtomicBool>,
    /// Whether a store of an address that is not a cloud's own got a request. The address may come
    /// from the builder, the environment, or a file of credentials.
    reached_another: Arc<AtomicBool>,
}

impl Connector {
    pub(super) fn reached_another_store(&self) -> bool {
        self.reached_another.load(Ordering::Relaxed)
    }

    /// Allows all following requests to be sent in clear.
    pub(super) fn allow_http(&self) {
        self.allow_http.store(true, Ordering::Relaxed);
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(ring::default_provider())
            .map_err(|error| object_store::Error::Generic {
                store: "TLS",
                source: Box::new(error),
            })?
            .https_or_http()
            .enable_http1()
            .build();
        // A request that was never put on the wire, since its connection had been closed, is sent
        // on another connection. Nothing else is ever sent twice.
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_timer(TokioTimer::new())
            .build(tls);
        let value = options.get_config_value(&ClientConfigKey::AllowHttp).unwrap_or_default();
        // Parses the value like object_store.
        let allow_http = match &*value.to_ascii_lowercase() {
            "1" | "true" | "on" | "yes" | "y" => Arc::new(AtomicBool::new(true)),
            _ => Arc::clone(&self.allow_http),
        };
        let reached_another = Arc::clone(&self.reached_another);
        Ok(HttpClient::new(Transport { client, allow_http, reached_another }))
    }
}

struct Transport {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    allow_http: Arc<AtomicBool>,
    reached_another: Arc<AtomicBool>,
}

/// The reason why a request was not sent.
#[derive(Debug, thiserror::Error)]
#[error(
    "its address begins with http://, and credentials would be sent in clear: use https://, or allow it (allow-http in the URL)"
)]
struct InClear;

impl HttpService for Transport {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let exchange = request.extensions().get::<Exchange>().cloned();
            let host = request.uri().host().unwrap_or_default();
            if exchange.is_some() && !CLOUDS.iter().any(|cloud| host.ends_with(cloud)) {
                self.reached_another.store(true, Ordering::Relaxed);
            }
            let exchange = exchange.unwrap_or_default();
            if request.uri().scheme() != Some(&Scheme::HTTPS)
                && !self.allow_http.load(Ordering::Relaxed)
            {
                exchange.note(Outcome { reached: Reached::InClear, ..Outcome::default() });
                return Err(HttpError::new(HttpErrorKind::Unknown, InClear));
            }
            exchange.note(Outcome { reached: Reached::Store, ..Outcome::default() });
            let response = match self.client.request(request).await {
                Ok(response) => response,
                Err(error) if error.is_connect() => {
                    exchange.note(Outcome { reached: Reached::NoConnection, ..Outcome::default() });
                    return Err(HttpError::new(HttpErrorKind::Connect, error));
                }
                Err(error) => return Err(HttpError::new(HttpErrorKind::Unknown, error)),
            };
            let retry_after = response.headers().get(RETRY_AFTER);
            let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
            exchange.note(Outcome {
                reached: Reached::Store,
                status: Some(response.status().as_u16()),
                retry_after: retry_after.map(Duration::from_secs),
            });
            let broken =
                |error| HttpError::new(HttpErrorKind::Interrupted, io::Error::other(error));
            let limited = |body| Limited::new(body, MAX_RESPONSE_LEN).map_err(broken);
            Ok(response.map(|body| HttpResponseBody::new(limited(body))))
        })
    }
}

partial_debug!(Transport, self);
