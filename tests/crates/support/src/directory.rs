//! Directories of servers.

use std::fs;
use std::path::Path;

use tempfile::{Builder, TempDir};

/// A temporary directory for a server, named after this process.
///
/// A server that the tests of a process share lives as long as the process, so nothing removes its
/// directory at the end. The next process that needs one like it does.
pub(crate) fn of_server(kind: &str) -> TempDir {
    sweep(kind, &std::env::temp_dir());
    let prefix = format!("incumbent-{kind}-{}-", std::process::id());
    Builder::new().prefix(&prefix).tempdir().expect("a directory")
}

/// Removes the directories of processes that have ended.
fn sweep(kind: &str, below: &Path) {
    let prefix = format!("incumbent-{kind}-");
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.split('-').next());
        let ended = |owner: &str| !Path::new("/proc").join(owner).exists();
        if owner.is_some_and(|owner| owner.parse::<u32>().is_ok() && ended(owner)) {
            let _ = fs::remove_dir_all(entry.path()); // another process may do it too
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_processes_that_ended_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let (ours, theirs) = (std::process::id(), u32::MAX);
        for owner in [ours, theirs] {
            fs::create_dir(place.path().join(format!("incumbent-server-{owner}-x"))).expect("it");
        }
        sweep("server", place.path());
        let left: Vec<_> = fs::read_dir(place.path()).expect("it").flatten().collect();
        assert_eq!(left.len(), 1);
        assert!(left[0].file_name().to_string_lossy().contains(&ours.to_string()));
    }
}
