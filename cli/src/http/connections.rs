//! Connections of HTTP clients: bounded in number, duration and request size.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::serve::Listener;
use futures_util::{Stream, StreamExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt;

use crate::process::BackgroundTask;

/// The maximum number of connections. One more closes the oldest of the client that has the most:
/// a probe is served although another client keeps many open, which closes none but its own.
const MAX_CONNECTIONS: usize = 64;

/// The timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum duration of a connection, unless its request extends it.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// How long a client is sent events. It connects again then.
const MAX_EVENTS: Duration = Duration::from_secs(3600);

/// The maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// How long a client may acknowledge nothing of what it is sent. One that vanished keeps its place
/// among those that are sent events no longer than this after a comment, rather than for the many
/// minutes of retransmissions.
#[cfg(target_os = "linux")]
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Has the system end this connection once its client is silent for too long, where it can.
pub fn drop_silent(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        let most = u32::try_from(MAX_SILENCE.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, most); // an error: it has ended
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// Until when a connection may last, for the request on it.
#[derive(Clone)]
pub struct Extent(watch::Sender<Instant>);

impl Extent {
    /// Adds the wait of this request.
    pub fn extend(&self, wait: Duration) {
        self.0.send_modify(|end| *end += wait);
    }

    /// The response with these events, each of which is taken once the client is sent it.
    pub fn events(
        &self,
        events: impl Stream<Item = Event> + Send + 'static,
    ) -> Sse<impl Stream<Item = Result<Event, Infallible>> + Send + 'static> {
        self.extend(MAX_EVENTS);
        Sse::new(events.take_until(sleep(MAX_EVENTS)).map(Ok))
    }
}

/// Waits until the connection may last no longer.
async fn end_of(mut extent: watch::Receiver<Instant>) {
    loop {
        let end = *extent.borrow_and_update();
        tokio::select! {
            () = sleep_until(end) => return,
            Ok(()) = extent.changed() => {}
        }
    }
}

/// A connection that is served, and its client; `None` at a Unix socket.
struct Connection {
    client: Option<IpAddr>,
    task: BackgroundTask,
}

/// Serves for as long as it is polled. `client`: whose connection it is.
pub async fn serve<L: Listener>(
    mut socket: L,
    client: impl Fn(&L::Addr) -> Option<IpAddr>,
    routes: Router,
) {
    let mut connections: VecDeque<Connection> = VecDeque::with_capacity(MAX_CONNECTIONS);
    loop {
        let (stream, address) = socket.accept().await; // pauses after an error
        connections.retain(|connection| !connection.task.0.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            let clients: Vec<_> = connections.iter().map(|connection| connection.client).collect();
            drop(connections.remove(oldest_of_busiest(&clients)));
        }
        let task = BackgroundTask(tokio::spawn(answer(stream, routes.clone())));
        connections.push_back(Connection { client: client(&address), task });
    }
}

/// What counts as one client: an address, or the network of an IPv6 host, which has any number of
/// addresses.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        v4 => v4,
    }
}

/// The position of the oldest connection of the client that has the most.
fn oldest_of_busiest(clients: &[Option<IpAddr>]) -> usize {
    let count = |client| clients.iter().filter(|other| *other == client).count();
    // Of equal ones `max_by_key` returns the last.
    (0..clients.len()).rev().max_by_key(|at| count(&clients[*at])).unwrap_or_default()
}

/// Serves one request. The routes bound its body.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) {
    let (end, extent) = watch::channel(Instant::now() + MAX_DURATION);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let routes = routes.clone();
        request.extensions_mut().insert(Extent(end.clone()));
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
    tokio::select! {
        served = connection => if let Err(error) = served {
            tracing::debug!(%error, "HTTP connection failed");
        },
        () = end_of(extent) => tracing::debug!("HTTP connection timed out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_client_loses_its_oldest_connection() {
        let address = |last| Some(IpAddr::from([127, 0, 0, last]));
        let (probe, busy) = (address(1), address(2));
        assert_eq!(oldest_of_busiest(&[probe, busy, busy, probe, busy]), 1);
        assert_eq!(oldest_of_busiest(&[probe, busy]), 0);
        assert_eq!(oldest_of_busiest(&[None, None, None]), 0);
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:aaaa::1"), network("2001:db8:1:2:bbbb::2"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_in_time_unless_its_request_waits() {
        const WAIT: Duration = Duration::from_secs(60);
        for waits in [false, true] {
            let begun = Instant::now();
            let (end, extent) = watch::channel(begun + MAX_DURATION);
            let request = async {
                tokio::time::sleep(MAX_DURATION / 2).await;
                let extent = Extent(end);
                if waits {
                    extent.extend(WAIT);
                }
            };
            tokio::join!(end_of(extent), request);
            let expected = if waits { MAX_DURATION + WAIT } else { MAX_DURATION };
            // Timers have a resolution of a millisecond.
            assert_eq!(begun.elapsed().as_secs(), expected.as_secs());
        }
    }
}
