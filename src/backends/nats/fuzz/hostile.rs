//! Inputs of the fuzz tests: valid pieces in invalid places, and random bytes.

use bolero::TypeGenerator;

/// The number of inputs of each target in `cargo test`; `make fuzz` uses more.
pub(super) const FEW: usize = 3_000;

/// Pieces that a parser here expects, and values that break a careless one.
const WORDS: [&str; 64] = [
    "",
    " ",
    "\r\n",
    "\n",
    "\t",
    "\0",
    ":",
    ": ",
    "-",
    "+",
    ".",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "T",
    "Z",
    "s",
    "m",
    "h",
    "ms",
    "us",
    "µs",
    "ns",
    "0",
    "00",
    "1",
    "-1",
    "1e9",
    "-0",
    "NaN",
    "inf",
    "null",
    "true",
    "never",
    "NEVER",
    "MaxAge",
    "Remove",
    "DEL",
    "PURGE",
    "2",
    "0000000000000001",
    "000000000000000g",
    "0000000000000001-1",
    "86400000",
    "86400001",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1970-01-01",
    "T00:00:00",
    "9999-12-31",
    "0001-01-01T00:00:00Z",
    "24:60:61",
    "+23:59",
    "\u{202e}",
    "\u{1b}[31m",
    "é",
    "KV_B",
];

/// A piece of text.
#[derive(Debug, Clone, TypeGenerator)]
pub(super) enum Piece {
    Word(u8),
    Number(u64),
    Small(u8),
    Char(char),
    Long(u16),
}

impl Piece {
    fn put(&self, text: &mut String) {
        match self {
            Self::Word(index) => text.push_str(WORDS[usize::from(*index) % WORDS.len()]),
            Self::Number(number) => text.push_str(&number.to_string()),
            Self::Small(number) => text.push_str(&number.to_string()),
            Self::Char(char) => text.push(*char),
            Self::Long(length) => text.extend(std::iter::repeat_n('9', usize::from(*length) % 700)),
        }
    }
}

/// A text of a few pieces.
#[derive(Debug, Clone, TypeGenerator)]
pub(super) struct Text(
    #[generator(bolero::produce::<Vec<Piece>>().with().len(0_usize..7))] Vec<Piece>,
);

impl Text {
    pub(super) fn get(&self) -> String {
        let mut text = String::new();
        self.0.iter().for_each(|piece| piece.put(&mut text));
        text
    }

    /// Returns the text without line ends.
    pub(super) fn line(&self) -> String {
        self.get().replace(['\r', '\n'], "")
    }
}

/// One change to a valid input.
#[derive(Debug, Clone, TypeGenerator)]
pub(super) enum Mutation {
    Flip { at: u16, bit: u8 },
    Cut { at: u16, length: u8 },
    Insert { at: u16, piece: Piece },
    Byte { at: u16, byte: u8 },
    Copy { from: u16, length: u8, to: u16 },
    Number { nth: u8, piece: Piece },
}

/// A few mutations.
#[derive(Debug, Clone, TypeGenerator)]
pub(super) struct Mutations(
    #[generator(bolero::produce::<Vec<Mutation>>().with().len(0_usize..5))] Vec<Mutation>,
);

impl Mutations {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        self.0.iter().for_each(|mutation| mutation.apply(bytes));
    }
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let within = |at: u16| usize::from(at) % (bytes.len() + 1);
        match self {
            Self::Flip { at, bit } => {
                let at = within(*at);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Cut { at, length } => {
                let from = within(*at);
                let to = (from + usize::from(*length)).min(bytes.len());
                bytes.drain(from..to);
            }
            Self::Insert { at, piece } => {
                let at = within(*at);
                let mut text = String::new();
                piece.put(&mut text);
                bytes.splice(at..at, text.into_bytes());
            }
            Self::Byte { at, byte } => bytes.insert(within(*at), *byte),
            Self::Copy { from, length, to } => {
                let (from, to) = (within(*from), within(*to));
                let end = (from + usize::from(*length)).min(bytes.len());
                let copied = bytes[from..end].to_vec();
                bytes.splice(to..to, copied);
            }
            Self::Number { nth, piece } => replace_number(bytes, usize::from(*nth) % 40, piece),
        }
    }
}

/// Replaces the nth number with a piece.
fn replace_number(bytes: &mut Vec<u8>, nth: usize, piece: &Piece) {
    let is_start =
        |i: &usize| bytes[*i].is_ascii_digit() && (*i == 0 || !bytes[*i - 1].is_ascii_digit());
    let Some(start) = (0..bytes.len()).filter(is_start).nth(nth) else { return };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut text = String::new();
    piece.put(&mut text);
    bytes.splice(start..start + length, text.into_bytes());
}
