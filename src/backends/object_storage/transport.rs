//! How requests reach the store: HTTP with rustls, and note of what became of each.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::uri::Scheme;
use http_body_util::BodyExt;
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

/// What became of one request, for whoever put it into the request's extensions.
#[derive(Debug, Clone, Default)]
pub(super) struct Exchange(Arc<Mutex<Outcome>>);

/// See [`Exchange`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) reached: Reached,
    pub(super) status: Option<u16>,
    /// For how long the store wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reached {
    /// It was never made: credentials for it are asked for first.
    #[default]
    Nowhere,
    /// It was not sent, as it would have gone in clear.
    InClear,
    /// There was no connection for it.
    NoConnection,
    /// The store may have seen it.
    Store,
}

impl Exchange {
    /// Extensions of a request whose outcome is wanted.
    pub(super) fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(self.clone());
        extensions
    }

    pub(super) fn outcome(&self) -> Outcome {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, outcome: Outcome) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
    }
}

/// Makes clients. Of `ClientOptions` only `allow_http` is used, which those for the metadata of a cloud's machines have.
#[derive(Debug, Clone, Default)]
pub(super) struct Connector {
    /// Whether requests may go in clear, whatever the options say.
    allow_http: Arc<AtomicBool>,
}

impl Connector {
    /// From now on requests may go in clear.
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
        // A request that was never put on the wire, since its connection had been closed, is sent on another one; nothing
        // else is ever sent twice.
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_timer(TokioTimer::new())
            .build(tls);
        let told = options.get_config_value(&ClientConfigKey::AllowHttp).unwrap_or_default();
        // As object_store reads it.
        let allow_http = match &*told.to_ascii_lowercase() {
            "1" | "true" | "on" | "yes" | "y" => Arc::new(AtomicBool::new(true)),
            _ => Arc::clone(&self.allow_http),
        };
        Ok(HttpClient::new(Transport { client, allow_http }))
    }
}

struct Transport {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    allow_http: Arc<AtomicBool>,
}

/// Why a request was not sent.
#[derive(Debug)]
struct InClear;

impl fmt::Display for InClear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "its address begins with http://, and credentials would be sent in clear: use https://, or allow it (allow-http in the URL)",
        )
    }
}

impl std::error::Error for InClear {}

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
            let exchange = request.extensions().get::<Exchange>().cloned().unwrap_or_default();
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
            let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
            Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
        })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}
