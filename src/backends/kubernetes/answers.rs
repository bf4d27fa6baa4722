//! Reads the API server's responses, up to a size limit: a proxy may have sent them.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, StreamExt};
use http_body_util::{BodyDataStream, BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::{Status, WatchEvent};
use serde_json::Value;

use crate::util::text::causes;

/// The maximum size of a response in bytes: enough to list ten thousand objects.
const MAX_RESPONSE_LEN: usize = 64 << 20;
/// The maximum size of one event in bytes: a store accepts objects of 1.5 MiB, which JSON may
/// encode in several times that size.
const MAX_EVENT_LEN: usize = 16 << 20;

/// The events of a watch.
pub(super) type Events = BoxStream<'static, Result<WatchEvent<Value>, kube::Error>>;

/// Reads a complete response.
pub(super) async fn whole(body: Body) -> Result<Bytes, kube::Error> {
    match Limited::new(body, MAX_RESPONSE_LEN).collect().await {
        Ok(response) => Ok(response.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long(MAX_RESPONSE_LEN)),
        Err(error) => Err(match error.downcast::<kube::Error>() {
            Ok(error) => *error,
            Err(error) => kube::Error::Service(error),
        }),
    }
}

/// Parses an unsuccessful response. Only a Status of the API has a reason.
pub(super) fn refusal(code: u16, body: &[u8]) -> Status {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let is_status = parsed.as_ref().is_some_and(|parsed| {
        parsed.get("kind").is_some_and(|kind| kind == "Status")
            && parsed.get("apiVersion").is_some_and(|version| version == "v1")
    });
    let status = parsed.and_then(|parsed| serde_json::from_value::<Status>(parsed).ok());
    let mut status = status
        .unwrap_or_else(|| Status::failure(String::from_utf8_lossy(body).trim(), ""))
        .with_code(code);
    if !is_status {
        status.reason.clear();
        status.details = None;
    }
    status
}

/// Returns the events of a watch, one per line.
pub(super) fn events(body: Body) -> Events {
    let lines = Lines { body: body.into_data_stream(), read: BytesMut::new(), over: false };
    stream::unfold(lines, |mut lines| async {
        let event = lines.next().await?;
        Some((event, lines))
    })
    .boxed()
}

struct Lines {
    body: BodyDataStream<Body>,
    /// The bytes of the next line that were read so far.
    read: BytesMut,
    over: bool,
}

impl Lines {
    async fn next(&mut self) -> Option<Result<WatchEvent<Value>, kube::Error>> {
        let mut searched = 0;
        while !self.over {
            let unsearched = self.read.get(searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(searched + end + 1);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    return Some(event(&line));
                }
                continue;
            }
            searched = self.read.len();
            if searched > MAX_EVENT_LEN {
                self.over = true;
                return Some(Err(too_long(MAX_EVENT_LEN)));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.read.extend_from_slice(&bytes),
                Some(Err(error)) => {
                    self.over = true;
                    return if is_cut_off(&error) { None } else { Some(Err(error)) };
                }
                None => self.over = true, // the next watch repeats an incomplete event
            }
        }
        None
    }
}

fn event(line: &[u8]) -> Result<WatchEvent<Value>, kube::Error> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => kube::Error::Api(status.boxed()),
        Err(_) => kube::Error::SerdeError(error),
    })
}

/// Whether the connection ended within the stream, as happens after some minutes: the next watch
/// then continues from there.
fn is_cut_off(error: &kube::Error) -> bool {
    let mut of_io = causes(error).filter_map(|error| error.downcast_ref::<io::Error>());
    of_io.any(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

fn too_long(limit: usize) -> kube::Error {
    kube::Error::Service(format!("the response is longer than {} MiB", limit >> 20).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn delivered(text: &str) -> Vec<String> {
        let events = events(Body::from(text.as_bytes().to_vec()));
        let delivered = events.map(|event| match event {
            Ok(WatchEvent::Added(object)) => object.to_string(),
            other => format!("{other:?}").chars().take(12).collect(),
        });
        delivered.collect().await
    }

    #[tokio::test]
    async fn a_watch_is_read_line_by_line() {
        let added = |n: u8| format!("{{\"type\":\"ADDED\",\"object\":{n}}}");
        let text = format!("{}\n\n{}\n{}", added(1), added(2), added(3));
        assert_eq!(delivered(&text).await, ["1", "2"], "the last event is incomplete");
        assert_eq!(delivered("junk\n").await, ["Err(SerdeErr"]);
    }

    #[tokio::test]
    async fn oversized_responses_are_not_read_to_the_end() {
        let long = "x".repeat(MAX_EVENT_LEN + 2);
        assert_eq!(delivered(&long).await, ["Err(Service("]);
        assert!(whole(Body::from(long.clone().into_bytes())).await.is_ok());
        let longer = long.repeat(MAX_RESPONSE_LEN / MAX_EVENT_LEN);
        let refused = whole(Body::from(longer.into_bytes())).await.unwrap_err();
        assert!(refused.to_string().contains("longer than 64 MiB"), "{refused}");
    }

    #[test]
    fn only_a_status_of_the_api_has_a_reason() {
        let status = r#"{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":1}"#;
        assert_eq!(
            (refusal(404, status.as_bytes()).reason.as_str(), refusal(404, b"").code),
            ("NotFound", 404)
        );
        for other in [
            "",
            "<html>",
            "[]",
            r#"{"reason":"NotFound"}"#,
            r#"{"kind":"Status","reason":"NotFound"}"#,
        ] {
            assert_eq!(refusal(404, other.as_bytes()).reason, "", "{other}");
        }
        assert_eq!(refusal(503, b" busy ").message, "busy");
    }
}
