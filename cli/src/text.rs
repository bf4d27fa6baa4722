//! Text of other programs, made safe for a terminal and for one line.

use std::error::Error;

/// Text that comes from somebody else, without what a terminal would take for an order: control characters, and those that
/// turn the direction of what follows, or cannot be seen.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether nothing of it would be replaced.
pub fn is_printable(text: &str) -> bool {
    text.chars().all(is_plain)
}

/// Whether a terminal shows it as itself.
fn is_plain(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => false,
        c => !c.is_control(),
    }
}

/// JSON text in which no terminal finds an order either: JSON itself escapes the control characters of ASCII alone.
pub fn plain_json(json: String) -> String {
    if json.chars().all(|c| is_plain(c) || c == '\n') {
        return json;
    }
    let mut plain = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            c if is_plain(c) || c == '\n' => plain.push(c),
            c => plain.push_str(&format!("\\u{:04x}", u32::from(c))), // all of them are of the basic plane
        }
    }
    plain
}

/// An error with all that led to it, each said once, on one line.
pub fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
        source = error.source();
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(printable("größer 日本 ~"), "größer 日本 ~");
        let orders = "\u{1b}[31m\u{7}\r\n\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{feff}";
        assert!(printable(orders).chars().all(|c| c == '\u{fffd}' || c.is_ascii_graphic()));
        let json = plain_json(serde_json::to_string(orders).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), orders);
    }
}
