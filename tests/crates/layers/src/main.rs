//! Checks the direction of imports: no layer uses a layer above it, and no modules use each other
//! in a circle.
//!
//! cargo-modules finds circles too. It knows nothing of layers, takes a re-export for a use, and
//! needs minutes for what reading the sources shows in a second. `--arrows` prints which module
//! uses which.

mod circles;
mod sources;

use std::path::Path;
use std::process::ExitCode;

use sources::Sources;

/// A crate, and its modules from the lowest layer to the highest: each may use those before it.
struct Layers {
    root: &'static str,
    modules: &'static [&'static str],
}

const CRATES: [Layers; 2] = [
    Layers {
        root: "src/lib.rs",
        modules: &[
            "util",
            "time",
            "lock",
            "protocol",
            "telemetry",
            "election",
            "driver",
            "history",
            "backends",
            "fence",
            "builder",
            "discovery",
            "schedule",
            "set",
            "lock_url",
        ],
    },
    Layers {
        root: "cli/src/main.rs",
        modules: &[
            "error",
            "output",
            "process",
            "http",
            "lock",
            "config",
            "kv",
            "console",
            "doctor",
            "candidate",
            "sentinel",
            "run",
            "cron",
            "campaign",
            "election",
            "set",
        ],
    },
];

fn main() -> ExitCode {
    // Of this run: checkouts share what is built, so the one of the build may be another.
    let package = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".to_owned());
    let root = Path::new(&package).join("../../..");
    let mut findings = Vec::new();
    for layers in &CRATES {
        match Sources::read(&root.join(layers.root)) {
            Ok(sources) => findings.extend(check(layers, &sources)),
            Err(why) => findings.push(why),
        }
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// One line per finding.
fn check(layers: &Layers, sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    let level = |module: &[String]| {
        module.first().map(|name| layers.modules.iter().position(|known| known == name))
    };
    for module in sources.modules() {
        if level(module) == Some(None) && module.len() == 1 {
            findings.push(format!("{}: {} has no layer: add it", layers.root, module[0]));
        }
    }
    for (user, used) in sources.arrows() {
        match (level(user), level(used)) {
            (Some(from), Some(to)) if from < to => findings.push(format!(
                "{}: {} uses {}, which is in a layer above it",
                layers.root,
                user.join("::"),
                used.join("::")
            )),
            (Some(_), None) => findings.push(format!(
                "{}: {} uses what the root of the crate defines or re-exports",
                layers.root,
                user.join("::")
            )),
            _ => {}
        }
    }
    for circle in circles::find(sources.arrows()) {
        findings.push(format!("{}: a circle: {circle}", layers.root));
    }
    if std::env::args().any(|argument| argument == "--arrows") {
        for (user, used) in sources.arrows() {
            println!("{} -> {}", user.join("::"), used.join("::"));
        }
    }
    findings
}
