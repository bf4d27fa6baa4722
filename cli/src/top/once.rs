//! `top --once`: one frame as text.

use super::frame;
use super::state::State;
use crate::error::{CliError, Code};
use crate::output::{self, Format};
use crate::view::Moment;

/// The width without COLUMNS.
const WIDTH: u16 = 80;
/// The range of widths that are used.
const WIDTHS: (u16, u16) = (20, 1000);

/// Prints all elections of the state.
pub fn print(state: &State, format: Format) -> Result<(), CliError> {
    if let Some(name) = state.absent().next() {
        let message = format!("election {name}: no leader, and no trace of an earlier one");
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
