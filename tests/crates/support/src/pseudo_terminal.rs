//! A pseudo-terminal.

use std::fs::File;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal for a program, without one.
#[derive(Debug)]
pub struct PseudoTerminal {
    /// The side that types, and reads what is shown. Reading ends with an error once every handle
    /// on the other side is closed.
    pub controller: File,
    name: String,
}

impl PseudoTerminal {
    /// Opens one.
    ///
    /// # Panics
    ///
    /// Where the system has none left.
    pub fn open() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("a terminal of ours");
        unlockpt(&controller).expect("an unlocked terminal");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let name = name.into_string().expect("text");
        Self { controller: controller.into(), name }
    }

    /// Another handle on the side of the program.
    ///
    /// # Panics
    ///
    /// Where it cannot be opened.
    pub fn side(&self) -> File {
        File::options().read(true).write(true).open(&self.name).expect("its other side")
    }
}
