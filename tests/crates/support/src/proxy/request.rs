//! What a client publishes.

use bytes::Bytes;

use super::frame::Frame;

/// A message on its way from a client to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where it goes.
    pub subject: String,
    /// Where the answer is expected.
    pub reply: Option<String>,
    /// Its headers, as they were written.
    pub headers: Vec<(String, String)>,
    /// Its payload.
    pub payload: Bytes,
}

impl Request {
    /// The first value of a header, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The message in a frame, where it is one that a client publishes.
    pub(crate) fn parse(frame: &Frame) -> Option<Self> {
        let words = frame.words();
        let operation = words.first()?.to_ascii_uppercase();
        let body = frame.payload();
        let (subject, reply, head) = match (operation.as_str(), words.as_slice()) {
            ("PUB", [_, subject, _]) => (subject, None, 0),
            ("PUB", [_, subject, reply, _]) => (subject, Some(reply), 0),
            ("HPUB", [_, subject, head, _]) => (subject, None, head.parse().ok()?),
            ("HPUB", [_, subject, reply, head, _]) => (subject, Some(reply), head.parse().ok()?),
            _ => return None,
        };
        let head: usize = head;
        Some(Self {
            subject: (*subject).to_owned(),
            reply: reply.map(|reply| (*reply).to_owned()),
            headers: parse_headers(body.get(..head)?),
            payload: body.slice(head..),
        })
    }
}

fn parse_headers(head: &[u8]) -> Vec<(String, String)> {
    let head = String::from_utf8_lossy(head);
    let lines = head.lines().skip(1); // the first is the version
    let pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}
