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

/// The Roles and bindings of a manifest in `deploy`, each with its kind.
pub fn roles_in_deploy(file: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(checkout().join("deploy").join(file)).expect("a manifest");
    let kind = |object: &str| -> Option<String> {
        let kind = object.lines().find_map(|line| line.strip_prefix("kind: "))?;
        kind.split(' ').next().map(str::to_owned)
    };
    let objects =
        text.split("---\n").map(|object| (kind(object).expect("a kind"), object.to_owned()));
    let roles: Vec<_> = objects.filter(|(kind, _)| kind.contains("Role")).collect();
    assert!(!roles.is_empty(), "deploy/{file} has no Role");
    roles
}
