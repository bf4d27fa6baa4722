//! Whether acknowledged writes are on disk, as far as servers report it.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::report::Report;
use crate::output::time_format;

const CHECK: &str = "disk";

/// The maximum size of the response.
const MAX_RESPONSE: u64 = 16 << 20;

/// The setting of the bucket.
pub fn persistence(info: &Value, monitored: bool, report: &mut Report) {
    if info.pointer("/config/persist_mode").and_then(Value::as_str) == Some("async") {
        report.warning(CHECK, "the bucket acknowledges writes before they are written (persist_mode async); create it again without");
    } else if !monitored {
        report.unknown(
            CHECK,
            "sync_interval: a server reports it on its monitoring port only; see --monitor",
        );
    }
}

/// The setting of the server, read from its monitoring port.
pub async fn sync_interval(address: &str, timeout: Duration, report: &mut Report) {
    let asked = tokio::time::timeout(timeout, jetstream(address)).await;
    let jetstream = match asked.unwrap_or_else(|_| Err("timed out".to_owned())) {
        Ok(jetstream) => jetstream,
        Err(why) => {
            return report.warning(CHECK, format!("cannot read {address}: {why}; see --monitor"));
        }
    };
    let is_on = jetstream.get("disabled").and_then(Value::as_bool) != Some(true);
    let Some(config) = jetstream.get("config").filter(|_| is_on) else {
        return report
            .warning(CHECK, format!("the server at {address} has no JetStream; see --monitor"));
    };
    if config.get("sync_always").and_then(Value::as_bool) == Some(true) {
        return report.ok(CHECK, "sync_interval: always");
    }
    match config.get("sync_interval").and_then(Value::as_u64) {
        Some(ns) => report.warning(
            CHECK,
            format!(
                "sync_interval: {}: a power failure may lose acknowledged writes, and then two may lead; set it to always, and \
                 fence writes with the token",
                time_format::span(Duration::from_nanos(ns))
            ),
        ),
        None => report.unknown(CHECK, format!("sync_interval: not reported by the server at {address}")),
    }
}

/// Reads `/jsz`: a `/varz` that was first requested before JetStream was up never has its
/// configuration.
async fn jetstream(address: &str) -> Result<Value, String> {
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    // A response in HTTP 1.0 is not chunked, and ends with the connection.
    let request = format!("GET /jsz HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    let malformed = || "not the response of a nats-server".to_owned();
    let start = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(malformed)?;
    serde_json::from_slice(answer.get(start..).unwrap_or_default()).map_err(|_| malformed())
}
