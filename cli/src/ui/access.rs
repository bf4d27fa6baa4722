//! Who may read: pages of this origin, and with a token those who send it.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::Rights;

/// Refuses requests without the right to read.
pub async fn check(State(rights): State<Rights>, request: Request, next: Next) -> Response {
    match refusal(&rights, request.headers()) {
        Some((status, line)) => (status, line).into_response(),
        None => next.run(request).await,
    }
}

fn refusal(rights: &Rights, headers: &HeaderMap) -> Option<(StatusCode, String)> {
    match rights {
        Rights::Token(..) => {
            return rights.refusal(headers).map(|line| (StatusCode::UNAUTHORIZED, line));
        }
        Rights::Everybody => return None,
        Rights::Nobody => {}
    }
    // Without a token any page in a browser on this host can send requests. One of another origin
    // says so, unless its name was made to resolve to this host: then the name shows it.
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Some((StatusCode::FORBIDDEN, "refused: a request of another page\n".to_owned()));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_loopback) {
        let line = "refused: use the address 127.0.0.1 or the name localhost, or a token\n";
        return Some((StatusCode::FORBIDDEN, line.to_owned()));
    }
    None
}

/// Whether this host and port are of the loopback interface.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(rights: &Rights, fields: &[(&'static str, &'static str)]) -> bool {
        let headers = fields
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        refusal(rights, &headers.collect()).is_some()
    }

    #[test]
    fn without_a_token_only_pages_of_this_host_read() {
        let rights = Rights::Nobody;
        for host in ["127.0.0.1:8610", "localhost:8610", "LOCALHOST", "[::1]:8610", "127.9.9.9"] {
            assert!(!is_refused(&rights, &[("host", host)]), "{host}");
        }
        for host in ["evil.example:8610", "10.0.0.1", "localhost.evil.example", "", "a b", "[::2]"]
        {
            assert!(is_refused(&rights, &[("host", host)]), "{host}");
        }
        assert!(is_refused(&rights, &[]));
        let of = |site| [("host", "127.0.0.1"), ("sec-fetch-site", site)];
        assert!(!is_refused(&rights, &of("same-origin")) && !is_refused(&rights, &of("none")));
        assert!(is_refused(&rights, &of("cross-site")) && is_refused(&rights, &of("same-site")));
    }

    #[test]
    fn with_a_token_everybody_reads_who_sends_it() {
        let rights = Rights::Token("s3cret".into(), "--token-file");
        let sent = |value| [("host", "ui.example"), ("authorization", value)];
        assert!(!is_refused(&rights, &sent("Bearer s3cret")));
        for wrong in ["Bearer s3cre", "Bearer", "s3cret", "Basic s3cret"] {
            assert!(is_refused(&rights, &sent(wrong)), "{wrong}");
        }
        assert!(is_refused(&rights, &[("host", "127.0.0.1")]));
    }
}
