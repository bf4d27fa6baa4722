//! `incumbent top`: the elections of a lock, live on a terminal.

mod cell;
mod frame;
mod state;
mod terminal;
mod watch;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;

use self::state::State;
use crate::console::history::Recording;
use crate::console::model::{Model, Moment, Source};
use crate::error::{CliError, Code, EXIT_CODES};
use crate::lock::LockArgs;
use crate::lock::elections::Elections;
use crate::output::{self, Format};

pub use self::terminal::log_writer;

/// The width without COLUMNS.
const WIDTH: u16 = 80;
/// The range of widths that are used.
const WIDTHS: (u16, u16) = (20, 1000);

/// Watch the elections of a lock live, in a full-screen view: who leads each, and how much time is
/// left until the deadline of its term.
///
/// The view needs the permissions of an observer only. It takes no part in the elections, and sends
/// no request to candidates but the roll call of the election whose details are shown. Press ? for
/// the keys.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Top {
    #[command(flatten)]
    lock: LockArgs,
    /// The elections; with Kubernetes their objects [default: all].
    names: Vec<String>,
    /// Print one frame as text, as wide as COLUMNS or 80, and end.
    #[arg(long)]
    once: bool,
    /// The format of that frame. JSON has the fields of `election list`, `election members`, `set
    /// info` and `election watch`, and the time to each deadline.
    #[arg(short, long, value_enum, default_value_t, requires = "once")]
    output: Format,
    /// A file of `incumbent record`: the details of an election show its statistics and earlier
    /// transitions.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    recording: Option<PathBuf>,
}

impl Top {
    pub async fn run(self) -> Result<(), CliError> {
        if !self.once {
            check_terminal()?;
        }
        let elections = Elections::open_for(&self.lock, &self.names).await?;
        let mut source = Source::open(&elections, &self.names).await?;
        let mut model = Model::new(source.origin());
        // A lock that cannot be read is reported before the screen is taken over.
        model.observe(source.next().await?, Moment::now());
        let mut state = State::new(elections.plain_title(), self.names.clone(), model);
        let recording = match &self.recording {
            Some(file) => state.open_recording(Recording::open(file).await),
            None => None,
        };
        match self.once {
            true => print_once(&state, self.output),
            false => {
                let has_colors = output::has_colors(&io::stdout());
                watch::run(&elections, recording.as_ref(), source, state, has_colors).await
            }
        }
    }
}

fn check_terminal() -> Result<(), CliError> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let is_dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
    let message = match (has_terminal, is_dumb) {
        (true, false) => return Ok(()),
        (true, true) => "top: TERM is dumb, and cannot show a full screen; use --once",
        (false, _) => {
            "top: standard input and output must be a terminal; use --once to print one frame"
        }
    };
    Err(CliError::new(Code::Usage, message))
}

/// Prints all elections of the state, as one frame of text.
fn print_once(state: &State, format: Format) -> Result<(), CliError> {
    if let Some(name) = state.absent().next() {
        let message = format!("election {name}: no leader, and no record found");
        return Err(CliError::new(Code::NotFound, message));
    }
    let now = Moment::now();
    if format == Format::Json {
        return output::json(&state.model.json(now));
    }
    frame::lines(state, now, width()).iter().try_for_each(output::line)
}

fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    columns.unwrap_or(WIDTH).clamp(WIDTHS.0, WIDTHS.1)
}
