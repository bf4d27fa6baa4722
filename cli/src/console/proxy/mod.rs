//! `incumbent proxy`: connections to the leader.

mod connections;
mod counters;
mod follow;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use clap::Args;
use incumbent::discovery::LeaderConnector;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use self::connections::Proxied;
use self::counters::Counters;
use crate::console::observe::check_responding;
use crate::error::{CliError, EXIT_CODES};
use crate::http::listen::{Address, Socket};
use crate::http::{HTTP, HttpListener, ServedHttp, metrics, probe};
use crate::lock::{Attempts, LockArgs, check_name};
use crate::output;
use crate::process::signals::StopSignals;

/// Pass connections on to the advertised address of the leader of the election NAME.
///
/// A connection lasts as long as the term of its leader: it is reset once another leader, another
/// token or a vacancy is observed, and at the latest when the leader was not seen to renew within
/// its lease, by the clock of this process. New connections wait for the next leader. The leader
/// advertises host:port, or a URL with a port, with --advertise. Needs the permissions of an
/// observer, and creates nothing. SIGTERM ends it: no new connections, and --drain for the others.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Proxy {
    /// The election; with Kubernetes its object.
    name: String,
    /// Listen at this port of the loopback address, at this address and port, or at this Unix
    /// socket.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH")]
    listen: String,
    /// How long a new connection waits for a leader that accepts it before it is closed, 1s to 1h.
    /// Choose more than the lease to outlast the crash of a leader.
    #[arg(long, default_value = "10s", value_parser = parse_hold)]
    hold: Duration,
    /// The maximum number of connections, those that wait included. One more is closed at once.
    #[arg(long, default_value_t = 1024, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_connections: u32,
    /// How long open connections may continue after the signal to stop; a second signal ends them.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// Serve HTTP at this port of the loopback address, at this address and port, or at this Unix
    /// socket. GET /metrics: for Prometheus. GET /livez: 200. GET /readyz: 200 once the lock has
    /// responded, and while it can be reached.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH")]
    http: Option<String>,
    #[command(flatten)]
    lock: LockArgs,
}

fn parse_hold(text: &str) -> Result<Duration, String> {
    let hold = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match hold.as_secs_f64() {
        1.0..=3600.0 => Ok(hold),
        _ => Err("use a duration of 1s to 1h".to_owned()),
    }
}

/// What connects to the leader, once the lock was opened.
type Connector = Arc<SetOnce<LeaderConnector>>;

impl Proxy {
    pub async fn run(self) -> Result<(), CliError> {
        check_name(&self.name)?;
        let mut signals = StopSignals::listen()?;
        let connector = Connector::default();
        let _http = match &self.http {
            Some(address) => Some(self.serve_http(address, &connector).await?),
            None => None,
        };
        let address = Address::parse("--listen", &self.listen)?;
        let socket = Socket::bind(&address, "listen").await?;
        let at = socket.port().map_or(address.to_string(), |port| port.to_string());
        output::note(format!("listening at {at} for connections to the leader of {}", self.name));
        let proxied = Arc::new(Proxied {
            connector: Arc::clone(&connector),
            hold: self.hold,
            port: socket.port(),
            counters: Counters::new(&self.name),
            own: Mutex::default(),
        });
        let mut connections = connections::Connections::new(allow_files(self.max_connections));
        let followed = async {
            let on_retry = |why: &CliError| output::note(format!("incumbent: {why}"));
            let lock = self
                .lock
                .open_existing(&self.name, None, Attempts::UnlessTimeout, on_retry)
                .await?;
            let observer = incumbent::observe(self.name.as_str(), lock)?;
            let _ = connector.set(LeaderConnector::new(observer.clone())); // it is empty
            follow::follow(observer, self.hold, &proxied.counters).await
        };
        let mut followed = std::pin::pin!(followed);
        let signal = tokio::select! {
            ended = &mut followed => return ended,
            () = connections.accept(&proxied, socket) => return Ok(()),
            signal = signals.next() => signal,
        };
        tokio::select! {
            ended = &mut followed => return ended,
            () = connections.ended() => {}
            () = tokio::time::sleep(self.drain) => {}
            _ = signals.next() => {}
        }
        Err(CliError::Signal(signal))
    }

    /// Must be called before metrics are recorded.
    async fn serve_http(
        &self,
        address: &str,
        connector: &Connector,
    ) -> Result<ServedHttp, CliError> {
        let listener = HttpListener::bind(HTTP, address, None, None).await?;
        let (name, connector) = (self.name.clone(), Arc::clone(connector));
        let ready = move || match connector.get() {
            Some(connector) => {
                check_responding(&name, connector.observer()).map(|()| "ok".to_owned())
            }
            None => Err("connecting to the lock".to_owned()),
        };
        let probes =
            Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(probe(ready)));
        let routes = listener.routes(probes, metrics()?);
        Ok(listener.serve(routes))
    }
}

/// Raises the limit of open files to what this many connections need, and returns how many it is
/// enough for.
#[cfg(unix)]
fn allow_files(connections: u32) -> u32 {
    const OTHERS: u64 = 64;
    let wanted = 2 * u64::from(connections) + OTHERS;
    let allowed = crate::process::allow_files(wanted);
    if allowed >= wanted {
        return connections;
    }
    let fit = u32::try_from(allowed.saturating_sub(OTHERS) / 2).unwrap_or(connections).max(1);
    output::note(format!(
        "incumbent: {connections} connections need {wanted} open files, and {allowed} are allowed: \
         one more than {fit} is closed; raise `ulimit -n`, or lower --max-connections"
    ));
    fit
}

#[cfg(not(unix))]
fn allow_files(connections: u32) -> u32 {
    connections
}
