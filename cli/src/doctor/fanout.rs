//! How many connections the server delivers each write of an election to.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::permissions::refusal;
use super::report::Report;
use super::server::{QUEUE_GROUPS, stated_groups};
use crate::lock::nats::Session;

const CHECK: &str = "standbys";

/// What a bucket states for its candidates, in the metadata of its stream.
const WITH_CHORIA: &str = "incumbent.with-choria";

/// Any user of an account may request its connections here, unless its permissions forbid that.
const CONNECTIONS: &str = "$SYS.REQ.SERVER.PING.CONNZ";

/// From here on queue groups are worth it.
const MANY: usize = 200;

/// The maximum number of connections to list per server, and of servers.
const MAX_CONNECTIONS: usize = 1_000;
const MAX_SERVERS: usize = 16;

/// How long to wait for the first server, and for the next one.
const FIRST: Duration = Duration::from_secs(1);
const NEXT: Duration = Duration::from_millis(250);

/// Suggests queue groups where hundreds of connections receive every write. Without the permission
/// to list connections it reports nothing.
pub async fn check(session: &Session, bucket: &str, info: &Value, report: &mut Report) {
    let republished = info.pointer("/config/republish/dest").and_then(Value::as_str);
    let Some(hints) = republished.filter(|to| to.ends_with('>')) else { return };
    let mut receivers = BTreeMap::new();
    for answer in connections(session, hints).await {
        count(&answer, hints.trim_end_matches('>'), &mut receivers);
    }
    let most = receivers.into_iter().max_by_key(|(_, count)| *count);
    let Some((subject, count)) = most.filter(|(_, count)| *count >= MANY) else { return };
    let name = subject.strip_prefix(hints.trim_end_matches('>')).unwrap_or(&subject);
    let writes = match name {
        ">" => format!("every write of bucket {bucket}"),
        name => format!("every write of election {name}"),
    };
    let fix = match stated_groups(info) {
        Some(groups) => format!(
            "if they are standbys, restart them, in a version that adopts the {groups} queue groups \
             that the bucket states, or with --queue-groups {groups}: then {groups} of them do"
        ),
        None => format!(
            "if they are standbys, store queue groups in the bucket ({}), and restart them: then 8 \
             of them do",
            edit(bucket, info)
        ),
    };
    report.ok(CHECK, format!("{count} connections receive {writes}; {fix}"));
}

/// The command that states eight queue groups for the fleet. An edit replaces all metadata that is
/// not the server's own.
fn edit(bucket: &str, info: &Value) -> String {
    let metadata = info.pointer("/config/metadata").and_then(Value::as_object);
    let keys: Vec<&str> = metadata.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    let choria = match keys.contains(&WITH_CHORIA) {
        true => format!(" --metadata {WITH_CHORIA}=true"),
        false => String::new(),
    };
    let is_foreign =
        |key: &&str| !key.starts_with("_nats.") && ![WITH_CHORIA, QUEUE_GROUPS].contains(key);
    let others = match keys.iter().any(is_foreign) {
        true => ", and its other metadata, which this replaces",
        false => "",
    };
    format!("nats stream edit KV_{bucket} --metadata {QUEUE_GROUPS}=8{choria}{others}")
}

/// The answers of the servers with their connections that subscribe to a subject.
async fn connections(session: &Session, subject: &str) -> Vec<Value> {
    let client = session.client();
    let inbox = client.new_inbox();
    let request = json!({
        "filter_subject": subject, "subscriptions_detail": true, "limit": MAX_CONNECTIONS,
    });
    let mut answers = Vec::new();
    let mut refused = session.refusals();
    let Ok(mut replies) = client.subscribe(inbox.clone()).await else { return answers };
    let sent = client.publish_with_reply(CONNECTIONS, inbox, request.to_string().into());
    if sent.await.is_err() {
        return answers;
    }
    while answers.len() < MAX_SERVERS {
        let wait = if answers.is_empty() { FIRST } else { NEXT };
        let reply = tokio::select! {
            reply = tokio::time::timeout(wait, replies.next()) => reply,
            () = refusal(&mut refused, CONNECTIONS) => break,
        };
        let Ok(Some(reply)) = reply else { break };
        // No responder is no JSON.
        let Ok(answer) = serde_json::from_slice(&reply.payload) else { break };
        answers.push(answer);
    }
    answers
}

/// Counts the connections with a subscription outside any queue group, by subject.
fn count(answer: &Value, below: &str, receivers: &mut BTreeMap<String, usize>) {
    let connections = answer.pointer("/data/connections").and_then(Value::as_array);
    for connection in connections.into_iter().flatten().filter(|it| it["kind"] == "Client") {
        let subscriptions = connection["subscriptions_list_detail"].as_array();
        let plain = subscriptions.into_iter().flatten().filter(|it| it["qgroup"].is_null());
        for subject in plain.filter_map(|it| it["subject"].as_str()) {
            if subject.starts_with(below) {
                *receivers.entry(subject.to_owned()).or_default() += 1;
            }
        }
    }
}
