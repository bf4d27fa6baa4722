//! Breaks the rules one at a time in a copy of the sources, and sees whether the instruments
//! notice.
//!
//! cargo-mutants, the well-kept tool for this, draws its mutations from the syntax; these are drawn
//! from the promise.

mod instrument;
mod list;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use clap::Parser;

use instrument::{Instrument, Verdict};
use list::{Edit, Mutation, mutations};

/// Breaks the rules of the protocol one at a time; each must be noticed by the tests.
#[derive(Parser)]
struct Args {
    /// Where to put the copy of the sources, outside of them.
    #[arg(long)]
    tree: PathBuf,
    /// Ask every instrument that must notice, rather than the first one of them.
    #[arg(long)]
    all: bool,
    /// Ask this instrument alone, whether it must notice or not.
    #[arg(long)]
    by: Option<Instrument>,
    /// Only one part of the mutations, as in `2/4`, and nothing on unchanged sources.
    #[arg(long)]
    part: Option<Part>,
    /// Only the mutations whose name contains one of these.
    only: Vec<String>,
}

/// Every `of`th mutation, from the `number`th on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    number: usize,
    of: usize,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (number, of) = text.split_once('/')?;
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&number).then_some(Self { number, of })
        };
        parse().ok_or_else(|| format!("{text:?} is not a part: give one as in 2/4"))
    }
}

impl Args {
    fn asks<'a>(&'a self, mutation: &'a Mutation) -> &'a [Instrument] {
        match &self.by {
            Some(instrument) => std::slice::from_ref(instrument),
            None if self.all => mutation.noticed_by,
            None => &mutation.noticed_by[..1],
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            // As test programs do: readers of a long log look for it at its end.
            eprintln!("\nfailures:\n    {}", wrong.join("\n    "));
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the rows of what was not noticed, or wrongly.
fn run(args: &Args) -> Result<Vec<String>, String> {
    let sources = sources()?;
    let _turn = turn(&args.tree)?;
    println!("| what is wrong | noticed by | how | after |\n|---|---|---|---|");
    let wanted = |mutation: &&Mutation| {
        args.only.is_empty() || args.only.iter().any(|part| mutation.name.contains(part.as_str()))
    };
    let part = args.part.unwrap_or(Part { number: 1, of: 1 });
    let in_part = mutations().skip(part.number - 1).step_by(part.of);
    let by_all = |mutation: &&Mutation| args.asks(mutation)[0].builds_all_features();
    let (all, few): (Vec<_>, Vec<_>) = in_part.filter(wanted).partition(by_all);
    // Side by side, as both often wait for servers; and so that neither builds what the other has
    // built.
    thread::scope(|scope| {
        let shards = [("all-features", all), ("few-features", few)].map(|(name, mutations)| {
            let (sources, tree) = (&sources, args.tree.join(name));
            scope.spawn(move || all_are_noticed(args, sources, &tree, &mutations))
        });
        shards.into_iter().try_fold(Vec::new(), |mut all, shard| {
            let wrong = shard.join().map_err(|_| "a thread has panicked".to_owned())?;
            all.extend(wrong?);
            Ok(all)
        })
    })
}

/// Goes through mutations in a copy of the sources.
fn all_are_noticed(
    args: &Args,
    sources: &Path,
    tree: &Path,
    mutations: &[&Mutation],
) -> Result<Vec<String>, String> {
    if mutations.is_empty() {
        return Ok(Vec::new());
    }
    copy(sources, tree)?;
    take_dependencies(tree);
    let mut wrong = Vec::new();
    for mutation in mutations {
        for edit in mutation.edits {
            break_rule(tree, edit)?;
        }
        for instrument in args.asks(mutation) {
            let verdict = instrument
                .look(tree)
                .map_err(|why| format!("{}: does not build:\n{why}", mutation.name))?;
            match verdict {
                Verdict::Noticed(how, took) => {
                    print_row(mutation.name, &instrument.to_string(), &how, took);
                }
                Verdict::Unnoticed(took) => {
                    let row =
                        print_row(mutation.name, &format!("NOT by the {instrument}"), "", took);
                    if mutation.noticed_by.contains(instrument) {
                        wrong.push(row);
                    }
                }
            }
        }
        for edit in mutation.edits {
            restore(sources, tree, edit.file)?;
        }
    }
    // A part is for `make verify`, which runs the same tests on the same sources.
    if args.part.is_none() {
        wrong.extend(noticed_in_what_is_whole(args, tree, mutations)?);
    }
    Ok(wrong)
}

/// An instrument that fails by itself would have noticed everything.
fn noticed_in_what_is_whole(
    args: &Args,
    tree: &Path,
    mutations: &[&Mutation],
) -> Result<Vec<String>, String> {
    let mut asked = Vec::new();
    for instrument in mutations.iter().flat_map(|mutation| args.asks(mutation)) {
        // A simulation and a model check without a finding take minutes, and run by themselves in
        // other tests.
        if instrument.draws_schedules() || asked.contains(instrument) {
            continue;
        }
        asked.push(*instrument);
    }
    let mut wrong = Vec::new();
    for instrument in asked {
        match instrument.look(tree).map_err(|why| format!("unchanged sources: {why}"))? {
            Verdict::Unnoticed(took) => {
                print_row("nothing", &format!("not by the {instrument}"), "", took);
            }
            Verdict::Noticed(how, took) => {
                let by = format!("WRONGLY by the {instrument}");
                wrong.push(print_row("nothing", &by, &how, took));
            }
        }
    }
    Ok(wrong)
}

/// Prints a row of the table, and returns it.
fn print_row(what: &str, by: &str, how: &str, took: Duration) -> String {
    let row = format!("| {what} | {by} | {how} | {:.1} s |", took.as_secs_f64());
    println!("{row}");
    row
}

/// Waits until no other run uses `tree`.
fn turn(tree: &Path) -> Result<fs::File, String> {
    fs::create_dir_all(tree).map_err(at(tree))?;
    let path = tree.with_extension("lock");
    let file = fs::File::create(&path).map_err(at(&path))?;
    file.lock().map_err(at(&path))?;
    Ok(file)
}

fn sources() -> Result<PathBuf, String> {
    // Asked of the `cargo run` that started us: what was built in another clone may be run in this
    // one.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("run it with `make mutations`")?;
    let root = Path::new(&package).join("../../..");
    root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))
}

/// Copies what git knows of, or would.
fn copy(sources: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .current_dir(sources)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
    }
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let files = listed.split('\0').filter(|file| !file.is_empty() && sources.join(file).exists());
    let mut wanted = HashSet::new();
    for file in files {
        restore(sources, tree, file)?;
        wanted.insert(tree.join(file));
    }
    remove_others(tree, &wanted)?;
    // One from an earlier run may lead into a checkout that is gone.
    let tools = tree.join(".tools");
    let _ = fs::remove_file(&tools);
    if sources.join(".tools").exists() {
        std::os::unix::fs::symlink(sources.join(".tools"), &tools).map_err(at(&tools))?;
    }
    Ok(())
}

/// Links what the checkout has built of other packages, so that only ours are compiled. Without it
/// they are compiled too.
fn take_dependencies(tree: &Path) {
    let to = tree.join("target/debug");
    let Some(from) = std::env::var_os("CARGO_TARGET_DIR").filter(|_| !to.exists()) else { return };
    let from = Path::new(&from).join("debug");
    for folder in ["deps", "build", ".fingerprint"] {
        let _ = link_all(&from.join(folder), &to.join(folder));
    }
}

/// Links all files but ours. Of `deps` it needs libraries alone, which a compiler never changes in
/// place.
fn link_all(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let text = name.to_string_lossy();
        if text.trim_start_matches("lib").starts_with("incumbent") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            link_all(&path, &to.join(&name))?;
        } else if !from.ends_with("deps") || text.starts_with("lib") {
            fs::hard_link(&path, to.join(&name))?;
        }
    }
    Ok(())
}

/// Removes the files of an earlier run that the sources do not have any more, but not what was
/// built.
fn remove_others(folder: &Path, wanted: &HashSet<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let entry = entry.map_err(at(folder))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(at(&path))?;
        if kind.is_dir() && !["target", ".git"].iter().any(|kept| entry.file_name() == *kept) {
            remove_others(&path, wanted)?;
            let _ = fs::remove_dir(&path); // fails if it is not empty
        } else if kind.is_file() && !wanted.contains(&path) {
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Leaves a file alone that is the same already, so that it need not be compiled again.
fn restore(sources: &Path, tree: &Path, file: &str) -> Result<(), String> {
    let (from, to) = (sources.join(file), tree.join(file));
    let wanted = fs::read(&from).map_err(at(&from))?;
    if fs::read(&to).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(at(folder))?;
    }
    // Copied rather than written anew for its permissions.
    fs::copy(&from, &to).map(drop).map_err(at(&to))?;
    let now = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
    fs::File::options().append(true).open(&to).and_then(|f| f.set_times(now)).map_err(at(&to))
}

fn break_rule(tree: &Path, edit: &Edit) -> Result<(), String> {
    let path = tree.join(edit.file);
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    let found = text.matches(edit.from).count();
    if found != 1 {
        return Err(format!("{}: {found} times, not once:\n{}", edit.file, edit.from));
    }
    fs::write(&path, text.replace(edit.from, edit.to)).map_err(at(&path))
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edit whose text has changed breaks nothing, and would be noticed only when its turn
    /// comes.
    #[test]
    fn every_edit_matches_the_sources_once() {
        let sources = sources().unwrap();
        let mut wrong = Vec::new();
        for mutation in mutations() {
            let mut texts = std::collections::HashMap::new();
            for edit in mutation.edits {
                let path = sources.join(edit.file);
                let text = texts.entry(edit.file).or_insert_with(|| {
                    fs::read_to_string(&path).unwrap_or_else(|error| at(&path)(error))
                });
                let found = text.matches(edit.from).count();
                if found != 1 {
                    wrong.push(format!("{}: {found} times in {}", mutation.name, edit.file));
                }
                *text = text.replace(edit.from, edit.to);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_file_that_the_sources_do_not_have_any_more_is_removed() {
        let tree = std::env::temp_dir().join(format!("mutations-{}", std::process::id()));
        let files = ["src/kept.rs", "src/old/gone.rs", "target/built"].map(|file| tree.join(file));
        for file in &files {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        remove_others(&tree, &HashSet::from([files[0].clone()])).unwrap();
        let left = files.each_ref().map(|file| file.exists());
        let folder = tree.join("src/old").exists();
        fs::remove_dir_all(&tree).unwrap();
        assert_eq!((left, folder), ([true, false, true], false));
    }

    #[test]
    fn the_parts_are_all_mutations_once() {
        let parts = ["1/3", "2/3", "3/3"].map(|part| part.parse::<Part>().unwrap());
        let names =
            parts.iter().flat_map(|part| mutations().skip(part.number - 1).step_by(part.of));
        let mut names: Vec<_> = names.map(|mutation| mutation.name).collect();
        let mut all: Vec<_> = mutations().map(|mutation| mutation.name).collect();
        names.sort_unstable();
        all.sort_unstable();
        assert_eq!(names, all);
        for wrong in ["", "0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
