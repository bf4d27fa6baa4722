//! Where the sources are.

use std::env;
use std::path::PathBuf;

/// The checkout whose tests these are: determined when they run, as cargo takes what it built in
/// one clone to be fresh in another that shares its target directory.
pub fn checkout() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.or_else(|| env::current_dir().ok()).unwrap_or_default();
    let root = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(&here).to_path_buf()
}
