//! The reason of a failed check, from what the check printed.

use crate::output::text::printable;

/// The most bytes that are kept: the last ones.
const MAX_KEPT: usize = 4 * 1024;
/// The most characters of a reason.
const MAX_REASON: usize = 200;

/// The end of an output.
#[derive(Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(MAX_KEPT);
        self.0.drain(..excess);
    }

    /// The last line that is not blank.
    pub fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(printable(&line.chars().take(MAX_REASON).collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_the_last_line_bounded_and_printable() {
        let last = |output: &[u8]| {
            let mut tail = Tail::default();
            output.chunks(1000).for_each(|chunk| tail.push(chunk));
            tail.last_line()
        };
        assert_eq!(last(b""), None);
        assert_eq!(last(b" \n\t\n"), None);
        assert_eq!(last(b"one\n  disk full \r\n\n").as_deref(), Some("disk full"));
        assert_eq!(last(b"\x1b[31mred\n").as_deref(), Some("\u{fffd}[31mred"));
        assert_eq!(last(b"a\xff").as_deref(), Some("a\u{fffd}"));
        let long = last(&vec![b'x'; 1 << 20]).map(|line| line.len());
        assert_eq!(long, Some(MAX_REASON));
    }
}
