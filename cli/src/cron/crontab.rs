//! A file with several jobs, written as a crontab.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

use incumbent::schedule::{Job, ScheduleError};

use crate::error::{CliError, Code, one_line};
use crate::output::read_text;

/// A job, and what it runs.
pub struct JobCommand {
    pub job: Job,
    pub command: Vec<OsString>,
}

/// The most bytes of the file.
const MAX_LEN: u64 = 1 << 20;

/// Reads the jobs of a file, each in the zone of the last `CRON_TZ` line above it.
///
/// # Errors
/// One line with the number of the first line that is wrong.
pub fn read(
    path: &Path,
    zone: Option<&str>,
    change: impl Fn(Job) -> Job,
) -> Result<Vec<JobCommand>, CliError> {
    let shown = path.display();
    let cannot = |why: String| CliError::new(Code::Usage, format!("--file {shown}: {why}"));
    let text = File::open(path).and_then(|file| read_text(file, MAX_LEN));
    let text = text.map_err(|error| cannot(one_line(&error)))?;
    parse(text.trim_start_matches('\u{feff}'), zone, change)
        .map_err(|(line, why)| cannot(format!("line {line}: {why}")))
}

fn parse(
    text: &str,
    zone: Option<&str>,
    change: impl Fn(Job) -> Job,
) -> Result<Vec<JobCommand>, (usize, String)> {
    let mut zone = zone.map(str::to_owned);
    let mut jobs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("CRON_TZ=") {
            zone = Some(name.trim_matches(['"', '\'']).to_owned());
            continue;
        }
        let (name, expression, command) = fields(line).ok_or_else(|| {
            let form =
                "write it as NAME: MINUTE HOUR DAY MONTH WEEKDAY COMMAND, or NAME: @daily COMMAND";
            (index + 1, form.to_owned())
        })?;
        let described = |error: ScheduleError| (index + 1, error.to_string());
        let mut job = Job::new(name, &expression).map_err(described)?;
        if let Some(zone) = &zone {
            job = job.zone(zone).map_err(described)?;
        }
        let command = ["/bin/sh", "-c", command].map(OsString::from).to_vec();
        jobs.push(JobCommand { job: change(job), command });
    }
    Ok(jobs)
}

/// The names in an expression.
const NAMES: [&str; 19] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun",
    "mon", "tue", "wed", "thu", "fri", "sat",
];

/// Whether a word is a field of an expression: no command has such a name.
fn is_field(word: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'*');
    let is_part = |part: &str| {
        let before = part.strip_suffix(['L', 'W']);
        is_number(part)
            || before.is_some_and(|number| !number.is_empty() && is_number(number))
            || ["?", "L", "LW"].contains(&part)
            || NAMES.iter().any(|name| name.eq_ignore_ascii_case(part))
    };
    word.split([',', '-', '/', '#']).all(is_part)
}

/// The name, the expression and the command of a line.
fn fields(line: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = line.split_once(':')?;
    let mut rest = rest.trim_start();
    let count = if rest.starts_with('@') { 1 } else { 5 };
    let mut expression = Vec::new();
    for _ in 0..count {
        let (field, after) = rest.split_once(char::is_whitespace)?;
        expression.push(field);
        rest = after.trim_start();
    }
    // A sixth field, as with seconds, is no command.
    let command = rest.split_whitespace().next()?;
    (!is_field(command)).then(|| (name.trim(), expression.join(" "), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_an_expression_and_a_command() {
        let text = "# jobs\n\nCRON_TZ=Europe/Berlin\nnightly: 0 3 * * *  ./report --all '%'\n\
                    clean: @daily\trm -f /tmp/x: y\n";
        for command in ["w", "/bin/sat", "month", "l", "W"] {
            assert!(fields(&format!("a: 0 3 * * * {command}")).is_some(), "{command}");
        }
        let jobs = parse(text, None, |job| job).unwrap();
        let shown: Vec<_> = jobs.iter().map(|job| (job.job.name(), &job.command)).collect();
        let command = |text: &str| ["/bin/sh", "-c", text].map(OsString::from).to_vec();
        assert_eq!(shown[0], ("nightly", &command("./report --all '%'")));
        assert_eq!(shown[1], ("clean", &command("rm -f /tmp/x: y")));
    }

    #[test]
    fn wrong_lines_are_refused_with_their_number() {
        for (text, line, why) in [
            ("\n0 3 * * * ./report", 2, "write it as NAME"),
            ("a: 0 3 * * *", 1, "write it as NAME"),
            ("a: 0 3 * * * ", 1, "write it as NAME"),
            ("a: 0 0 3 * * * x", 1, "write it as NAME"),
            ("a: */10 * * * * * x", 1, "write it as NAME"),
            ("a: 0 0 3 * * MON x", 1, "write it as NAME"),
            ("a: 0 0 3 * * mon-fri x", 1, "write it as NAME"),
            ("a: 0 0 3 * * FRI#2 x", 1, "write it as NAME"),
            ("a: 0 0 3 L * ? x", 1, "write it as NAME"),
            ("a: 61 3 * * * x", 1, "is invalid"),
            ("CRON_TZ=Nowhere\na: @daily x", 2, "is unknown"),
        ] {
            let (number, said) = parse(text, None, |job| job).err().unwrap();
            assert!(number == line && said.contains(why), "{text:?}: {number} {said}");
        }
    }
}
