//! Connections to the API server.

use std::error::Error;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{AuthError, Body, ClientBuilder, ConfigExt};
use kube::config::Config;
use tower::BoxError;
use tower::util::{MapErrLayer, option_layer};

use crate::util::text::causes;

/// Creates a client as kube does, but one that never retries by itself, and whose connections
/// send at once.
pub(super) fn connect(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config); // only kube has the credentials for a proxy
    }
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp())?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http = legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let builder = ClientBuilder::new(http, config.default_namespace.clone())
        .with_layer(&MapErrLayer::new(BoxError::from))
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer());
    Ok(builder.build())
}

/// kube's connector leaves Nagle's algorithm on. The first request of a connection then waits until
/// the server acknowledges the end of the TLS handshake, which Linux may delay by 40 ms. Such is
/// the write of a standby that takes over: it holds only the connection of its watch.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false); // TLS is put on top
    tcp.set_nodelay(true);
    tcp
}

/// Returns the error, unless it repeats a secret. The URL of a proxy may contain a password. So may
/// the command of a program for the credentials, and its output is the credentials.
pub(super) fn without_secrets(error: kube::Error) -> Box<dyn Error + Send + Sync> {
    if let kube::Error::ProxyProtocolUnsupported { .. }
    | kube::Error::ProxyProtocolDisabled { .. } = error
    {
        return "the URL of the proxy (HTTPS_PROXY, or proxy-url of the kubeconfig) must begin with http://, https:// or socks5://".into();
    }
    let auth = causes(&error).find_map(|cause| cause.downcast_ref::<AuthError>());
    match auth {
        Some(AuthError::AuthExecRun { out, .. }) => {
            format!("the program for the credentials failed ({}): run it to see why", out.status)
                .into()
        }
        Some(AuthError::AuthExecStart(error)) => {
            format!("the program for the credentials cannot be started: {error}").into()
        }
        Some(
            error @ (AuthError::ReadTokenFile(..)
            | AuthError::MissingCommand
            | AuthError::ExecMissingClusterInfo
            | AuthError::ExecPluginFailed
            | AuthError::UnrefreshableTokenResponse),
        ) => error.to_string().into(),
        Some(_) => "the credentials, or what the program for them printed, cannot be used: check the user of the kubeconfig".into(),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tower::Service;

    use super::*;

    #[tokio::test]
    async fn first_request_of_a_connection_is_not_held_back() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", server.local_addr().unwrap());
        let connection = tcp().call(url.parse().unwrap()).await.unwrap();
        assert!(connection.inner().nodelay().unwrap());
    }
}
