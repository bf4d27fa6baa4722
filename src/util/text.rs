//! Text of other programs, fit for a log.

use std::borrow::Cow;
use std::error::Error;

/// Returns `text` in one line of at most about `most` bytes. Escapes what cannot be printed, and
/// marks where it cut.
pub(crate) fn escape_line(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut line = String::new();
    for char in text.chars() {
        if line.len() >= most {
            line.push('…');
            break;
        }
        if is_plain(char) {
            line.push(char);
        } else {
            line.extend(char.escape_debug());
        }
    }
    Cow::Owned(line)
}

/// An error and all that led to it, in one line. A cause that an error states itself stands once.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    for cause in causes(error).skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// An error, and then each that led to the one before.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The beginning of `text`, of at most `most` bytes.
pub(crate) fn truncate(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// JSON text in ASCII: non-ASCII characters are escaped.
pub(crate) fn ascii_json(json: &str) -> String {
    let mut ascii = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            ' '..='~' => ascii.push(char),
            _ => {
                let mut units = [0; 2];
                for unit in char.encode_utf16(&mut units) {
                    ascii.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    ascii
}

/// Whether it is printed as itself.
fn is_plain(char: char) -> bool {
    matches!(char, ' '..='~') || char.escape_debug().eq([char])
}

#[cfg(test)]
mod tests {
    use super::escape_line;

    #[test]
    fn words_that_are_fit_stay_as_they_are() {
        for text in ["", "c1.example.net", "say \"hello\" \\ 'you'", "größer µs", "日本"] {
            assert_eq!(escape_line(text, 80), text);
        }
    }

    #[test]
    fn what_would_change_the_log_is_escaped() {
        assert_eq!(escape_line("a\r\nb\0\t", 80), r"a\r\nb\0\t");
        assert_eq!(
            escape_line("\u{1b}[31m\u{7f}\u{202e}\u{2028}", 80),
            r"\u{1b}[31m\u{7f}\u{202e}\u{2028}"
        );
    }

    #[test]
    fn what_is_too_long_is_cut() {
        assert_eq!(escape_line("abcdef", 6), "abcdef");
        assert_eq!(escape_line("abcdefg", 6), "abcdef…");
        assert!(escape_line(&"\0é".repeat(1 << 20), 80).len() < 100);
    }
}
