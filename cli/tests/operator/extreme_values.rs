//! Extreme values for every flag of every command, every option of a URL and every variable.
//!
//! No value may cause a panic, and each refusal is one line.

use std::sync::Mutex;
use std::time::Duration;

use incumbent_test_support::{Server, checkout};

use crate::shell::{CommandOutput, Shell};

/// Durations from zero to the maximum that can be written, and invalid ones.
const DURATIONS: [&str; 9] = [
    "0s",
    "1ns",
    "1000000000s",
    "9223372036854775807s",
    "18446744073709551615s",
    "500000000000y",
    "18446744073709551616s",
    "-1s",
    "soon",
];

/// Numbers and texts at the limits of types, and texts with control characters.
const WORDS: [&str; 9] = [
    "",
    "0",
    "-1",
    "65536",
    "18446744073709551616",
    "\u{1b}[31mred\u{7}",
    "a b\nc",
    "é\u{202e}%00%ff",
    "file:///nowhere/at/all",
];

/// A flag with a value, as in the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flag {
    command: Vec<String>,
    name: String,
    value: String,
}

/// Reads every flag with a value from `docs/cli.md`, which the test of the reference keeps
/// complete.
fn read_flags() -> Vec<Flag> {
    let reference = checkout().join("docs/cli.md");
    let reference = std::fs::read_to_string(reference).expect("docs/cli.md");
    let mut flags = Vec::new();
    let mut command = Vec::new();
    for line in reference.lines() {
        if let Some(named) = line.strip_prefix("## incumbent") {
            command = named.split_whitespace().map(str::to_owned).collect();
        } else if line == "## The lock" {
            command = vec!["election".to_owned()];
        }
        let Some(at) = line.find("--").filter(|at| line[..*at].trim_matches([' ', ',']).len() < 3)
        else {
            continue;
        };
        if line.starts_with("  ")
            && let Some((name, value)) = line[at..].split_once(" <")
            && name[2..].chars().all(|c| c.is_ascii_lowercase() || c == '-')
        {
            let value = value.split('>').next().unwrap_or_default().to_owned();
            flags.push(Flag { command: command.clone(), name: name.to_owned(), value });
        }
    }
    assert!(flags.len() > 60, "{flags:?}");
    flags
}

/// The other arguments of a command, so that it proceeds as far as possible and ends by itself.
fn arguments<'a>(command: &[&str], url: &'a str) -> Vec<&'a str> {
    match command {
        // Its output is closed, so it ends with the first line.
        ["campaign"] => vec!["e1", "--server", url],
        ["run"] => vec!["e2", "--server", url, "--", "true"],
        ["life"] => vec!["e3", "--kubeconfig", "/nowhere", "--", "true"],
        ["election"] => vec!["list", "--bucket", "B", "--server", url],
        ["election", "info" | "watch"] => vec!["held", "--bucket", "B", "--server", url],
        ["election", "evict"] => {
            vec!["held", "--bucket", "B", "--force", "--wait", "10ms", "--server", url]
        }
        ["election", "file"] => vec!["e4", "kept.json", "--server", url],
        ["kv"] => vec!["ls", "--server", url],
        ["kv", "add"] => vec!["MADE", "--server", url],
        ["kv", "status" | "keys"] => vec!["B", "--server", url],
        ["kv", "get" | "del"] => vec!["B", "held", "--server", url],
        ["kv", "watch"] => vec!["B", "--once", "--server", url],
        ["kv", ..] => vec!["B", "--server", url],
        ["election", ..] | ["doctor"] => vec!["--server", url],
        _ => vec!["--version"],
    }
}

/// Checks that the output is a result or a refusal in one line.
fn check_output(output: &CommandOutput) -> Result<(), String> {
    let lines = output.stderr.trim_end().lines().count();
    match output.code {
        Some(101) | None => Err("a panic".to_owned()),
        _ if output.stderr.contains("panicked at") => Err("a panic that was caught".to_owned()),
        // The command succeeded, or continued until the limit.
        Some(0 | 124 | 137) => Ok(()),
        // The argument parser reports in several lines, always with this code.
        Some(2) if output.stderr.starts_with("error: ") => Ok(()),
        // `doctor` reports on standard output, with its own exit codes.
        Some(_) if lines == 0 && !output.stdout.is_empty() => Ok(()),
        Some(_) if lines == 0 => Err("no line on standard error".to_owned()),
        Some(_) => Ok(()),
    }
    .and_then(|()| {
        let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        match output.stderr.chars().chain(output.stdout.chars()).find(|c| raw(*c)) {
            Some(c) if !output.stderr.starts_with("error: ") => {
                Err(format!("{c:?} is printed raw"))
            }
            _ => Ok(()),
        }
    })
}

/// A server with a bucket and an entry.
async fn start_env() -> (Server, Shell) {
    let server = Server::start().await;
    let shell = Shell::bare();
    for args in [&["kv", "add", "B", "-q"][..], &["kv", "put", "B", "held", "someone"]] {
        shell.out(&[args, &["--server", &server.url()]].concat());
    }
    (server, shell)
}

/// Runs each group of arguments in turn, and four groups at once: most commands wait for their
/// limit. Fails with all that is wrong.
fn check_all(shell: &Shell, groups: Vec<Vec<Vec<String>>>) {
    let tried: usize = groups.iter().map(Vec::len).sum();
    let groups = Mutex::new(groups);
    let next = || groups.lock().expect("no worker panics").pop();
    let work = || {
        let mut wrong = Vec::new();
        while let Some(group) = next() {
            for args in group {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let output = shell.run_for(&args, Duration::from_secs(1));
                if let Err(why) = check_output(&output) {
                    wrong.push(format!("{args:?}: {why}: {output:?}"));
                }
            }
        }
        wrong
    };
    let wrong = std::thread::scope(|scope| {
        let workers = [(); 4].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().expect("a result")).concat()
    });
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn no_value_of_a_flag_panics() {
    let (server, shell) = start_env().await;
    let url = server.url();
    let mut groups = Vec::new();
    let mut shared = Vec::new();
    // Commands with the same words before the flag stay in order.
    let mut last = None;
    for Flag { command, name, value } in read_flags() {
        // A flag of several commands has the same meaning in each: it is tried with the first.
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        if shared.contains(&(name.clone(), value.clone())) && !name.contains("grace") {
            continue;
        }
        if value == "COMMAND" {
            continue; // what a shell prints about it is the shell's
        }
        shared.push((name.clone(), value.clone()));
        if last.replace(command.join(" ")) != Some(command.join(" ")) {
            groups.push(Vec::new());
        }
        let durations = ["DURATION", "MAX_AGE", "LEASE", "GRACE", "TIMEOUT", "POLL"];
        let values = if durations.contains(&&*value) { &DURATIONS[..] } else { &WORDS[..] };
        for value in values {
            let flag = format!("{name}={value}");
            let mut rest = arguments(&command, &url);
            if let Some(at) = rest.iter().position(|word| *word == name) {
                rest.drain(at..at + 2); // else the flag would be given twice
            }
            let args = [&command[..], &[&flag], &rest[..]].concat();
            let args = args.into_iter().map(str::to_owned).collect();
            groups.last_mut().expect("a group").push(args);
        }
    }
    check_all(&shell, groups);
}

/// Values that caused a panic in an earlier version.
#[tokio::test]
async fn extreme_duration_is_accepted_or_refused() {
    let (server, shell) = start_env().await;
    let url = server.url();
    for duration in DURATIONS {
        let file = ["--lock", "sqlite:a.db", "--lease", "2s"];
        let grace = ["run", "my_app", "--grace", duration, "--", "true"];
        let output =
            shell.run_for(&[&grace[..4], &file, &grace[4..]].concat(), Duration::from_secs(60));
        assert_eq!(check_output(&output), Ok(()), "--grace {duration}: {output:?}");
        if duration.contains("00000") || duration.contains("922") || duration.contains("551615") {
            assert!(output.stderr.contains("is too long for a lease of 2s"), "{output:?}");
            assert_eq!((output.code, output.stderr.lines().count()), (Some(2), 1), "{output:?}");
        }
        shell.out(&["kv", "put", "B", "held", "someone", "--server", &url]);
        let wait = ["election", "evict", "held", "--bucket", "B", "--force", "--wait", duration];
        let output =
            shell.run_for(&[&wait[..], &["--server", &url]].concat(), Duration::from_secs(1));
        assert_eq!(check_output(&output), Ok(()), "--wait {duration}: {output:?}");
    }
}

#[test]
fn no_option_of_a_url_panics() {
    let unreachable = "127.0.0.1:1";
    let shell = Shell::bare()
        .with("GCE_METADATA_HOST", unreachable)
        .with("GCE_METADATA_IP", unreachable)
        .with("AWS_ENDPOINT", "http://127.0.0.1:1")
        .with("AWS_ACCESS_KEY_ID", "me")
        .with("AWS_SECRET_ACCESS_KEY", "x");
    let mut groups = Vec::new();
    for (url, options) in [
        ("nats://127.0.0.1:1/B", &["ttl", "with-choria", "create", "domain", "creds", "ca"][..]),
        ("sqlite:a.db", &["max-lease", "create"]),
        ("postgres://me@127.0.0.1:1/db", &["max-lease", "create", "sslmode", "port"]),
        ("s3://bucket", &["max-lease", "max-clock-skew", "allow-http"]),
        ("gs://bucket", &["max-lease", "max-clock-skew"]),
        ("kubernetes:", &["lease", "kind", "object", "kubeconfig", "context"]),
        ("peer:127.0.0.1:0?quorum=1", &["lease", "voters", "id", "peers", "dns"]),
        ("memory:", &["ttl", "need"]),
    ] {
        let mut group = Vec::new();
        for option in options {
            let durations = ["ttl", "max-lease", "max-clock-skew", "lease"];
            let values = if durations.contains(option) { &DURATIONS[..] } else { &WORDS[..] };
            for value in values {
                let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let separator = if url.contains('?') { '&' } else { '?' };
                let lock = format!("{url}{separator}{option}={value}");
                let run = ["run", "my_app", "--timeout", "100ms", "--lock", &lock, "--", "true"];
                group.push(run.map(str::to_owned).to_vec());
            }
        }
        groups.push(group); // in order: they share a file
    }
    check_all(&shell, groups);
}

#[tokio::test]
async fn no_environment_variable_panics() {
    let (server, shell) = start_env().await;
    for (variable, values) in [
        ("NATS_TIMEOUT", &DURATIONS[..]),
        ("NATS_URL", &WORDS[..]),
        ("NATS_CREDS", &WORDS),
        ("NATS_NKEY", &WORDS),
        ("NATS_USER", &WORDS),
        ("NATS_PASSWORD", &WORDS),
        ("NATS_CERT", &WORDS),
        ("NATS_KEY", &WORDS),
        ("NATS_CA", &WORDS),
        ("NATS_CONTEXT", &WORDS),
        ("INCUMBENT_LOCK", &WORDS),
        ("INCUMBENT_LOG", &WORDS),
        ("XDG_CONFIG_HOME", &WORDS),
        ("NO_COLOR", &WORDS),
        ("TERM", &WORDS),
    ] {
        for value in values {
            let shell = shell.with_same_server().with(variable, *value);
            // Else it would take the place of NATS_TIMEOUT.
            let shell = shell.with("INCUMBENT_TIMEOUT", "");
            let args = match variable {
                "NATS_URL" => vec!["kv", "ls"],
                "INCUMBENT_LOCK" => vec!["election", "info", "e", "--timeout", "100ms"],
                _ => vec!["kv", "ls", "--server", "SERVER"],
            };
            let url = server.url();
            let args: Vec<&str> =
                args.into_iter().map(|arg| if arg == "SERVER" { &url } else { arg }).collect();
            let output = shell.run_for(&args, Duration::from_secs(7));
            assert_eq!(check_output(&output), Ok(()), "{variable}={value:?}: {output:?}");
        }
    }
}
