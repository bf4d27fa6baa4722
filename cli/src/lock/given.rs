//! The flags of one kind of lock, and whether one was given.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Flags that another kind of lock has, too.
const SHARED: [&str; 2] = ["context", "timeout"];

/// The identifiers of options, and whether another kind of lock has each, too.
pub fn identifiers<T: Args>() -> impl Iterator<Item = (String, bool)> {
    let command = T::augment_args(Command::new(""));
    let ids: Vec<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    ids.into_iter().map(|id| (id.clone(), SHARED.contains(&&*id)))
}

/// The flags of one kind of lock.
#[derive(Debug, Clone)]
pub struct LockFlags<T> {
    pub flags: T,
    /// The first that was given on the command line.
    pub given: Option<String>,
}

impl<T: Args> FromArgMatches for LockFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of_kind = T::augment_args(Command::new(""));
        let is_given = |id: &str| {
            !SHARED.contains(&id) && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        let given = of_kind.get_arguments().find(|arg| is_given(arg.get_id().as_str()));
        let given = given.and_then(|arg| Some(format!("--{}", arg.get_long()?)));
        Ok(Self { flags: T::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Args for LockFlags<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}
