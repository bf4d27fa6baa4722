//! The permissions on a NATS server, by role.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Request, RequestErrorKind};
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::context::{CheckContext, Role};
use super::report::Report;
use super::server::ServerSamples;
use crate::error::CliError;
use crate::lock::nats::Session;
use incumbent::lock_url::NatsBucket;

pub const CHECK: &str = "rights";

/// The default prefix of the JetStream API.
const PREFIX: &str = "$JS.API";

/// The name of an unused election.
pub const UNUSED_NAME: &str = "incumbent-doctor";

/// How long a permission error may take within this process.
const SETTLING: Duration = Duration::from_millis(250);

/// A permission that a role needs.
struct Right {
    subject: String,
    publish: bool,
    /// Whether a message there is stored: it is tried with one that the bucket must refuse.
    is_write: bool,
    /// The roles that cannot work without it, and those that lack a feature.
    needed_by: &'static [Role],
    useful_to: &'static [Role],
}

impl Right {
    fn named(&self) -> String {
        let verb = if self.publish { "publishing" } else { "subscribing" };
        format!("{verb} to {}", self.subject)
    }

    fn is_refused(&self, refusals: &[String]) -> bool {
        let verb = if self.publish { "publish to " } else { "subscription to " };
        let quoted = format!("\"{}\"", self.subject);
        refusals
            .iter()
            .any(|refusal| refusal.contains(&quoted) && refusal.to_ascii_lowercase().contains(verb))
    }
}

/// The outcome of a write that the bucket must refuse.
enum Written {
    /// The bucket refused it.
    Reached,
    /// The server denied permission.
    Refused,
    /// There is no bucket.
    Nowhere,
    /// There was no response.
    Silence,
}

pub async fn check(
    session: &Session,
    bucket: &NatsBucket,
    context: CheckContext<'_>,
    asked: &ServerSamples,
    report: &mut Report,
) -> Result<(), CliError> {
    let name = context.name.unwrap_or(UNUSED_NAME);
    let rights = rights(session, &bucket.bucket, name, context.checkpoint, asked);
    let mut refused = session.refusals();
    let client = session.client();
    let mut subscriptions = Vec::new();
    // The server checks permissions in order. These requests are harmless: the messages have no
    // meaning and ask for no response.
    for right in rights.iter().filter(|right| !right.is_write) {
        let subject = right.subject.clone();
        if right.publish {
            client
                .publish(subject, "x".into())
                .await
                .map_err(|error| CliError::from_request(CHECK, &error))?;
        } else {
            subscriptions.push(
                client
                    .subscribe(subject)
                    .await
                    .map_err(|error| CliError::from_request(CHECK, &error))?,
            );
        }
    }
    let mut written = Written::Silence;
    for right in rights.iter().filter(|right| right.is_write) {
        written = send_refused_write(session, &right.subject).await;
    }
    let refusals = settled(&mut refused).await;
    drop(subscriptions);
    match written {
        Written::Nowhere if asked.info.is_some() => report.error(
            CHECK,
            "writes do not reach the bucket; see --js-domain, --js-api-prefix and the account's imports",
        ),
        Written::Silence => report.unknown(CHECK, "the right to write: a write timed out"),
        Written::Reached | Written::Refused | Written::Nowhere => {}
    }
    for of in [Role::Observer, Role::Candidate, Role::Administrator] {
        check_facts(of, context.role, &rights, &refusals, report);
    }
    Ok(())
}

fn rights(
    session: &Session,
    bucket: &str,
    name: &str,
    checkpoint: bool,
    asked: &ServerSamples,
) -> Vec<Right> {
    use Role::{Administrator, Candidate, Observer};
    let info = asked.info.as_ref();
    // Candidates create a bucket that is missing.
    let creates: &[Role] =
        if asked.bucket_is_missing() { &[Candidate, Administrator] } else { &[Administrator] };
    let prefix = session.api_prefix().unwrap_or(PREFIX);
    let below = if prefix == PREFIX { String::new() } else { format!("{prefix}.") };
    let repeated =
        info.and_then(|info| info.pointer("/config/republish/dest")).and_then(Value::as_str);
    let hints = repeated.and_then(|to| to.strip_suffix('>')).map(str::to_owned);
    let hints = hints.unwrap_or_else(|| format!("incumbent.{bucket}."));
    let right = |subject, publish, needed_by, useful_to| Right {
        subject,
        publish,
        is_write: false,
        needed_by,
        useful_to,
    };
    let write = |key: String, needed_by| Right {
        is_write: true,
        ..right(format!("{below}$KV.{bucket}.{key}"), true, needed_by, &[])
    };
    let api = |verb, needed_by, useful_to| {
        right(format!("{prefix}.{verb}.KV_{bucket}"), true, needed_by, useful_to)
    };
    let republished = |publish, useful_to| right(format!("{hints}{name}"), publish, &[], useful_to);
    let mut rights = vec![
        api("STREAM.INFO", &[Observer, Candidate, Administrator], &[]),
        match checkpoint {
            true => api("STREAM.MSG.GET", &[Observer, Candidate, Administrator], &[]),
            false => api("STREAM.MSG.GET", &[Observer, Administrator], &[Candidate]),
        },
        republished(false, &[Observer, Candidate]),
        republished(true, &[Candidate]),
        api("STREAM.CREATE", creates, &[]),
        api("STREAM.UPDATE", &[], &[Administrator]),
        write(name.to_owned(), &[Candidate, Administrator]),
    ];
    if checkpoint {
        rights.push(write(format!("$checkpoint.{name}"), &[Candidate]));
    }
    rights
}

/// Reports the missing permissions of a role. They count if it is the checked role.
fn check_facts(of: Role, ours: Role, rights: &[Right], refusals: &[String], report: &mut Report) {
    let lacking = |roles: fn(&Right) -> &'static [Role]| {
        let refused =
            rights.iter().filter(|right| roles(right).contains(&of) && right.is_refused(refusals));
        refused.map(Right::named).collect::<Vec<_>>().join(", ")
    };
    let (needed, useful) = (lacking(|right| right.needed_by), lacking(|right| right.useful_to));
    let fix = "grant it: see deploy/nats-permissions.conf for the rights of each role";
    let missing =
        MissingRights { needed, useful, fix_needed: fix.to_owned(), fix_useful: fix.to_owned() };
    missing.report(of, ours, report);
}

/// The missing permissions of a role, with fixes.
pub struct MissingRights {
    pub needed: String,
    pub useful: String,
    pub fix_needed: String,
    pub fix_useful: String,
}

impl MissingRights {
    /// Reports them. They count if the role is the checked one.
    pub fn report(self, of: Role, ours: Role, report: &mut Report) {
        let Self { needed, useful, fix_needed, fix_useful } = self;
        let who = match of {
            Role::Observer => "an observer",
            Role::Candidate => "a candidate",
            Role::Administrator => "an administrator",
        };
        if needed.is_empty() && useful.is_empty() {
            return report.ok(CHECK, format!("all rights of {who}"));
        }
        if of != ours {
            let lacking = [needed, useful].into_iter().filter(|list| !list.is_empty());
            let lacking = lacking.collect::<Vec<_>>().join(", ");
            return report.ok(CHECK, format!("not the rights of {who}: {lacking}"));
        }
        if !needed.is_empty() {
            report.error(CHECK, format!("{who} needs {needed}; {fix_needed}"));
        }
        if !useful.is_empty() {
            report.warning(CHECK, format!("{who} works better with {useful}; {fix_useful}"));
        }
    }
}

/// Sends a write that no bucket accepts: it expects another stream.
async fn send_refused_write(session: &Session, subject: &str) -> Written {
    let mut refused = session.refusals();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", "incumbent-doctor");
    let request = Request::new().headers(headers).timeout(Some(session.timeout()));
    tokio::select! {
        answer = session.client().send_request(subject.to_owned(), request) => match answer {
            Ok(_) => Written::Reached,
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Written::Nowhere,
            Err(_) => Written::Silence,
        },
        () = refusal(&mut refused, subject) => Written::Refused,
    }
}

/// Waits until the server denies permission for this subject.
pub async fn refusal(refused: &mut Receiver<Arc<str>>, subject: &str) {
    let quoted = format!("\"{subject}\"");
    loop {
        match refused.recv().await {
            Ok(refusal) if refusal.contains(&quoted) => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// All permission errors so far. They arrive separately from responses.
async fn settled(refused: &mut Receiver<Arc<str>>) -> Vec<String> {
    tokio::time::sleep(SETTLING).await;
    let mut refusals = Vec::new();
    loop {
        match refused.try_recv() {
            Ok(refusal) => refusals.push(refusal.to_string()),
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return refusals,
        }
    }
}
