//! Permissions by role, and those on a NATS server.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Request, RequestErrorKind};
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::context::CheckContext;
use super::context::Role::{self, Administrator, Candidate, Observer};
use super::report::Report;
use super::server::ServerSamples;
use crate::error::CliError;
use crate::lock::UNUSED_NAME;
use crate::lock::nats::{Session, next_refusal};
use incumbent::lock::{LockError, LockErrorKind};
use incumbent::lock_url::NatsBucket;

pub const CHECK: &str = "rights";

/// The default prefix of the JetStream API.
const PREFIX: &str = "$JS.API";

/// How long a permission error may take within this process.
const SETTLING: Duration = Duration::from_millis(250);

/// A permission, the roles that cannot work without it, and those that lack a feature.
pub struct Need<R> {
    pub permission: R,
    pub needed_by: &'static [Role],
    pub useful_to: &'static [Role],
}

pub const ROLES: [Role; 3] = [Observer, Candidate, Administrator];

/// Whether a lock refused a request for want of a permission.
pub fn is_denied(error: &LockError) -> bool {
    error.kind() == LockErrorKind::Denied
}

/// Reports which of the missing permissions each of the roles lacks. They count if it is the one
/// that is checked, `ours`. `fix` says what to do about some of them.
pub fn report_missing<R>(
    missing: &[Need<R>],
    (roles, ours): (&[Role], Role),
    name: impl Fn(&R) -> String,
    fix: impl Fn(&[&R]) -> String,
    report: &mut Report,
) {
    let named = |permissions: &[&R]| {
        permissions.iter().map(|&permission| name(permission)).collect::<Vec<_>>().join(", ")
    };
    for of in roles {
        let list = |roles: fn(&Need<R>) -> &'static [Role]| -> Vec<&R> {
            let lacking = missing.iter().filter(|need| roles(need).contains(of));
            lacking.map(|need| &need.permission).collect()
        };
        let (needed, useful) = (list(|need| need.needed_by), list(|need| need.useful_to));
        let who = match of {
            Observer => "an observer",
            Candidate => "a candidate",
            Administrator => "an administrator",
        };
        if needed.is_empty() && useful.is_empty() {
            report.ok(CHECK, format!("all rights of {who}"));
            continue;
        }
        if *of != ours {
            let lacking = named(&[needed, useful].concat());
            report.ok(CHECK, format!("not the rights of {who}: {lacking}"));
            continue;
        }
        if !needed.is_empty() {
            report.error(CHECK, format!("{who} needs {}; {}", named(&needed), fix(&needed)));
        }
        if !useful.is_empty() {
            let (lacking, fix) = (named(&useful), fix(&useful));
            report.warning(CHECK, format!("{who} works better with {lacking}; {fix}"));
        }
    }
}

/// A subject that may be published or subscribed to.
struct Permission {
    subject: String,
    publish: bool,
    /// Whether a message there is stored: it is tried with one that the bucket must refuse.
    is_write: bool,
}

impl Permission {
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
    let permissions = permissions(session, &bucket.bucket, name, context.checkpoint, asked);
    let mut refused = session.refusals();
    let client = session.client();
    let mut subscriptions = Vec::new();
    // The server checks permissions in order. These requests are harmless: the messages have no
    // meaning and ask for no response.
    for permission in
        permissions.iter().map(|need| &need.permission).filter(|permission| !permission.is_write)
    {
        let subject = permission.subject.clone();
        if permission.publish {
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
    for permission in
        permissions.iter().map(|need| &need.permission).filter(|permission| permission.is_write)
    {
        written = send_refused_write(session, &permission.subject).await;
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
    let missing = permissions.into_iter().filter(|need| need.permission.is_refused(&refusals));
    let fix = "grant it: see deploy/nats-permissions.conf for the rights of each role";
    let fix = |_: &[&Permission]| fix.to_owned();
    let missing: Vec<_> = missing.collect();
    report_missing(&missing, (&ROLES, context.role), Permission::named, fix, report);
    Ok(())
}

fn permissions(
    session: &Session,
    bucket: &str,
    name: &str,
    checkpoint: bool,
    asked: &ServerSamples,
) -> Vec<Need<Permission>> {
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
    let permission = |subject, publish, needed_by, useful_to| {
        let permission = Permission { subject, publish, is_write: false };
        Need { permission, needed_by, useful_to }
    };
    let write = |key: String, needed_by| {
        let subject = format!("{below}$KV.{bucket}.{key}");
        let permission = Permission { subject, publish: true, is_write: true };
        Need { permission, needed_by, useful_to: &[] }
    };
    let api = |verb, needed_by, useful_to| {
        permission(format!("{prefix}.{verb}.KV_{bucket}"), true, needed_by, useful_to)
    };
    let republished =
        |publish, useful_to| permission(format!("{hints}{name}"), publish, &[], useful_to);
    let mut permissions = vec![
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
        permissions.push(write(format!("$checkpoint.{name}"), &[Candidate]));
    }
    permissions
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
    next_refusal(refused, |refusal| refusal.contains(&quoted)).await;
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
