//! The options of a URL of PostgreSQL.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tracing::dispatcher;
use tracing::subscriber::{NoSubscriber, with_default};

use crate::backends::sql::setup::{SqlError, SqlErrorKind};

/// The options that sqlx reads. It ignores any other, and logs its value.
const OPTIONS: &[&str] = &[
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// Options of libpq that users may have in a URL.
const UNSUPPORTED: &[&str] = &[
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "gssencmode",
    "keepalives",
    "keepalives_idle",
    "passfile",
    "require_auth",
    "service",
    "sslcrl",
    "sslnegotiation",
    "sslpassword",
    "target_session_attrs",
    "tcp_user_timeout",
];

/// Keeps what `parse` does out of the log: of a file of passwords, sqlx logs each line that it
/// cannot read.
fn silently<T>(parse: impl FnOnce() -> T) -> T {
    // In a program without a subscriber, even one set for a moment would end for good what
    // `tracing` passes to the `log` crate.
    match dispatcher::get_default(|current| current.is::<NoSubscriber>()) {
        true => parse(),
        false => with_default(NoSubscriber::new(), parse),
    }
}

/// Parses a URL. The error does not repeat the invalid part, which may be the password.
pub(super) fn options_of(url: &str) -> Result<PgConnectOptions, SqlError> {
    let wrong = |what: &str| SqlError::new(SqlErrorKind::Misconfigured, what);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let keys: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key))
        .collect();
    let known = |key: &&str| {
        OPTIONS.contains(key) || key.starts_with("options[") || key.starts_with("options%5B")
    };
    if let Some(key) = keys.iter().find(|key| !known(key)) {
        // Any other text may be a part of a password.
        let named = UNSUPPORTED.iter().find(|option| *option == key).copied();
        let what = format!(
            "the database's URL has an option that is not supported, {}: remove it",
            named.unwrap_or("none of those in docs/sql.md")
        );
        return Err(wrong(&what));
    }
    let has = |names: &[&str]| keys.iter().any(|key| names.contains(key));
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_mode = |mode: String| mode.parse::<PgSslMode>().is_ok();
    if !has(&["sslmode", "ssl-mode"]) && !variable("PGSSLMODE").is_none_or(is_mode) {
        return Err(wrong(
            "PGSSLMODE must be disable, allow, prefer, require, verify-ca or verify-full",
        ));
    }
    let options = silently(|| PgConnectOptions::from_str(url)).map_err(|_| {
        wrong(
            "the database's URL cannot be used: it must be like postgres://USER@HOST:PORT/DATABASE",
        )
    })?;
    let authority = has(&["sslrootcert", "ssl-root-cert", "ssl-ca"]);
    let certificate = has(&["sslcert", "ssl-cert", "sslkey", "ssl-key"]);
    match options.get_ssl_mode() {
        // As psql does. sqlx would accept any certificate.
        PgSslMode::Require if authority || variable("PGSSLROOTCERT").is_some() => {
            Ok(options.ssl_mode(PgSslMode::VerifyCa))
        }
        // Without TLS it would go on all the same.
        PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer if authority || certificate => {
            Err(wrong("sslrootcert, sslcert and sslkey need TLS: add sslmode=verify-full"))
        }
        _ => Ok(options),
    }
}
