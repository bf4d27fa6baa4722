//! The command of the members: this test program, which writes to the journal for as long as it is
//! allowed to run.

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use incumbent_attack::record::journal::{Event, Writer};

const JOURNAL: &str = "INCUMBENT_TEST_JOURNAL";
const LIFE: &str = "INCUMBENT_TEST_LIFE";

/// Appends the words that start the worker. A stubborn one works on until it is killed.
pub fn add(command: &mut Command, journal: &Path, life: u32, stubborn: bool) {
    command.env(JOURNAL, journal).env(LIFE, life.to_string());
    if stubborn {
        // What is ignored stays ignored in the program.
        command.args(["sh", "-c", r#"trap '' TERM; exec "$0" "$@""#]);
    }
    command.arg(env::current_exe().expect("this program"));
    command.args(["--exact", "worker::worker_of_other_tests"]);
}

#[test]
fn worker_of_other_tests() {
    let Some(journal) = env::var_os(JOURNAL) else { return };
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("no {name}"));
    let number = |name: &str| variable(name).parse::<u64>().expect("a number");
    let life = u32::try_from(number(LIFE)).expect("a small number");
    let writer = Writer::open(Path::new(&journal), &variable("INCUMBENT_IDENTITY"), life)
        .expect("a journal")
        .of_election(&variable("INCUMBENT_ELECTION"));
    let token = number("INCUMBENT_TOKEN");
    loop {
        writer.write(Event::Work { token });
        sleep(Duration::from_millis(5));
    }
}
