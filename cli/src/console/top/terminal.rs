//! The terminal while the view has it, and its restoration whatever ends the view.

use std::io::{self, IsTerminal, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::execute;
use crossterm::style::ResetColor;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;

use crate::error::CliError;

/// Whether the view has the terminal.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The terminal in the hands of the view. Dropping it restores the terminal.
pub struct FullScreen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl FullScreen {
    /// Takes over the terminal.
    pub fn enter() -> Result<Self, CliError> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore(); // before the message
                earlier(panic);
            }));
        });
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).inspect_err(|_| restore())?;
        Ok(Self { terminal })
    }

    /// Whether the view still has the terminal: a panic elsewhere takes it away.
    pub fn is_active(&self) -> bool {
        ACTIVE.load(Ordering::Acquire)
    }

    /// Restores the terminal and stops this process until it is continued; on Windows, draws again.
    pub fn suspend(&mut self) -> Result<(), CliError> {
        restore();
        #[cfg(unix)]
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Takes over the terminal again, which another program may have changed.
    pub fn resume(&mut self) -> Result<(), CliError> {
        take()?;
        self.clear()
    }

    /// Has the next frame draw everything.
    pub fn clear(&mut self) -> Result<(), CliError> {
        // `Terminal::clear` asks the terminal for the cursor, and the answer goes to the keys.
        let size = self.terminal.size()?;
        Ok(self.terminal.resize(Rect::new(0, 0, size.width, size.height))?)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> Result<(), CliError> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::Release);
    execute!(stdout(), EnterAlternateScreen, Hide, EnableBracketedPaste)
        .inspect_err(|_| restore())?;
    Ok(())
}

/// Restores the terminal, if the view has it. A terminal that is gone is no failure.
fn restore() {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        let _ = execute!(stdout(), DisableBracketedPaste, ResetColor, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Ends this process by a signal, although the terminal takes no output.
pub fn end_stuck(signal: i32) {
    if ACTIVE.swap(false, Ordering::AcqRel) {
        let _ = disable_raw_mode(); // the rest would wait for the terminal
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Where logs go: nowhere while they would overwrite the view.
pub fn log_writer() -> Box<dyn Write> {
    match ACTIVE.load(Ordering::Acquire) && io::stderr().is_terminal() {
        true => Box::new(io::sink()),
        false => Box::new(io::stderr()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Command;

    use incumbent_test_support::PseudoTerminal;
    use rustix::termios::{LocalModes, tcgetattr};

    use super::FullScreen;

    /// Set in the process that panics.
    const PANICS: &str = "INCUMBENT_TEST_PANICS";

    #[test]
    fn panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = FullScreen::enter().expect("a terminal");
            panic!("on purpose");
        }
        let terminal = PseudoTerminal::open();
        let side = terminal.side();
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let test = "console::top::terminal::tests::panic_restores_the_terminal_before_its_message";
        command.args([test, "--exact", "--nocapture"]).env(PANICS, "1").env("TERM", "xterm");
        let status =
            command.stdin(terminal.side()).stdout(terminal.side()).stderr(terminal.side()).status();
        assert!(!status.expect("an end").success());
        drop(command);
        let modes = tcgetattr(&side).expect("modes").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        drop(side);
        let mut shown = Vec::new();
        let _ = (&terminal.controller).read_to_end(&mut shown); // ends with an error
        let shown = String::from_utf8_lossy(&shown);
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?}: {shown:?}"));
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{shown:?}");
        assert!(at("\u{1b}[?25h") < at("on purpose"), "{shown:?}");
    }
}
