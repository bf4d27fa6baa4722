//! What the parts of a member have in common.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::ValueEnum;

use crate::run::CommandFailure;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnShardExit {
    /// Give the shard up after 1s, then 2s and so on up to 30s: another member may lead it, or this
    /// one again.
    GiveUp,
    /// Restart COMMAND in the same term after such a pause.
    Restart,
    /// Stop all shards, and exit with COMMAND's code.
    Exit,
}

/// What the parts of a set are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    Shards,
    Seats,
}

impl Naming {
    /// The variables with the number of a part, and of all parts.
    pub fn variables(self) -> (&'static str, &'static str) {
        match self {
            Self::Shards => ("INCUMBENT_SHARD", "INCUMBENT_SHARDS"),
            Self::Seats => ("INCUMBENT_SEAT", "INCUMBENT_SEATS"),
        }
    }

    /// That a member acquires nothing beside another one, which has another number of parts.
    pub fn other_number(self, own: usize, others: u32) -> String {
        let (parts, give) = match self {
            Self::Shards => ("shards", "--shards, or change it by --resizing"),
            Self::Seats => ("seats", "--seats"),
        };
        format!(
            "another member has {others} {parts}, and this one {own}: it leads none beside that \
             one; give all the same {give}"
        )
    }

    /// The command of a shard: its number replaces `{shard}`.
    pub fn command(self, command: &[OsString], shard: u32) -> Vec<OsString> {
        let number = shard.to_string();
        let replaced = |(index, argument): (usize, &OsString)| match (self, index) {
            (Self::Seats, _) | (_, 0) => argument.clone(),
            (Self::Shards, _) => replace(argument, &number),
        };
        command.iter().enumerate().map(replaced).collect()
    }
}

fn replace(argument: &OsStr, number: &str) -> OsString {
    const PLACE: &[u8] = b"{shard}";
    let mut rest = argument.as_bytes();
    let mut replaced = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(number.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    replaced.extend_from_slice(rest);
    OsString::from_vec(replaced)
}

/// Why the command of a shard ends its member: its exit code, or why it cannot be run any longer.
pub type MemberEvent = Result<u8, CommandFailure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_has_the_number_in_place_of_the_word() {
        let command = ["a-{shard}", "{shard}", "--part={shard}/{shard}", "{shar}", "", "é{shard"];
        let command: Vec<OsString> = command.into_iter().map(OsString::from).collect();
        let replaced = Naming::Shards.command(&command, 17);
        assert_eq!(replaced, ["a-{shard}", "17", "--part=17/17", "{shar}", "", "é{shard"]);
        assert_eq!(Naming::Seats.command(&command, 17), command);
    }
}
