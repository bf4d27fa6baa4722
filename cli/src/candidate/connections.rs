//! Connections of HTTP clients: bounded in number, duration and request size.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// The maximum number of connections. One more closes the oldest, so that a probe is served
/// although other clients keep theirs open.
const MAX_CONNECTIONS: usize = 64;

/// The timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum duration of a connection.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// The maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is closed when its handle is dropped.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves for as long as it is polled.
pub async fn serve(socket: TcpListener, routes: Router) {
    let mut connections: VecDeque<Connection> = VecDeque::with_capacity(MAX_CONNECTIONS);
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.0.is_finished());
                if connections.len() >= MAX_CONNECTIONS {
                    connections.pop_front();
                }
                connections.push_back(Connection(tokio::spawn(answer(stream, routes.clone()))));
            }
            Err(error) => {
                tracing::debug!(%error, "HTTP connection not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one request. The body is not read.
async fn answer(stream: TcpStream, routes: Router) {
    let service = service_fn(move |request: Request<Incoming>| {
        let routes = routes.clone();
        async move {
            Ok::<_, Infallible>(
                routes.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {}),
            )
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(MAX_DURATION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
        Err(_) => tracing::debug!("HTTP connection timed out"),
    }
}
