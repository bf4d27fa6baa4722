//! The two programs.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use incumbent_test_support::checkout;

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// The last release.
    Last,
    /// This checkout.
    This,
}

impl Release {
    pub const BOTH: [Self; 2] = [Self::Last, Self::This];

    pub fn other(self) -> Self {
        match self {
            Self::Last => Self::This,
            Self::This => Self::Last,
        }
    }

    pub fn program(self) -> &'static Path {
        match self {
            Self::Last => last(),
            Self::This => Path::new(env!("CARGO_BIN_EXE_incumbent")),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "last",
            Self::This => "this",
        })
    }
}

/// The program of the last release, which is built unless the cache has it.
fn last() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(named) = env::var_os("INCUMBENT_LAST_RELEASE").filter(|path| !path.is_empty()) {
            return named.into();
        }
        let script = checkout().join("scripts/build-last-release.sh");
        let output = Command::new(&script).output().expect("bash");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}
