//! Text of other programs in a cell: harmless, and no wider than the cell.

use unicode_width::UnicodeWidthChar;

use crate::output::text::printable;

/// How many marks without a width follow a character at most.
const MAX_MARKS: usize = 2;
/// The most characters of a text that are looked at.
const MAX_TEXT: usize = 4096;

/// The text without control characters, cut to this width.
pub fn fit(text: &str, width: usize) -> String {
    let text: String = text.chars().take(MAX_TEXT).collect();
    let mut marks = 0;
    let mut plain: Vec<char> = printable(&text).chars().collect();
    plain.retain(|c| {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        marks <= MAX_MARKS
    });
    let of = |c: &char| c.width().unwrap_or_default();
    if plain.iter().map(of).sum::<usize>() <= width {
        return plain.into_iter().collect();
    }
    let mut used = 0;
    let mut cut: String = plain
        .iter()
        .take_while(|c| {
            used += of(c);
            used < width // a place is left for the sign
        })
        .collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// Text in lines of this width.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or_default();
        if used + wide > width {
            lines.push(String::new());
            used = 0;
        }
        used += wide;
        lines.last_mut().into_iter().for_each(|line| line.push(c));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(text: &str) -> usize {
        text.chars().filter_map(UnicodeWidthChar::width).sum()
    }

    #[test]
    fn no_text_is_wider_than_its_cell_or_controls_the_terminal() {
        assert_eq!(fit("größer", 6), "größer");
        assert_eq!(fit("größer", 5), "größ…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!((fit("ab", 1), fit("ab", 0)), ("…".to_owned(), String::new()));
        let marked = format!("a{}b", "\u{301}".repeat(700));
        assert_eq!(fit(&marked, 10).chars().count(), 4);
        bolero::check!().with_type::<(String, u8)>().for_each(|(text, limit)| {
            let shown = fit(text, usize::from(*limit));
            assert!(width(&shown) <= usize::from(*limit), "{shown:?}");
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
            wrap(&shown, usize::from(*limit));
        });
    }
}
