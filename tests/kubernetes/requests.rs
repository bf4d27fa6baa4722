//! Requests of an administrator to a server that may be busy.

use std::sync::atomic::{AtomicUsize, Ordering};

use incumbent::kubernetes::kube::{Client, Error};
use incumbent_test_support::repeated;
use serde_json::Value;

/// Whether the server was too busy, or cut the connection.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 429 || status.code >= 500,
        Error::HyperError(_) | Error::Service(_) => true,
        _ => false,
    }
}

/// Whether the answer to a request that was sent before shows that it was carried out then.
fn is_done(method: &str, status: u16) -> bool {
    matches!((method, status), ("POST" | "PUT", 409) | ("DELETE", 404))
}

/// Sends a request, again while the server is too busy to answer. `null`: an earlier attempt has
/// done it after all.
pub async fn send(
    client: &Client,
    method: &str,
    path: &str,
    content: &str,
    body: &[u8],
) -> Result<Value, Error> {
    let attempts = AtomicUsize::new(0);
    let attempt = || async {
        attempts.fetch_add(1, Ordering::Relaxed);
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", content).body(body.to_vec());
        client.request(request.expect("a request")).await
    };
    match repeated(attempt, is_passing).await {
        Err(Error::Api(status)) if attempts.into_inner() > 1 && is_done(method, status.code) => {
            Ok(Value::Null)
        }
        answer => answer,
    }
}

/// Creates an object, and returns it.
pub async fn post(client: &Client, path: &str, object: &Value) -> Value {
    let (json, body) = ("application/json", object.to_string());
    let made = send(client, "POST", path, json, body.as_bytes()).await.expect("a creation");
    match object["metadata"]["name"].as_str() {
        Some(name) if made.is_null() => {
            let path = format!("{path}/{name}");
            send(client, "GET", &path, json, b"").await.expect("what was created before")
        }
        _ => made,
    }
}
