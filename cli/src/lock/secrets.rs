//! Environment variables with the credentials of a lock, which a command that is run does not
//! inherit.

use std::env;
use std::sync::{LazyLock, OnceLock};

use super::{LockArgs, LockKind};

const LOCK: &str = "INCUMBENT_LOCK";
const NATS_URL: &str = "NATS_URL";
const NATS: [&str; 6] =
    ["NATS_CREDS", "NATS_NKEY", "NATS_USER", "NATS_PASSWORD", "NATS_CERT", "NATS_KEY"];
/// Variables by the scheme of the URL.
const OF_URLS: [(&str, &[&str]); 6] = [
    ("etcd", &["ETCDCTL_PASSWORD"]),
    ("peer:", &["INCUMBENT_PEER_KEY_FILE"]),
    ("postgres", &["PGPASSWORD", "PGPASSFILE", "PGSSLKEY"]),
    (
        "s3:",
        &[
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_TOKEN",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        ],
    ),
    (
        "gs:",
        &[
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
    ),
    (
        "az:",
        &[
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_CLIENT_SECRET",
            "AZURE_STORAGE_SAS_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_TOKEN",
            "AZURE_FEDERATED_TOKEN_FILE",
        ],
    ),
];

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
        let is_nats = matches!(LockKind::parse(&self.lock), Ok(LockKind::Nats));
        let value = |name: &str| env::var(name).unwrap_or_default();
        let secrets = secrets(&self.lock.0, is_nats, value);
        let mut names: Vec<String> = secrets.into_iter().map(str::to_owned).collect();
        if is_nats {
            names.extend(self.bucket.flags.context_variables());
        }
        names.extend(withheld());
        names.retain(|name| !passed.contains(name));
        names
    }
}

fn secrets(lock: &str, is_nats: bool, value: impl Fn(&str) -> String) -> Vec<&'static str> {
    let mut names = Vec::new();
    if value(LOCK).contains(['@', '?']) {
        names.push(LOCK); // a URL with a password or a key
    }
    if is_nats {
        names.extend(NATS);
        if value(NATS_URL).contains('@') {
            names.push(NATS_URL);
        }
    }
    for (scheme, of_it) in OF_URLS {
        // A scheme may be written in capitals.
        if lock.split_whitespace().any(|url| url.to_ascii_lowercase().starts_with(scheme)) {
            names.extend(of_it);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_the_selected_lock_are_withheld() {
        let none = |_: &str| String::new();
        assert_eq!(secrets("nats", true, none), NATS);
        assert_eq!(secrets("sqlite:/x", false, none), [""; 0]);
        let two = secrets("sqlite:/x postgres://u@h/d", false, none);
        assert_eq!(two, ["PGPASSWORD", "PGPASSFILE", "PGSSLKEY"]);
        for url in ["s3://bucket/x", "S3://bucket/x"] {
            assert!(secrets(url, false, none).contains(&"AWS_SECRET_ACCESS_KEY"), "{url}");
        }
    }

    #[test]
    fn url_with_a_password_is_withheld() {
        let with = |text: &'static str| move |_: &str| text.to_owned();
        assert!(secrets("nats", true, with("nats://u:p@h")).contains(&NATS_URL));
        assert!(!secrets("nats", true, with("nats://h")).contains(&NATS_URL));
        assert_eq!(secrets("sqlite:/x", false, with("postgres://u:p@h/d")), [LOCK]);
    }
}
