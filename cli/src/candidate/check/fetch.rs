//! A check by a request to a URL.

use std::error::Error;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;

use super::output::Tail;
use crate::error::one_line;
use crate::error::{CliError, Code};

/// The most bytes of a body that are read for the reason of a failure.
const MAX_BODY: usize = 64 * 1024;

/// A URL that is fetched again and again.
#[derive(Clone)]
pub struct Fetch {
    url: Uri,
    client: Client,
}

/// Only https needs the certificates of this machine, which a small container may lack.
#[derive(Clone)]
enum Client {
    Http(legacy::Client<HttpConnector, Body>),
    Https(legacy::Client<HttpsConnector<HttpConnector>, Body>),
}

impl Fetch {
    pub fn new(url: Uri) -> Result<Self, CliError> {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_max_idle_per_host(0); // a new connection is part of the check
        let client = match url.scheme_str() {
            Some("https") => {
                let tls = HttpsConnectorBuilder::new()
                    .with_provider_and_native_roots(ring::default_provider())
                    .map_err(|error| {
                        let why = one_line(&error);
                        let message = format!("--check: no certificates on this machine: {why}");
                        CliError::new(Code::Failed, message)
                    })?;
                Client::Https(builder.build(tls.https_only().enable_http1().build()))
            }
            _ => Client::Http(builder.build(HttpConnector::new())),
        };
        Ok(Self { url, client })
    }

    /// Fetches it once.
    pub async fn run(&self) -> Result<(), String> {
        let request = Request::get(&self.url)
            .header("user-agent", concat!("incumbent/", env!("CARGO_PKG_VERSION")))
            .body(Body::empty())
            .map_err(|error| one_line(&error))?;
        let response = match &self.client {
            Client::Http(client) => client.request(request).await,
            Client::Https(client) => client.request(request).await,
        };
        match response {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(reason(response).await),
            Err(error) => Err(format!("no response: {}", one_line(cause(&error)))),
        }
    }
}

/// The status, and the last line of the body.
async fn reason(response: Response<Incoming>) -> String {
    let status = response.status();
    let mut tail = Tail::default();
    if let Ok(body) = to_bytes(Body::new(response.into_body()), MAX_BODY).await {
        tail.push(&body);
    }
    match tail.last_line() {
        Some(line) => format!("{status}: {line}"),
        None => status.to_string(),
    }
}

/// The client names itself first.
fn cause(error: &legacy::Error) -> &(dyn Error + 'static) {
    error.source().unwrap_or(error)
}
