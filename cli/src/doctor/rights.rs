//! What the server lets us do, role by role.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Request, RequestErrorKind};
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::context::Role;
use super::report::Report;
use super::server::ServerSamples;
use crate::error::CliError;
use crate::nats::{BucketArgs, Session};

pub const CHECK: &str = "rights";

/// The prefix of the JetStream API where none is told.
const PREFIX: &str = "$JS.API";

/// An election that nobody stands in.
pub const UNUSED_NAME: &str = "incumbent-doctor";

/// How long a refusal may take from the connection to whoever hears it, in this process.
const SETTLING: Duration = Duration::from_millis(250);

/// A thing that a role does.
struct Right {
    subject: String,
    publish: bool,
    /// Who can do nothing without it, and who does less.
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

/// What became of a write that must be refused by the bucket itself.
enum Written {
    /// The bucket refused it.
    Reached,
    /// The server refused it.
    Refused,
    /// No bucket is there to refuse it.
    Nowhere,
    /// Nobody answered.
    Silence,
}

pub async fn check(
    session: &Session,
    bucket: &BucketArgs,
    name: Option<&str>,
    role: Role,
    asked: &ServerSamples,
    report: &mut Report,
) -> Result<(), CliError> {
    let rights = rights(session, bucket.bucket(), name.unwrap_or(UNUSED_NAME), asked.info.as_ref());
    let mut refused = session.refusals();
    let client = session.client();
    let mut heard = Vec::new();
    // The server refuses in the order in which it is asked, and each of these is harmless: what is published has no
    // content that anybody could take for an order, and asks for no answer.
    let (write, others) = rights.split_last().map_or((None, &[][..]), |(w, o)| (Some(w), o));
    for right in others {
        let subject = right.subject.clone();
        if right.publish {
            client
                .publish(subject, "x".into())
                .await
                .map_err(|error| CliError::from_request(CHECK, &error))?;
        } else {
            heard.push(
                client
                    .subscribe(subject)
                    .await
                    .map_err(|error| CliError::from_request(CHECK, &error))?,
            );
        }
    }
    let written = match write {
        Some(right) => write_in_vain(session, &right.subject).await,
        None => Written::Silence,
    };
    let refusals = settled(&mut refused).await;
    drop(heard);
    match written {
        Written::Nowhere if asked.info.is_some() => report.error(
            CHECK,
            "writes do not reach the bucket; see --js-domain, --js-api-prefix and the account's imports",
        ),
        Written::Silence => report.unknown(CHECK, "whether we may write: nobody answered a write in time"),
        Written::Reached | Written::Refused | Written::Nowhere => {}
    }
    for of in [Role::Observer, Role::Candidate, Role::Administrator] {
        check_facts(of, role, &rights, &refusals, report);
    }
    Ok(())
}

/// All rights; the last is that to write.
fn rights(session: &Session, bucket: &str, name: &str, info: Option<&Value>) -> Vec<Right> {
    use Role::{Administrator, Candidate, Observer};
    let prefix = session.api_prefix().unwrap_or(PREFIX);
    let below = if prefix == PREFIX { String::new() } else { format!("{prefix}.") };
    let repeated =
        info.and_then(|info| info.pointer("/config/republish/dest")).and_then(Value::as_str);
    let told = repeated.and_then(|to| to.strip_suffix('>')).map(str::to_owned);
    let told = told.unwrap_or_else(|| format!("incumbent.{bucket}."));
    let right =
        |subject, publish, needed_by, useful_to| Right { subject, publish, needed_by, useful_to };
    let api = |verb, needed_by, useful_to| {
        right(format!("{prefix}.{verb}.KV_{bucket}"), true, needed_by, useful_to)
    };
    let telling = |publish, useful_to| right(format!("{told}{name}"), publish, &[], useful_to);
    vec![
        api("STREAM.INFO", &[Observer, Candidate, Administrator], &[]),
        api("STREAM.MSG.GET", &[Observer, Administrator], &[Candidate]),
        telling(false, &[Observer, Candidate]),
        telling(true, &[Candidate]),
        api("STREAM.CREATE", &[Administrator], &[]),
        api("STREAM.UPDATE", &[], &[Administrator]),
        right(format!("{below}$KV.{bucket}.{name}"), true, &[Candidate, Administrator], &[]),
    ]
}

/// Says what a role missing; it counts where it is ours.
fn check_facts(of: Role, ours: Role, rights: &[Right], refusals: &[String], report: &mut Report) {
    let lacking = |roles: fn(&Right) -> &'static [Role]| {
        let refused =
            rights.iter().filter(|right| roles(right).contains(&of) && right.is_refused(refusals));
        refused.map(Right::named).collect::<Vec<_>>().join(", ")
    };
    let (needed, useful) = (lacking(|right| right.needed_by), lacking(|right| right.useful_to));
    let fix = "grant it: docs/permissions.conf has all that each role needs";
    let missing =
        MissingRights { needed, useful, fix_needed: fix.to_owned(), fix_useful: fix.to_owned() };
    missing.tell(of, ours, report);
}

/// What a role missing, and what to do about it.
pub struct MissingRights {
    pub needed: String,
    pub useful: String,
    pub fix_needed: String,
    pub fix_useful: String,
}

impl MissingRights {
    /// It counts where the role is ours.
    pub fn tell(self, of: Role, ours: Role, report: &mut Report) {
        let Self { needed, useful, fix_needed, fix_useful } = self;
        let who = match of {
            Role::Observer => "an observer",
            Role::Candidate => "a candidate",
            Role::Administrator => "an administrator",
        };
        if needed.is_empty() && useful.is_empty() {
            return report.ok(CHECK, format!("all those of {who}"));
        }
        if of != ours {
            let lacking = [needed, useful].into_iter().filter(|list| !list.is_empty());
            let lacking = lacking.collect::<Vec<_>>().join(", ");
            return report.ok(CHECK, format!("not those of {who}: {lacking}"));
        }
        if !needed.is_empty() {
            report.error(CHECK, format!("{who} needs {needed}; {fix_needed}"));
        }
        if !useful.is_empty() {
            report.warning(CHECK, format!("{who} does less without {useful}; {fix_useful}"));
        }
    }
}

/// Writes what no bucket takes: it is for another stream.
async fn write_in_vain(session: &Session, subject: &str) -> Written {
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

async fn refusal(refused: &mut Receiver<Arc<str>>, subject: &str) {
    let quoted = format!("\"{subject}\"");
    loop {
        match refused.recv().await {
            Ok(refusal) if refusal.contains(&quoted) => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// All refusals so far: the server has answered, but what it refused comes to us by another way.
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
