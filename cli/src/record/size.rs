//! Sizes of files on the command line.

use crate::history::MIN_SIZE;
use crate::time_format;

/// The largest size.
const MAX_SIZE: u64 = 1 << 40;

/// Parses a size, as in `64MiB`, `500kB` or `1000000`.
pub fn parse(word: &str) -> Result<u64, String> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let factor: u64 = match &*unit.trim().to_ascii_lowercase() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return Err("write it as in 64MiB, 500kB or 1000000".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "write it as in 64MiB, 500kB or 1000000")?;
    let size = number.saturating_mul(factor);
    match size {
        MIN_SIZE..=MAX_SIZE => Ok(size),
        _ => {
            let (least, most) = (time_format::size(MIN_SIZE), time_format::size(MAX_SIZE));
            Err(format!("choose between {least} and {most}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_usual_units() {
        assert_eq!(parse("64MiB"), Ok(64 << 20));
        assert_eq!(parse("500kB"), Ok(500_000));
        assert_eq!(parse("1000000"), Ok(1_000_000));
        assert_eq!(parse("1 GiB"), Ok(1 << 30));
        for odd in ["", "MiB", "-1MiB", "1.5MiB", "1", "0", "99999999999999999999", "1TiB", "9PB"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
