//! Connections of HTTP clients: few at once, each for one request and for a short time, whatever the clients do.

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

/// The most connections at once. One more ends the oldest: a probe gets its answer, however many clients hold theirs open.
const AT_ONCE: usize = 64;

/// How long a client may take for the head of its request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// How long a connection may last, with its request and its answer.
const LASTS: Duration = Duration::from_secs(10);

/// The most bytes of a request's head.
const LARGEST_HEAD: usize = 16 * 1024;

/// How long to wait before the next connection is taken, where none can be had.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that ends with whoever has it.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers for as long as it is polled.
pub async fn serve(socket: TcpListener, routes: Router) {
    let mut connections: VecDeque<Connection> = VecDeque::with_capacity(AT_ONCE);
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                connections.retain(|connection| !connection.0.is_finished());
                if connections.len() >= AT_ONCE {
                    connections.pop_front();
                }
                connections.push_back(Connection(tokio::spawn(answer(stream, routes.clone()))));
            }
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection is not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer. The body of a request says nothing to anybody here: it is not read.
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
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(LARGEST_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LASTS, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP connection failed"),
        Err(_) => tracing::debug!("an HTTP connection lasted too long"),
    }
}
