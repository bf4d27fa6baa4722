//! What the processes of a run wrote down is replayed, and a history that differs fails the run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use incumbent_attack::judge::{Judge, Replays, Report};
use incumbent_attack::record::history::{lines_into, path};
use incumbent_attack::record::journal::{Event, Line, Tail};
use serde_json::{Value, json};

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_incumbent-attack")).args(arguments).output().unwrap()
}

/// The directory of a run that was kept, and the contents of its journal.
struct Kept {
    directory: PathBuf,
    lines: Vec<Line>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Kept {
    fn of(printed: &str) -> Self {
        let (_, rest) =
            printed.split_once("the journal and the output of all processes are in ").unwrap();
        let directory = PathBuf::from(rest.lines().next().unwrap());
        let lines = Tail::new(&directory.join("journal")).lines().unwrap();
        Self { directory, lines }
    }

    /// What the run does at its end.
    fn check(&self) -> Report {
        self.check_with(&self.lines)
    }

    fn check_with(&self, lines: &[Line]) -> Report {
        let mut judge = Judge::default();
        for line in lines {
            judge.feed(line);
        }
        judge.replay(&self.directory.join("journal"));
        judge.report(true)
    }

    /// The history of a leader that ended in this way.
    fn history_of_leader(&self, end: &Event) -> PathBuf {
        let ended = self.lines.iter().filter(|line| line.event == *end);
        let mut files =
            ended.map(|line| path(&self.directory.join("journal"), &line.who, line.life));
        files
            .find(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("Begin")))
            .unwrap()
    }

    /// What is found while a history is another one, or none.
    fn found_with(&self, file: &Path, altered: Option<String>) -> Report {
        let text = fs::read_to_string(file).unwrap();
        match altered {
            Some(altered) => fs::write(file, altered).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        let report = self.check();
        fs::write(file, text).unwrap();
        report
    }
}

/// A history whose first line that `change` can change is changed.
fn altered(file: &Path, pointer: &str, change: impl Fn(&Value) -> Option<Value>) -> Option<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = lines.iter_mut().find_map(|line| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let place = value.pointer_mut(pointer)?;
        *place = change(place)?;
        *line = value.to_string();
        Some(())
    });
    line.unwrap_or_else(|| panic!("{pointer} is nowhere in {text}"));
    Some(lines.join("\n") + "\n")
}

/// One thing is found.
fn only(report: &Report, text: &str) {
    let found: Vec<_> = report.violations.iter().map(|violation| &violation.text).collect();
    assert!(found.len() == 1 && found[0].contains(text), "{text}: {found:?}");
}

#[test]
fn a_run_is_replayed_and_a_history_that_differs_is_found() {
    let faults = ["--fault", "leader killed", "--fault", "leader paused, short"];
    let output =
        program(&[&["chaos", "--seed", "4", "--loopback", "--keep"], &faults[..]].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let run = Kept::of(&printed);

    let report = run.check();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let Replays { histories, events, actions, torn, cut } = report.replays;
    assert!(histories >= 6 && actions > 10 && cut == 0, "{:?}", report.replays);
    let line = format!("{histories} histories replayed, {events} events, {actions} actions;");
    assert!(printed.contains(&line), "{line}\n{printed}");

    let (stopped, killed) =
        (run.history_of_leader(&Event::Stopped), run.history_of_leader(&Event::Killed));
    for file in [&stopped, &killed] {
        let next = |value: &Value| Some(json!(value.as_u64()? + 1));
        let instant = altered(file, "/in/at/secs", next);
        let answer = altered(file, "/in/event/Response/response/Written/Ok", next);
        let action = altered(file, "/out/actions/0/1/Request/id", next);
        let wake = altered(file, "/out/wake/nanos", |nanos| Some(json!(nanos.as_u64()? ^ 1)));
        let seed = altered(file, "/locks/0/settings/seed", next);
        for history in [&instant, &answer, &action, &wake, &seed] {
            only(&run.found_with(file, history.clone()), "its history: line ");
        }
        let said = {
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, answer.unwrap()).unwrap();
            let output = program(&["replay", file.to_str().unwrap()]);
            fs::write(file, text).unwrap();
            output
        };
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(program(&["replay", file.to_str().unwrap()]).status.success());
    }

    // Only one that was killed may leave a history that is torn, ends early, or is none.
    let text = |file: &Path| fs::read_to_string(file).unwrap();
    let half = |file: &Path| Some(text(file)[..text(file).len() - 9].to_owned());
    let early = |file: &Path| Some(text(file).lines().next().unwrap().to_owned() + "\n");
    only(&run.found_with(&stopped, half(&stopped)), "it ends Torn");
    only(&run.found_with(&stopped, None), "No such file");
    let report = run.found_with(&killed, half(&killed));
    assert!(report.violations.is_empty() && report.replays.torn == torn + 1, "{report:?}");
    assert!(run.found_with(&killed, None).violations.is_empty());
    // It led, but nothing is left of how its term began.
    only(&run.found_with(&killed, early(&killed)), "which never began");

    // The last sign of life of a leader that was killed, as if its deadline had not bound it.
    let mut lines = run.lines.clone();
    let who = lines.iter().find(|line| line.event == Event::Killed).unwrap().clone();
    let of_leader = |line: &&mut Line| (&line.who, line.life) == (&who.who, who.life);
    let mut claims = lines.iter_mut().filter(of_leader);
    let last = claims.rfind(|line| matches!(line.event, Event::Claim { .. })).unwrap();
    last.t += 6_000_000_000;
    let found = run.check_with(&lines).violations;
    let found: Vec<_> = found.iter().map(|violation| &violation.text).collect();
    assert!(found.iter().any(|text| text.contains("after the deadline")), "{found:?}");
}

#[test]
fn a_history_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history");
    let mut write = lines_into(File::create(&file).unwrap(), 10);
    for line in ["123", "456", "789", ""] {
        write(line);
    }
    drop(write);
    assert_eq!(fs::read_to_string(&file).unwrap(), "123\n456\n\"cut\"\n");
}
