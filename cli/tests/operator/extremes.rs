//! Values that nobody means: every flag of every command is given some, and so is every option of a URL and every variable.
//! None may end the program with a panic, and each refusal is one clear line.

use std::time::Duration;

use incumbent_test_support::{Server, checkout};

use crate::shell::{Shell, Told};

/// Spans from nothing to the longest that can be written, and what is none.
const SPANS: [&str; 9] = [
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

/// Numbers and texts at the edges of what types hold, and what shells and terminals trip over.
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

/// A flag that takes a value, as the reference shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flag {
    command: Vec<String>,
    name: String,
    value: String,
}

/// Every flag with a value in `docs/cli.md`, which another test keeps complete.
fn flags() -> Vec<Flag> {
    let reference = checkout().join("docs/cli.md");
    let reference = std::fs::read_to_string(reference).expect("docs/cli.md");
    let mut flags = Vec::new();
    let mut command = Vec::new();
    for line in reference.lines() {
        if let Some(named) = line.strip_prefix("## incumbent") {
            command = named.split_whitespace().map(str::to_owned).collect();
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

/// What else a command needs to come as far as it can, so that it ends by itself.
fn arguments<'a>(command: &[&str], url: &'a str) -> Vec<&'a str> {
    match command {
        // Whoever reads its lines has gone, which ends it with the first one.
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
        ["kv", "edit" | "status" | "keys"] => vec!["B", "--server", url],
        ["kv", "get" | "history" | "purge" | "del"] => vec!["B", "held", "--server", url],
        ["kv", "watch"] => vec!["B", "--once", "--server", url],
        ["kv", ..] => vec!["B", "--server", url],
        ["election", ..] | ["doctor"] => vec!["--server", url],
        _ => vec!["--version"],
    }
}

/// Whether it is an answer or one clear refusal.
fn is_clear(told: &Told) -> Result<(), String> {
    let lines = told.error.trim_end().lines().count();
    match told.code {
        Some(101) | None => Err("a panic".to_owned()),
        _ if told.error.contains("panicked at") => Err("a panic that was swallowed".to_owned()),
        // It goes on, as it was told to.
        Some(0 | 124 | 137) => Ok(()),
        // The parser explains itself on several lines, and always with this code.
        Some(2) if told.error.starts_with("error: ") => Ok(()),
        // A doctor reports on standard output, and has codes of its own.
        Some(_) if lines == 0 && !told.out.is_empty() => Ok(()),
        Some(_) if lines == 0 => Err("no line that says what is wrong".to_owned()),
        Some(_) => Ok(()),
    }
    .and_then(|()| {
        let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
        match told.error.chars().chain(told.out.chars()).find(|c| raw(*c)) {
            Some(c) if !told.error.starts_with("error: ") => Err(format!("{c:?} is printed raw")),
            _ => Ok(()),
        }
    })
}

async fn scene() -> (Server, Shell) {
    let server = Server::start().await;
    let shell = Shell::bare();
    for args in [&["kv", "add", "B", "-q"][..], &["kv", "put", "B", "held", "someone"]] {
        shell.out(&[args, &["--server", &server.url()]].concat());
    }
    (server, shell)
}

#[tokio::test]
async fn no_value_of_any_flag_ends_in_a_panic() {
    let (server, shell) = scene().await;
    let url = server.url();
    let mut wrong = Vec::new();
    let (mut tried, mut shared) = (0, Vec::new());
    for Flag { command, name, value } in flags() {
        // A flag that several commands share means the same in all of them: it is tried with the first.
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        if shared.contains(&(name.clone(), value.clone())) && !name.contains("grace") {
            continue;
        }
        shared.push((name.clone(), value.clone()));
        let spans = ["DURATION", "MAX_AGE", "LEASE", "GRACE", "TIMEOUT", "POLL"];
        let values = if spans.contains(&&*value) { &SPANS[..] } else { &WORDS[..] };
        for value in values {
            let flag = format!("{name}={value}");
            let mut rest = arguments(&command, &url);
            if let Some(at) = rest.iter().position(|word| *word == name) {
                rest.drain(at..at + 2); // it would be given twice
            }
            let args = [&command[..], &[&flag], &rest[..]].concat();
            let told = shell.briefly(&args, Duration::from_secs(1));
            tried += 1;
            if let Err(why) = is_clear(&told) {
                wrong.push(format!("{args:?}: {why}: {told:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Measured: these ended with a panic once.
#[tokio::test]
async fn a_span_that_no_clock_can_add_is_taken_or_refused() {
    let (server, shell) = scene().await;
    let url = server.url();
    for span in SPANS {
        let file = ["--lock", "sqlite:a.db", "--lease", "2s"];
        let grace = ["run", "my_app", "--grace", span, "--", "true"];
        let told =
            shell.briefly(&[&grace[..4], &file, &grace[4..]].concat(), Duration::from_secs(9));
        assert_eq!(is_clear(&told), Ok(()), "--grace {span}: {told:?}");
        if span.contains("00000") || span.contains("922") || span.contains("551615") {
            assert!(told.error.contains("is too long for a lease of 2s"), "{told:?}");
            assert_eq!((told.code, told.error.lines().count()), (Some(2), 1), "{told:?}");
        }
        shell.out(&["kv", "put", "B", "held", "someone", "--server", &url]);
        let wait = ["election", "evict", "held", "--bucket", "B", "--force", "--wait", span];
        let told =
            shell.briefly(&[&wait[..], &["--server", &url]].concat(), Duration::from_secs(1));
        assert_eq!(is_clear(&told), Ok(()), "--wait {span}: {told:?}");
    }
}

#[test]
fn no_option_of_a_url_ends_in_a_panic() {
    let shell = Shell::bare();
    let nobody = "127.0.0.1:1";
    for (place, options) in [
        ("nats://127.0.0.1:1/B", &["ttl", "with-choria", "create", "domain", "creds", "ca"][..]),
        ("sqlite:a.db", &["longest-lease", "create"]),
        ("postgres://me@127.0.0.1:1/db", &["longest-lease", "create", "sslmode", "port"]),
        ("s3://bucket", &["longest-lease", "max-clock-skew", "allow-http"]),
        ("gs://bucket", &["longest-lease", "max-clock-skew"]),
        ("kubernetes:", &["lease", "kind", "object", "kubeconfig", "context"]),
        ("peer:127.0.0.1:0?quorum=1", &["lease", "voters", "id", "peers", "dns"]),
        ("memory:", &["ttl", "need"]),
    ] {
        for option in options {
            let spans = ["ttl", "longest-lease", "max-clock-skew", "lease"];
            let values = if spans.contains(option) { &SPANS[..] } else { &WORDS[..] };
            for value in values {
                let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
                let mark = if place.contains('?') { '&' } else { '?' };
                let lock = format!("{place}{mark}{option}={value}");
                let shell = shell.again().with("GCE_METADATA_HOST", nobody);
                let shell = shell
                    .with("GCE_METADATA_IP", nobody)
                    .with("AWS_ENDPOINT", "http://127.0.0.1:1");
                let shell =
                    shell.with("AWS_ACCESS_KEY_ID", "me").with("AWS_SECRET_ACCESS_KEY", "x");
                let run = ["run", "my_app", "--timeout", "100ms", "--lock", &lock, "--", "true"];
                let told = shell.briefly(&run, Duration::from_secs(1));
                assert_eq!(is_clear(&told), Ok(()), "{lock}: {told:?}");
            }
        }
    }
}

#[tokio::test]
async fn no_variable_ends_in_a_panic() {
    let (server, shell) = scene().await;
    for (variable, values) in [
        ("NATS_TIMEOUT", &SPANS[..]),
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
            let shell = shell.again().with(variable, *value);
            let args = match variable {
                "NATS_URL" => vec!["kv", "ls"],
                "INCUMBENT_LOCK" => vec!["election", "info", "e", "--timeout", "100ms"],
                _ => vec!["kv", "ls", "--server", "SERVER"],
            };
            let url = server.url();
            let args: Vec<&str> =
                args.into_iter().map(|arg| if arg == "SERVER" { &url } else { arg }).collect();
            let told = shell.briefly(&args, Duration::from_secs(7));
            assert_eq!(is_clear(&told), Ok(()), "{variable}={value:?}: {told:?}");
        }
    }
}
