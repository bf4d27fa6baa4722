//! How a connection to NATS is made, by the library and by the program.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Auth, ConnectOptions, ReconnectToServer, ServerAddr, ServerInfo, ToServerAddrs};
use percent_encoding::percent_decode_str;

/// The longest wait between two attempts to reconnect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// [`ConnectOptions::new`], with attempts to reconnect that a short lease survives.
///
/// The client's own attempts come more and more rarely, up to 4 s apart: after a server was away
/// for two seconds, a leader finds it two seconds later. These are at most half a second apart, at
/// random, so that a fleet does not reconnect in one moment.
pub fn connect_options() -> ConnectOptions {
    with_quick_reconnects(ConnectOptions::new())
}

pub(super) fn with_quick_reconnects(options: ConnectOptions) -> ConnectOptions {
    options.reconnect_delay_callback(reconnect_delay)
}

fn reconnect_delay(attempt: usize) -> Duration {
    // The first one comes at once.
    let doubled = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let longest = if doubled == 0 { 0 } else { 5_u64 << doubled };
    let longest = Duration::from_millis(longest).min(MAX_RECONNECT_DELAY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The files of TLS. Each that is set requires TLS of every server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificates of the authorities to trust, instead of the machine's.
    pub authorities: Option<PathBuf>,
    /// The client's certificate, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Completes `options` for these servers. Returns the options with the addresses to connect to.
///
/// - **TLS is required** of every server, also of one that a server of the cluster names later, if
///   `tls` has a file or an address begins with `tls://`. The client by itself then sends the
///   credentials in clear to a server that offers no TLS.
/// - The user and the password of an address, or a token instead of both, are decoded and used for
///   all servers. The returned addresses are without them: the client would log them.
///
/// # Errors
/// An address cannot be parsed, or is one of a WebSocket, which the client would take for plain
/// TCP. To use WebSockets, connect by the client itself, and call
/// [`Connection::new`](super::Connection::new).
pub fn with_servers(
    options: ConnectOptions,
    servers: impl ToServerAddrs,
    tls: &TlsFiles,
) -> io::Result<(ConnectOptions, Vec<ServerAddr>)> {
    let addresses: Vec<ServerAddr> = servers.to_server_addrs()?.collect();
    if let Some(address) = addresses.iter().find(|address| address.is_websocket()) {
        let message = format!("{}:// is not supported: use nats:// or tls://", address.scheme());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut options = options;
    options = match user_of(&addresses) {
        Auth { username: Some(user), password: Some(password), .. } => {
            options.user_and_password(user, password)
        }
        Auth { token: Some(token), .. } => options.token(token),
        _ => options,
    };
    let TlsFiles { authorities, client } = tls;
    let requires_tls =
        authorities.is_some() || client.is_some() || addresses.iter().any(ServerAddr::tls_required);
    if requires_tls {
        options = options.require_tls(true).reconnect_to_server_callback(without_websockets);
    }
    if let Some(file) = authorities {
        options = options.add_root_certificates(file.clone());
    }
    if let Some((certificate, key)) = client {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    let bare = addresses.into_iter().filter_map(without_user).collect();
    Ok((options, bare))
}

/// Chooses among the servers without WebSockets, if one is advertised: the client would connect to
/// it without TLS, and a middleman who alters a server's first message, which is in clear, can add
/// one.
pub(super) async fn without_websockets(
    servers: Vec<async_nats::Server>,
    _: ServerInfo,
) -> Option<ReconnectToServer> {
    servers.iter().find(|server| server.addr.is_websocket())?;
    let fits = servers.into_iter().filter(|server| !server.addr.is_websocket());
    let chosen = fits.min_by_key(|server| (server.failed_attempts, fastrand::u32(..)))?;
    Some(ReconnectToServer { addr: chosen.addr, delay: None })
}

/// Returns the user and the password of the first address that has them, or the token.
pub(super) fn user_of(addresses: &[ServerAddr]) -> Auth {
    let decoded = |text: &str| Some(percent_decode_str(text).decode_utf8_lossy().into_owned());
    let mut auth = Auth::new();
    if let Some(address) = addresses.iter().find(|address| address.has_user_pass()) {
        let user = decoded(address.username().unwrap_or_default());
        match address.password() {
            Some(password) => (auth.username, auth.password) = (user, decoded(password)),
            None => auth.token = user,
        }
    }
    auth
}

/// Removes the user and password from an address.
fn without_user(address: ServerAddr) -> Option<ServerAddr> {
    let mut url = address.into_inner();
    // An error means that the URL cannot have a user.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    ServerAddr::from_url(url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str, failed_attempts: usize) -> async_nats::Server {
        let (did_connect, is_discovered, last_error) = (false, true, None);
        let addr = url.parse().unwrap();
        async_nats::Server { addr, failed_attempts, did_connect, is_discovered, last_error }
    }

    #[tokio::test]
    async fn advertised_websocket_is_not_connected_to() {
        let (used, bad) = (server("nats://used", 3), server("ws://bad", 0));
        let choose = |servers| without_websockets(servers, ServerInfo::default());
        let chosen = choose(vec![used.clone(), bad.clone(), server("nats://next", 1)]).await;
        assert_eq!(chosen.unwrap().addr.host(), "next");
        assert_eq!(choose(vec![bad.clone(), used.clone()]).await.unwrap().addr.host(), "used");
        assert!(choose(vec![used]).await.is_none(), "the client chooses");
    }

    #[test]
    fn addresses_are_returned_without_users() {
        let servers = ["tls://me:p%40ss@a", "b:4223"];
        let (_, addresses) =
            with_servers(connect_options(), &servers[..], &TlsFiles::default()).unwrap();
        let shown: Vec<&str> = addresses.iter().map(ServerAddr::as_url_str).collect();
        assert_eq!(shown, ["tls://a", "nats://b:4223"]);
        for refused in ["ws://a", "wss://me:s3cret@a", "http://a", "nats://a:x"] {
            let error = with_servers(connect_options(), refused, &TlsFiles::default());
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn attempts_to_reconnect_come_often_and_not_in_step() {
        assert_eq!(reconnect_delay(1), Duration::ZERO);
        for attempt in [2, 5, 20, usize::MAX] {
            assert!(reconnect_delay(attempt) <= MAX_RECONNECT_DELAY);
            assert!(reconnect_delay(attempt) >= Duration::from_millis(5));
            assert_ne!(reconnect_delay(attempt), reconnect_delay(attempt));
        }
        assert!(reconnect_delay(20) >= MAX_RECONNECT_DELAY / 2);
    }
}
