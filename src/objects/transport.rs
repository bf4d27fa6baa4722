//! How requests reach the store: HTTP with rustls, and note of what became of each.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Extensions};
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

/// Makes clients. What `ClientOptions` say of TLS, timeouts and proxies is not used.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
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
        Ok(HttpClient::new(Transport(client)))
    }
}

struct Transport(Client<HttpsConnector<Tcp>, HttpRequestBody>);

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
            exchange.note(Outcome { reached: Reached::Store, ..Outcome::default() });
            let response = match self.0.request(request).await {
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
