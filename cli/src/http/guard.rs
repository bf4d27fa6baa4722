//! Which requests are answered: one decision for every listener of the program.
//!
//! A browser carries requests of any page to a port of its host, and to a socket that is forwarded
//! to one, as by `ssh -L`. A page of another origin says so in `Sec-Fetch-Site` or `Origin`. One
//! whose name was made to resolve to this host (DNS rebinding) is of the same origin, but sends its
//! name as `Host`: an IP address cannot be made to resolve, so a name is answered only if it is
//! known to be of this host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::error::one_line;
use crate::error::{CliError, Code};

/// The most bytes of a token.
const MAX_TOKEN: u64 = 4096;

/// Domains in which a cluster names its services and hosts, and which nobody else can have.
const CLUSTER: [&str; 4] = ["svc", "cluster.local", "internal", "localhost"];

/// Where the domains stand in which this host looks names up.
const RESOLVER: &str = "/etc/resolv.conf";

/// Who may act, beside what every request has to fulfil.
#[derive(Debug, Clone)]
pub enum Permission {
    Nobody,
    /// Everybody: the mode of the socket decides who connects.
    Everybody,
    /// Those who send it. With the flag that gave it, for refusals.
    Token(Arc<str>, &'static str),
}

/// What a route does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It returns what anybody may know: it is not guarded.
    Public,
    /// It returns data.
    Read,
    /// It returns data to those who send the token, if there is one.
    ReadWithToken,
    /// It acts.
    Act,
}

/// What decides whether a request is answered.
#[derive(Debug, Clone)]
pub struct Guard {
    pub permission: Permission,
    /// The names of this host.
    names: Arc<[String]>,
    /// The domains whose names are answered, and those without a dot; `None`: no others. Where
    /// other hosts reach the listener, they may have any name for it.
    domains: Option<Arc<[String]>>,
}

/// Routes of which each group is guarded. A listener serves no others.
#[derive(Default)]
pub struct GuardedRoutes(Router);

impl GuardedRoutes {
    /// Adds routes that do this.
    pub fn with(self, guard: &Guard, access: Access, routes: Router) -> Self {
        Self(self.0.merge(match access {
            Access::Public => routes,
            _ => routes.route_layer(from_fn_with_state((guard.clone(), access), check)),
        }))
    }

    /// Adds the routes of a page below this path.
    pub fn nest(self, path: &str, page: Self) -> Self {
        Self(self.0.nest(path, page.0))
    }

    /// Changes all routes, as by a layer.
    pub fn map(self, change: impl FnOnce(Router) -> Router) -> Self {
        Self(change(self.0))
    }

    pub(super) fn into_router(self) -> Router {
        self.0
    }
}

/// Refuses requests that are not to be answered.
async fn check(
    State((guard, access)): State<(Guard, Access)>,
    request: Request,
    next: Next,
) -> Response {
    match guard.refusal(access, request.method(), request.headers()) {
        Some((status, line)) => (status, format!("refused: {line}\n")).into_response(),
        None => next.run(request).await,
    }
}

impl Guard {
    /// The guard of a listener. `advertised`: the address at which clients reach this process.
    pub fn new(permission: Permission, is_exposed: bool, advertised: Option<&str>) -> Self {
        let own = gethostname::gethostname().to_string_lossy().into_owned();
        let resolver = fs::read_to_string(RESOLVER).unwrap_or_default();
        Self::named(permission, is_exposed, advertised, &own, &resolver)
    }

    fn named(
        permission: Permission,
        is_exposed: bool,
        advertised: Option<&str>,
        own: &str,
        resolver: &str,
    ) -> Self {
        let lists = resolver.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next().filter(|word| matches!(*word, "search" | "domain")).map(|_| words)
        });
        let searched: Vec<&str> = lists.flatten().collect();
        let short = own.split('.').next().unwrap_or(own);
        let of_domains = searched.iter().map(|domain| format!("{short}.{domain}"));
        let advertised = advertised.and_then(|address| {
            let address = address.split_once("://").map_or(address, |(_, rest)| rest);
            let authority = address.split(['/', '?', '#']).next()?;
            Some(authority.parse::<Authority>().ok()?.host().to_owned())
        });
        let names = ["localhost", own, short].map(str::to_owned).into_iter();
        let names = names.chain(of_domains).chain(advertised).map(|name| plain(&name)).collect();
        let domains = CLUSTER.iter().chain(&searched).map(|domain| plain(domain)).collect();
        Self { permission, names, domains: is_exposed.then_some(domains) }
    }

    /// Why the request is refused; `None` if it is not.
    fn refusal(
        &self,
        access: Access,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, String)> {
        let is_forbidden = |line: &str| Some((StatusCode::FORBIDDEN, line.to_owned()));
        let has_token = match &self.permission {
            Permission::Token(token, flag) => {
                let has_token = is_sent(token, headers);
                let status = match access {
                    Access::Act => StatusCode::FORBIDDEN,
                    _ => StatusCode::UNAUTHORIZED,
                };
                if !has_token && matches!(access, Access::Act | Access::ReadWithToken) {
                    let line =
                        format!("send the token of {flag}, as in `Authorization: Bearer TOKEN`");
                    return Some((status, line));
                }
                has_token
            }
            Permission::Nobody | Permission::Everybody => false,
        };
        // No other page knows the token, and a browser adds none by itself.
        if !has_token {
            if is_of_another_page(access, method, headers) {
                return is_forbidden("a request of another page");
            }
            if !self.is_own_name(headers) {
                let line = "use an IP address, the name localhost or that of this host, or a token";
                return is_forbidden(line);
            }
        }
        match (&self.permission, access) {
            (Permission::Nobody, Access::Act) => is_forbidden(
                "start this candidate with --http unix:PATH, or with --http-token-file",
            ),
            _ => None,
        }
    }

    /// Whether the name that the client used for this process is one of it.
    fn is_own_name(&self, headers: &HeaderMap) -> bool {
        // Every browser sends it.
        let Some(host) = headers.get(header::HOST) else { return true };
        let authority = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        let Some(authority) = authority else { return false };
        let name = plain(authority.host());
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let is_in = |domain: &String| {
            name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.'))
        };
        !name.is_empty()
            && (address.parse::<IpAddr>().is_ok()
                || self.names.contains(&name)
                || (self.domains.as_ref())
                    .is_some_and(|all| !name.contains('.') || all.iter().any(is_in)))
    }
}

/// A name as names are compared.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Whether a page of another origin sent the request. One that only follows a link reads nothing:
/// the browser leaves that page, while in a frame a page could open any number of them.
fn is_of_another_page(access: Access, method: &Method, headers: &HeaderMap) -> bool {
    let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
    match (header("sec-fetch-site"), header("origin")) {
        (Some(b"same-origin" | b"none"), _) | (None, None) => false,
        (Some(_), _) => {
            let is_link = access == Access::Read
                && header("sec-fetch-mode") == Some(b"navigate")
                && header("sec-fetch-dest") == Some(b"document");
            !(is_link && matches!(*method, Method::GET | Method::HEAD))
        }
        (None, Some(origin)) => {
            let authority = origin.windows(3).position(|three| three == b"://");
            let authority = authority.and_then(|at| origin.get(at + 3..));
            authority != header("host")
        }
    }
}

/// Whether the request has this token.
fn is_sent(token: &str, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|given| given.to_str().ok()?.strip_prefix("Bearer "));
    // The length of a token is no secret.
    given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(token.as_bytes())))
}

impl Permission {
    /// Reads the token of a file, which only its owner and group may read.
    pub fn of_file(flag: &'static str, path: &Path) -> Result<Self, CliError> {
        let failed = |why: String| {
            let message = format!("{flag} {}: {why}", path.display());
            CliError::new(Code::Usage, message)
        };
        let cannot = |error: io::Error| failed(one_line(&error));
        let file = File::open(path).map_err(cannot)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.metadata().map_err(cannot)?.permissions().mode();
            if mode & 0o007 != 0 {
                return Err(failed("all users may access it: `chmod o= FILE`".to_owned()));
            }
        }
        let mut token = String::new();
        file.take(MAX_TOKEN + 1).read_to_string(&mut token).map_err(cannot)?;
        match token.trim() {
            _ if token.len() as u64 > MAX_TOKEN => {
                Err(failed(format!("it has more than {MAX_TOKEN} bytes: put a shorter word in it")))
            }
            "" => Err(failed("it is empty: put a long random word in it".to_owned())),
            token if token.contains(char::is_whitespace) => {
                Err(failed("it has several words: put one in it".to_owned()))
            }
            token => Ok(Self::Token(token.into(), flag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields<'f> = &'f [(&'static str, &'f str)];

    fn guard(permission: Permission, is_exposed: bool) -> Guard {
        let advertised = Some("https://jobs.example.net:8443/here");
        let resolver = "nameserver 10.0.0.1\nsearch prod.svc.k8s.example corp.example.\n";
        Guard::named(permission, is_exposed, advertised, "C1.lan", resolver)
    }

    fn status(guard: &Guard, access: Access, fields: Fields<'_>) -> Option<u16> {
        let headers = fields
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        let refusal = guard.refusal(access, &Method::GET, &headers.collect());
        refusal.map(|(status, _)| status.as_u16())
    }

    #[test]
    fn address_or_name_of_this_host_is_answered() {
        let (local, exposed) =
            (guard(Permission::Everybody, false), guard(Permission::Everybody, true));
        for host in ["127.0.0.1:8610", "localhost:8610", "LOCALHOST.", "[::1]:8610", "10.1.2.3"]
            .into_iter()
            .chain(["c1:80", "c1.lan", "c1.corp.example:80", "JOBS.example.net:8443"])
        {
            for access in [Access::Read, Access::Act] {
                assert_eq!(status(&local, access, &[("host", host)]), None, "{host}");
                assert_eq!(status(&exposed, access, &[("host", host)]), None, "{host}");
            }
        }
        for host in ["evil.example:8610", "c1.evil.example", "", "a b", "1.2.3.4.example", "x.xsvc"]
        {
            assert_eq!(status(&local, Access::Read, &[("host", host)]), Some(403), "{host}");
            assert_eq!(status(&exposed, Access::Read, &[("host", host)]), Some(403), "{host}");
        }
        // The names of a service, where other hosts reach it.
        for host in [
            "jobs-0",
            "jobs.prod.svc:8600",
            "jobs-0.jobs.prod.svc.cluster.local",
            "jobs.prod.svc.k8s.example",
            "jobs.corp.example",
        ] {
            assert_eq!(status(&local, Access::Read, &[("host", host)]), Some(403), "{host}");
            assert_eq!(status(&exposed, Access::Read, &[("host", host)]), None, "{host}");
        }
        assert_eq!(status(&local, Access::Read, &[]), None, "no browser");
    }

    #[test]
    fn page_of_another_origin_is_refused_unless_it_is_a_link() {
        let guard = guard(Permission::Everybody, false);
        let sent = |access: Access, method: &Method, fields: Fields<'_>| {
            let fields = fields.iter().chain(&[("host", "127.0.0.1:80")]);
            let headers = fields.map(|(name, value)| {
                (name.parse().expect("a name"), value.parse().expect("a value"))
            });
            guard.refusal(access, method, &headers.collect()).is_none()
        };
        let to = |place: &'static str| {
            let mode = ("sec-fetch-mode", "navigate");
            [("sec-fetch-site", "cross-site"), mode, ("sec-fetch-dest", place)]
        };
        for (fields, is_read, is_done) in [
            (&[("origin", "http://127.0.0.1:80")][..], true, true),
            (&[("origin", "http://127.0.0.1:81")], false, false),
            (&[("origin", "null")], false, false),
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://proxy")], true, true),
            (&[("sec-fetch-site", "none")], true, true),
            (&[("sec-fetch-site", "same-site")], false, false),
            (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")], false, false),
            (&to("document"), true, false),
            (&to("iframe"), false, false),
        ] {
            assert_eq!(sent(Access::Read, &Method::GET, fields), is_read, "{fields:?}");
            assert_eq!(sent(Access::Act, &Method::POST, fields), is_done, "{fields:?}");
        }
        assert!(!sent(Access::ReadWithToken, &Method::GET, &to("document")), "the data of a page");
    }

    #[test]
    fn token_stands_for_any_name_and_origin() {
        let guard = guard(Permission::Token("s3cret".into(), "--token-file"), false);
        let all = [Access::Read, Access::ReadWithToken, Access::Act];
        let with = |value| {
            [("host", "ui.example"), ("origin", "https://x.example"), ("authorization", value)]
        };
        for (value, expected) in [
            ("Bearer s3cret", [None; 3]),
            ("Bearer s3cre", [Some(403), Some(401), Some(403)]),
            ("Bearer", [Some(403), Some(401), Some(403)]),
            ("Basic s3cret", [Some(403), Some(401), Some(403)]),
        ] {
            assert_eq!(all.map(|access| status(&guard, access, &with(value))), expected, "{value}");
        }
        let local = [("host", "127.0.0.1")];
        let statuses = all.map(|access| status(&guard, access, &local));
        assert_eq!(statuses, [None, Some(401), Some(403)]);
    }

    #[test]
    fn token_of_a_file_is_not_cut() {
        for (length, is_taken) in [(MAX_TOKEN, true), (MAX_TOKEN + 1, false)] {
            let mut file = tempfile::NamedTempFile::new().unwrap(); // of its user alone
            std::io::Write::write_all(&mut file, &vec![b'x'; length as usize]).unwrap();
            let permission = Permission::of_file("--http-token-file", file.path());
            assert_eq!(permission.is_ok(), is_taken, "{length} bytes");
        }
    }
}
