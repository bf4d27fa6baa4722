//! Text of other programs, made safe for a terminal and for one line.

use std::error::Error;

/// Replaces control characters, bidirectional marks and invisible characters, so that text of
/// another program cannot control a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether `printable` would leave the text unchanged.
pub fn is_printable(text: &str) -> bool {
    text.chars().all(is_plain)
}

/// Whether a terminal prints the character as it is.
fn is_plain(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' => false,
        c => !c.is_control(),
    }
}

/// Escapes the same characters in JSON text: JSON itself escapes ASCII control characters only.
pub fn plain_json(json: String) -> String {
    if json.chars().all(|c| is_plain(c) || c == '\n') {
        return json;
    }
    let mut plain = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            c if is_plain(c) || c == '\n' => plain.push(c),
            c => plain.push_str(&format!("\\u{:04x}", u32::from(c))), // all are in the basic plane
        }
    }
    plain
}

/// An error with its causes on one line. A cause that its parent already contains is left out.
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
    fn terminal_control_characters_are_replaced() {
        assert_eq!(printable("größer 日本 ~"), "größer 日本 ~");
        let orders =
            "\u{61c}\u{fff9}\u{1b}[31m\u{7}\r\n\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{feff}";
        assert!(printable(orders).chars().all(|c| c == '\u{fffd}' || c.is_ascii_graphic()));
        let json = plain_json(serde_json::to_string(orders).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), orders);
    }
}
