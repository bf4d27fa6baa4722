//! The sentinel of this machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use incumbent::sentinel::{SentinelMessage, SentinelReply, connect, encode, read_message};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::timeout;

use super::report::Report;

const CHECK: &str = "sentinel";
/// How long it may take to check its lock and to respond.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Checks the sentinel at this address, as in INCUMBENT_SENTINEL.
pub async fn check(address: &Path, report: &mut Report) {
    let shown = address.display();
    let asked = timeout(TIMEOUT, ask(address)).await;
    match asked.unwrap_or_else(|_| Err(io::Error::other("it does not respond"))) {
        Ok((processes, terms, None)) => {
            report.ok(CHECK, format!("responds; processes: {processes}, terms: {terms}"));
        }
        Ok((_, _, Some(problem))) => report.warning(
            CHECK,
            format!(
                "it cannot release, so after a crash the lease decides: {problem}; give it the \
                 --lock and the credentials of the programs"
            ),
        ),
        Err(why) => report.warning(
            CHECK,
            format!(
                "none at {shown}, so after a crash the lease decides: {why}; start it as this \
                 user, or correct INCUMBENT_SENTINEL"
            ),
        ),
    }
}

/// The processes that are watched, the terms that they registered, and the problem of the lock.
async fn ask(address: &Path) -> io::Result<(usize, usize, Option<String>)> {
    let mut stream = connect(address).await?;
    stream.write_all(&encode(&SentinelMessage::Status)).await?;
    match read_message(&mut BufReader::new(stream), &mut Vec::new()).await? {
        SentinelReply::Status { processes, terms, problem } => Ok((processes, terms, problem)),
        SentinelReply::Refused { reason } => Err(io::Error::other(reason)),
        _ => Err(io::Error::other("it sent another reply than its status")),
    }
}
