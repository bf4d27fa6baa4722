//! Environment variables with the credentials of a lock, which a command that is run does not
//! inherit.

use std::env;
use std::sync::{LazyLock, OnceLock};

use super::{LockArgs, LockKind};

const LOCK: &str = "INCUMBENT_LOCK";
const NATS_URL: &str = "NATS_URL";
const NATS: [&str; 6] =
    ["NATS_CREDS", "NATS_NKEY", "NATS_USER", "NATS_PASSWORD", "NATS_CERT", "NATS_KEY"];

/// What finds the variables of options that no command inherits.
static FIND: OnceLock<fn() -> Vec<String>> = OnceLock::new();
/// Found once, when the first command is started: most uses of the program start none.
static OF_OPTIONS: LazyLock<Vec<String>> =
    LazyLock::new(|| FIND.get().map(|find| find()).unwrap_or_default());

/// Sets what finds the variables of options that no command inherits, once.
pub fn withhold(find: fn() -> Vec<String>) {
    let _ = FIND.set(find);
}

/// The variables of options that no command inherits.
pub fn withheld() -> Vec<String> {
    OF_OPTIONS.clone()
}

impl LockArgs {
    /// The variables that a command does not inherit: those of options, and those with credentials
    /// of the selected lock, but not those `passed`. Those of other locks belong to the command.
    pub fn secrets(&self, passed: &[String]) -> Vec<String> {
        let kind = LockKind::parse(&self.lock).ok();
        let value = |name: &str| env::var(name).unwrap_or_default();
        let secrets = secrets(kind.as_ref(), value);
        let mut names: Vec<String> = secrets.into_iter().map(str::to_owned).collect();
        if let Some(LockKind::Nats) = kind {
            names.extend(self.bucket.flags.connection.context_variables());
        }
        names.extend(withheld());
        names.retain(|name| !passed.contains(name));
        names
    }
}

/// `kind`: `None` for an invalid `--lock`, with which nothing is run.
fn secrets(kind: Option<&LockKind>, value: impl Fn(&str) -> String) -> Vec<&'static str> {
    let mut names = Vec::new();
    if value(LOCK).contains(['@', '?']) {
        names.push(LOCK); // a URL with a password or a key
    }
    match kind {
        Some(LockKind::Nats) => {
            names.extend(NATS);
            if value(NATS_URL).contains('@') {
                names.push(NATS_URL);
            }
        }
        Some(LockKind::Url(url)) => names.extend(url.credential_variables()),
        Some(LockKind::Kubernetes) | None => {}
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lock(lock: &str, value: impl Fn(&str) -> String) -> Vec<&'static str> {
        secrets(Some(&LockKind::parse(&lock.into()).unwrap()), value)
    }

    #[test]
    fn only_variables_of_the_selected_lock_are_withheld() {
        let none = |_: &str| String::new();
        assert_eq!(of_lock("nats", none), NATS);
        assert_eq!(of_lock("sqlite:/x", none), [""; 0]);
        let two = of_lock("sqlite:/x postgres://u@h/d", none);
        assert_eq!(two, ["PGPASSWORD", "PGPASSFILE", "PGSSLKEY"]);
        for url in ["s3://bucket/x", "S3://bucket/x"] {
            assert!(of_lock(url, none).contains(&"AWS_SECRET_ACCESS_KEY"), "{url}");
        }
        for (url, name) in [
            ("s3://bucket/x", "AWS_SSE_CUSTOMER_KEY_BASE64"),
            ("gs://bucket/x", "GOOGLE_SERVICE_ACCOUNT_KEY"),
            ("gs://bucket/x", "GOOGLE_BEARER_TOKEN"),
            ("gs://bucket/x", "SERVICE_ACCOUNT"),
            ("az://container/x", "AZURE_STORAGE_SAS_TOKEN"),
            ("az://container/x", "AZURE_FABRIC_SESSION_TOKEN"),
            ("az://container/x", "IDENTITY_HEADER"),
            ("etcd://h/e", "ETCDCTL_PASSWORD"),
            ("etcds://h/e", "ETCDCTL_PASSWORD"),
            ("peer:12345?quorum=3", "INCUMBENT_PEER_KEY_FILE"),
        ] {
            assert!(of_lock(url, none).contains(&name), "{url}");
        }
    }

    #[test]
    fn url_with_a_password_is_withheld() {
        let with = |text: &'static str| move |_: &str| text.to_owned();
        assert!(of_lock("nats", with("nats://u:p@h")).contains(&NATS_URL));
        assert!(!of_lock("nats", with("nats://h")).contains(&NATS_URL));
        assert_eq!(of_lock("sqlite:/x", with("postgres://u:p@h/d")), [LOCK]);
    }
}
