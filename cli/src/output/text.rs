//! Text of other programs, made safe for a terminal and for one line.

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Replaces control characters, bidirectional marks, invisible characters and unusual spaces, so
/// that text of another program neither controls a terminal nor looks like another text.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// Whether `printable` would leave the text unchanged.
pub fn is_printable(text: &str) -> bool {
    text.chars().all(is_plain)
}

/// Whether a terminal prints the character as it is, and everybody sees it.
fn is_plain(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, SpaceSeparator};
    match c {
        ' '..='~' => true,
        '\u{2800}' => false, // a braille pattern without dots
        c => {
            let category = CodePointMapData::<GeneralCategory>::new().get(c);
            let is_hidden = [Control, Format, LineSeparator, ParagraphSeparator, SpaceSeparator];
            !is_hidden.contains(&category)
                && !CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
        }
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
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    plain.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    plain
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

    #[test]
    fn invisible_characters_are_shown() {
        for hidden in [
            '\u{200d}',  // joins two characters
            '\u{3164}',  // a Hangul letter that fills
            '\u{115f}',  // another one
            '\u{e0061}', // a tag
            '\u{fe0f}',  // selects a variation
            '\u{2800}',
            '\u{a0}',
            '\u{2003}',
            '\u{ad}',
            '\u{34f}',
        ] {
            let text = format!("a{hidden}b");
            assert_eq!(printable(&text), "a\u{fffd}b", "{hidden:?}");
            let json = plain_json(serde_json::to_string(&text).unwrap());
            assert!(json.is_ascii(), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
