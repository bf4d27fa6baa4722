//! How a command reaches its server, as the `nats` program does it.

mod context;
mod credentials;
mod session;
mod settings;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectError, ConnectErrorKind, ServerAddr};
use clap::Args;
use incumbent::lock_url::NamedBucket;
use incumbent::nats::{self, Bucket, DEFAULT_BUCKET, Finding, PermissionWatch};

use crate::error::{Code, Failure, one_line};

use context::Context;
pub use session::{Bounded, Session};
use settings::Settings;

/// How long to wait for an answer, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where the server is, and who we are there. A flag beats its variable, which beats the context.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The NATS servers, separated by commas [env: NATS_URL] [default: nats://127.0.0.1:4222].
    #[arg(short, long, global = true, value_name = "URL")]
    server: Option<String>,
    /// A file with the user's credentials [env: NATS_CREDS].
    #[arg(long, global = true, value_name = "FILE")]
    creds: Option<String>,
    /// A file with the user's NKey seed [env: NATS_NKEY].
    #[arg(long, global = true, value_name = "FILE")]
    nkey: Option<String>,
    /// The user; without a password, a token [env: NATS_USER].
    #[arg(long, global = true)]
    user: Option<String>,
    /// The user's password; the variable keeps it out of the list of processes [env: NATS_PASSWORD].
    #[arg(long, global = true)]
    password: Option<String>,
    /// A file with our TLS certificate [env: NATS_CERT].
    #[arg(long, global = true, value_name = "FILE")]
    tlscert: Option<String>,
    /// A file with the key of our TLS certificate [env: NATS_KEY].
    #[arg(long, global = true, value_name = "FILE")]
    tlskey: Option<String>,
    /// A file with the certificates of the authorities to trust [env: NATS_CA].
    #[arg(long, global = true, value_name = "FILE")]
    tlsca: Option<String>,
    /// A context of the `nats` program [env: NATS_CONTEXT] [default: the one that is selected there]; with Kubernetes, of
    /// the kubeconfig [default: its current one].
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// The JetStream domain.
    #[arg(long, global = true, value_name = "DOMAIN", conflicts_with = "js_api_prefix")]
    js_domain: Option<String>,
    /// The prefix of the JetStream API.
    #[arg(long, global = true, value_name = "PREFIX")]
    js_api_prefix: Option<String>,
    /// How long to wait for the connection, and for each answer [env: NATS_TIMEOUT] [default: 5s].
    #[arg(long, global = true, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Whether neither variables nor a context add to what is told.
    #[arg(skip)]
    told_whole: bool,
}

/// The bucket of the elections.
#[derive(Debug, Args)]
pub struct BucketPlace {
    #[command(flatten)]
    connection: Connection,
    /// The key-value bucket of the elections [default: CHORIA_LEADER_ELECTION].
    #[arg(long, global = true, help_heading = "Connection")]
    bucket: Option<String>,
}

/// Flags may hold a password or a token, and so may a server's address.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("context", &self.context)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects, and says what is in the way in one line that holds no secret.
    pub async fn session(&self) -> Result<Session, Failure> {
        let settings = self.settings()?;
        let addresses = settings.bare_addresses()?;
        let options = settings
            .options()
            .await?
            .connection_timeout(settings.timeout)
            .request_timeout(Some(settings.timeout))
            .name("incumbent");
        let (watch, refusals) = (PermissionWatch::new(), session::Refusals::new(&settings));
        let (observer, noted) = (watch.clone(), refusals.clone());
        let options = options.event_callback(move |event| {
            observer.observe(&event);
            noted.observe(&event);
            std::future::ready(())
        });
        let client = tokio::time::timeout(settings.timeout, options.connect(addresses.as_slice()))
            .await
            .map_err(|_| unreachable(&addresses, "no answer in time"))?
            .map_err(|error| refused(&addresses, &error))?;
        let connection = nats::Connection::new(client, watch);
        Ok(Session::new(connection, refusals, &settings))
    }

    /// How long a flag or variable says to wait.
    pub fn told_timeout(&self) -> Option<Duration> {
        self.timeout.or_else(|| timeout_variable().ok().flatten())
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let flags = self.clone();
        if self.told_whole {
            return Settings::merge(flags, Self::default(), Context::default());
        }
        let variables = Self {
            server: variable("NATS_URL"),
            creds: variable("NATS_CREDS"),
            nkey: variable("NATS_NKEY"),
            user: variable("NATS_USER"),
            password: variable("NATS_PASSWORD"),
            tlscert: variable("NATS_CERT"),
            tlskey: variable("NATS_KEY"),
            tlsca: variable("NATS_CA"),
            context: variable("NATS_CONTEXT"),
            timeout: timeout_variable()?,
            ..Self::default()
        };
        let named = flags.context.clone().or(variables.context.clone());
        let context = context::load(named.as_deref())?;
        Settings::merge(flags, variables, context)
    }
}

impl BucketPlace {
    /// The one that a URL names.
    pub fn named(named: NamedBucket, timeout: Duration) -> Self {
        let file = |path: PathBuf| path.to_string_lossy().into_owned();
        let servers = named.servers.iter().map(|server| server.clone().into_inner().to_string());
        let connection = Connection {
            server: Some(servers.collect::<Vec<_>>().join(",")),
            creds: named.creds.map(file),
            tlsca: named.ca.map(file),
            js_domain: named.domain,
            timeout: Some(timeout),
            told_whole: true,
            ..Connection::default()
        };
        Self { connection, bucket: Some(named.bucket) }
    }

    /// Connects.
    pub async fn session(&self) -> Result<Session, Failure> {
        self.connection.session().await
    }

    /// How long a flag or variable says to wait.
    pub fn told_timeout(&self) -> Option<Duration> {
        self.connection.told_timeout()
    }

    /// How long the flag says to wait, which is not for NATS alone.
    pub fn timeout_flag(&self) -> Option<Duration> {
        self.connection.timeout
    }

    /// The context that the flag names, which is not for NATS alone.
    pub fn context_flag(&self) -> Option<&str> {
        self.connection.context.as_deref()
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &str {
        self.bucket.as_deref().unwrap_or(DEFAULT_BUCKET)
    }

    /// What is to be mended in the bucket. It need not be one that an election can use.
    pub async fn health(&self, session: &Session) -> Result<Vec<Finding>, Failure> {
        let bucket = Bucket::deferred(session.connection(), session.config(self.bucket()))?;
        Ok(bucket.health().await?)
    }

    /// A flag that is given and says something of NATS.
    pub fn given(&self) -> Option<&'static str> {
        let Connection {
            server,
            creds,
            nkey,
            user,
            password,
            tlscert,
            tlskey,
            tlsca,
            context: _, // a kubeconfig has them, too
            js_domain,
            js_api_prefix,
            timeout: _,
            told_whole: _,
        } = &self.connection;
        let flags = [
            ("--bucket", &self.bucket),
            ("--server", server),
            ("--creds", creds),
            ("--nkey", nkey),
            ("--user", user),
            ("--password", password),
            ("--tlscert", tlscert),
            ("--tlskey", tlskey),
            ("--tlsca", tlsca),
            ("--js-domain", js_domain),
            ("--js-api-prefix", js_api_prefix),
        ];
        flags.into_iter().find(|(_, value)| value.is_some()).map(|(flag, _)| flag)
    }

    /// Opens the bucket, or makes it with this TTL unless it must be there.
    pub async fn open(&self, ttl: Option<Duration>, must_exist: bool) -> Result<Bucket, Failure> {
        let session = self.session().await?;
        let mut config = session.config(self.bucket());
        if let Some(ttl) = ttl {
            config = config.ttl(ttl);
        }
        Ok(match must_exist {
            true => Bucket::open_with(session.connection(), config).await?,
            false => Bucket::create_or_open(session.connection(), config).await?,
        })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn timeout_variable() -> Result<Option<Duration>, Failure> {
    let Some(text) = variable("NATS_TIMEOUT") else { return Ok(None) };
    let unread = |error| Failure::new(Code::Usage, format!("NATS_TIMEOUT {text:?}: {error}"));
    humantime::parse_duration(&text).map(Some).map_err(unread)
}

fn refused(addresses: &[ServerAddr], error: &ConnectError) -> Failure {
    let denied = |why: &str| {
        let at = shown(addresses);
        Failure::new(
            Code::Denied,
            format!("the NATS server at {at} {why}; see --creds, --nkey, --user"),
        )
    };
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => denied("does not let us in"),
        ConnectErrorKind::Authentication => denied("wants another proof of who we are"),
        _ => unreachable(addresses, &one_line(error)),
    }
}

fn unreachable(addresses: &[ServerAddr], why: &str) -> Failure {
    let message = format!("cannot reach a NATS server at {}: {why}", shown(addresses));
    Failure::new(Code::Unreachable, message)
}

/// Addresses without the user and password that a URL may carry.
fn shown(addresses: &[ServerAddr]) -> String {
    let shown: Vec<_> =
        addresses.iter().map(|server| format!("{}:{}", server.host(), server.port())).collect();
    shown.join(", ")
}

/// Where the `nats` program keeps its files.
fn nats_directory() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".config")))?;
    Some(base.join("nats"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_debug_output_holds_a_secret() {
        let secret = || Some("s3cret".to_owned());
        let connection = Connection {
            server: Some("nats://me:s3cret@host".to_owned()),
            user: secret(),
            password: secret(),
            ..Connection::default()
        };
        let place = BucketPlace { connection: connection.clone(), bucket: None };
        let mut context = Context::default();
        context.password = "s3cret".to_owned();
        let told = format!("{connection:?} {place:?} {context:?}");
        assert!(!told.contains("s3cret"), "{told}");
    }
}
