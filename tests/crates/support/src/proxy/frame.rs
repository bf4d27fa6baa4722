//! As much of the NATS client protocol as separating its messages needs.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// One operation of the protocol, with the payload that follows it.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// As it came, line ends included.
    pub(crate) bytes: Bytes,
    /// Where its first line ends, without the line end.
    line: usize,
}

impl Frame {
    /// The words of its first line.
    pub(crate) fn words(&self) -> Vec<&str> {
        std::str::from_utf8(self.line()).unwrap_or_default().split_ascii_whitespace().collect()
    }

    /// Its first line, without the line end.
    pub(crate) fn line(&self) -> &[u8] {
        &self.bytes[..self.line]
    }

    /// What follows the first line, without the line end after it.
    pub(crate) fn payload(&self) -> Bytes {
        let start = (self.line + 2).min(self.bytes.len());
        let end = self.bytes.len().saturating_sub(2).max(start);
        self.bytes.slice(start..end)
    }
}

/// Reads frames off a stream of bytes.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    source: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, buffer: BytesMut::new() }
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = take_frame(&mut self.buffer) {
                return Ok(Some(frame));
            }
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

fn take_frame(buffer: &mut BytesMut) -> Option<Frame> {
    let line = buffer.windows(2).position(|pair| pair == b"\r\n")?;
    let length = match payload_length(&buffer[..line]) {
        Some(payload) => line + 2 + payload + 2,
        None => line + 2,
    };
    if buffer.remaining() < length {
        return None;
    }
    Some(Frame { bytes: buffer.split_to(length).freeze(), line })
}

/// How many bytes of payload follow a line: given by its last word, where any do.
fn payload_length(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let operation = words.next()?.to_ascii_uppercase();
    let carries = matches!(operation.as_str(), "PUB" | "HPUB" | "MSG" | "HMSG");
    carries.then(|| words.next_back()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(input: &[u8]) -> Vec<String> {
        let mut frames = Frames::new(input);
        let mut found = Vec::new();
        while let Some(frame) = frames.next().await.unwrap() {
            found.push(String::from_utf8(frame.bytes.to_vec()).unwrap());
        }
        found
    }

    #[tokio::test]
    async fn payloads_stay_with_their_line_even_where_they_hold_line_ends() {
        let input = b"PING\r\nPUB a.b 6\r\nx\r\ny\r\n\r\nHMSG s 1 r 14 16\r\nNATS/1.0\r\n\r\n..hi\r\n+OK\r\n";
        let expected = [
            "PING\r\n",
            "PUB a.b 6\r\nx\r\ny\r\n\r\n",
            "HMSG s 1 r 14 16\r\nNATS/1.0\r\n\r\n..hi\r\n",
            "+OK\r\n",
        ];
        assert_eq!(frames(input).await, expected);
    }

    #[tokio::test]
    async fn a_truncated_frame_is_incomplete() {
        assert_eq!(frames(b"PUB a 5\r\nhel").await, [""; 0]);
    }
}
