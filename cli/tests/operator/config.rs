//! Options by variables and by the file of `--config`, and `incumbent config`.

use serde_json::Value;

use crate::shell::Shell;

/// A shell with these options in a file that variables name.
fn shell(file: &str) -> Shell {
    let shell = Shell::bare().with("INCUMBENT_CONFIG", "options.toml");
    shell.write("options.toml", file);
    shell
}

/// The values of an option, and where they come from.
fn in_force(shell: &Shell, command: &[&str], option: &str) -> (String, String) {
    let json = shell.json(&[&["config", "-o", "json"], command].concat());
    let rows = json["options"].as_array().expect("options");
    let row = rows.iter().find(|row| row["option"] == option);
    let row = row.unwrap_or_else(|| panic!("no {option} in {json}"));
    let values = row["values"].as_array().expect("values").iter().map(|value| value.as_str());
    let values: Vec<&str> = values.map(|value| value.expect("text")).collect();
    (values.join(","), row["from"].as_str().expect("text").to_owned())
}

#[test]
fn flag_overrides_variable_overrides_table_overrides_top() {
    let shell =
        shell("lease = '1h'\npriority = 1\ngrace = '3s'\n[run]\npriority = 2\ngrace = '4s'\n");
    let run = ["run", "my_app"];
    let of = |shell: &Shell, command: &[&str], option| {
        let (value, from) = in_force(shell, command, option);
        format!("{value} {from}")
    };
    assert_eq!(of(&shell, &run, "--lease"), "1h options.toml:1");
    assert_eq!(of(&shell, &run, "--priority"), "2 options.toml:5");
    assert_eq!(of(&shell, &["campaign"], "--priority"), "1 options.toml:2");
    assert_eq!(of(&shell, &run, "--on-exit"), "resign default");
    let shell = shell.with("INCUMBENT_PRIORITY", "7").with("INCUMBENT_GRACE", "");
    assert_eq!(of(&shell, &run, "--priority"), "7 INCUMBENT_PRIORITY");
    assert_eq!(of(&shell, &run, "--grace"), "4s options.toml:6", "an empty variable is none");
    let by_hand = ["run", "my_app", "--priority", "9", "--", "true"];
    assert_eq!(of(&shell, &by_hand, "--priority"), "9 command line");
}

#[test]
fn each_kind_of_option_is_set_by_variable_and_by_file() {
    let file = "metadata = ['a=1,2', 'b=3']\nadvertise = 'h:1'\nstand-aside = true\nverbose = 2\n\
                http = 8600\n[set.run]\nshards = 64\n";
    let shell = shell(file);
    let run = ["run", "my_app", "--", "true"];
    assert_eq!(in_force(&shell, &run, "--metadata").0, "a=1,2,b=3");
    assert_eq!(in_force(&shell, &run, "--stand-aside").0, "true");
    assert_eq!(in_force(&shell, &run, "--verbose").0, "2");
    assert_eq!(in_force(&shell, &run, "--http").0, "8600");
    assert_eq!(in_force(&shell, &["set", "run", "s"], "--shards").0, "64");
    let shell = shell
        .with("INCUMBENT_METADATA", "c=4, d=5")
        .with("INCUMBENT_STAND_ASIDE", "off")
        .with("INCUMBENT_NO_CREATE", "Yes")
        .with("INCUMBENT_VERBOSE", "1")
        .with("INCUMBENT_FLAG_IDENTITY", "me")
        .with("INCUMBENT_IDENTITY", "outer");
    assert_eq!(in_force(&shell, &run, "--metadata").0, "c=4,d=5");
    assert_eq!(in_force(&shell, &run, "--no-create").0, "true");
    assert_eq!(in_force(&shell, &run, "--verbose").0, "1");
    assert_eq!(
        in_force(&shell, &run, "--identity"),
        ("me".into(), "INCUMBENT_FLAG_IDENTITY".into())
    );
    let json = shell.json(&["config", "-o", "json", "run", "my_app"]);
    assert!(!json.to_string().contains("stand-aside"), "{json}");
}

/// The lock is found by every command, and nothing else is by a command that ends.
#[test]
fn lock_of_the_file_is_found_by_every_command() {
    let shell = shell("lock = 'sqlite:elections.db'\n[campaign]\nlease = '1h'\nidentity = 'me'\n");
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    let json = shell.json(&["election", "info", "my_app", "-o", "json"]);
    assert_eq!(json["elections"][0]["leader"], "me", "{json}");
    let shell = shell.with("INCUMBENT_OUTPUT", "json");
    let table = shell.out(&["election", "list"]);
    assert!(table.contains("my_app") && !table.starts_with('{'), "{table}");
    leader.end_with("TERM");
}

#[test]
fn fault_in_variable_or_file_is_one_line_with_its_place() {
    let run = ["run", "my_app", "--timeout", "1s", "--", "true"];
    for (file, expected) in [
        ("\nlaese = '5s'", "options.toml:2: no option is \"laese\""),
        (
            "check_interval = '5s'",
            "options.toml:1: no option is \"check_interval\": write \"check-interval\"",
        ),
        ("[run]\nshards = 3", "options.toml:2: `run` has no option \"shards\"; `set run` has"),
        (
            "[election]\nlock = 'nats'",
            "options.toml:1: no command with options in this file is \"election\"",
        ),
        ("[set]\nshards = 3", "options.toml:2: `set` has no options in this file"),
        ("lease = ['5s']", "options.toml:1: lease is to be a text or a number"),
        ("prefer = 1", "options.toml:1: prefer is to be true or false"),
        ("lease = '5x'", "options.toml:1: invalid value '5x' for '--lease <LEASE>'"),
        (
            "kind = 'x'",
            "options.toml:1: invalid value 'x' for '--kind <KIND>' [possible values: lease",
        ),
        ("[run\nlease = '5s'", "options.toml:1: "),
        ("js-domain = 'a'\njs-api-prefix = 'b'", "options.toml:1, options.toml:2: the argument"),
        (
            "password = 's3cret'",
            "options.toml:1: password is secret, and all users may access the file",
        ),
        ("lock = 'nats://u:s3cret@h/b'", "options.toml:1: lock is secret"),
    ] {
        let line = shell(file).expect_refusal(&run, expected, 2);
        assert!(!line.contains("s3cret"), "{line}");
    }
    shell("").expect_refusal(
        &["--config", "none.toml", "kv", "ls"],
        "--config none.toml: No such file",
        2,
    );
    for (variable, value, expected) in [
        ("INCUMBENT_LEASE", "5x", "INCUMBENT_LEASE: invalid value '5x' for '--lease <LEASE>'"),
        (
            "INCUMBENT_CHECK",
            "http://u:s3cret@h/",
            "INCUMBENT_CHECK: invalid value '***' for '--check",
        ),
        (
            "INCUMBENT_CHECK",
            "http://u:s3cret\n\ns3cret  s3cret\ns3cret@h/",
            "INCUMBENT_CHECK: invalid value '***' for '--check",
        ),
        (
            "INCUMBENT_PREFER",
            "true",
            "INCUMBENT_PREFER: the following required arguments were not provided: --priority",
        ),
        (
            "INCUMBENT_HTTP_TOKEN_FILE",
            "/s3cret",
            "INCUMBENT_HTTP_TOKEN_FILE: the following required arguments were not provided: --http",
        ),
        ("INCUMBENT_PREFER", "maybe", "INCUMBENT_PREFER \"maybe\": it is to be true or false"),
        ("INCUMBENT_VERBOSE", "10", "INCUMBENT_VERBOSE \"10\": it is to be a number of 0 to 9"),
        ("INCUMBENT_BUCKET", "B", "--bucket requires --lock nats"),
    ] {
        let shell = shell("lock = 'sqlite:elections.db'").with(variable, value);
        let shell = shell.with("INCUMBENT_LOCK", "sqlite:elections.db");
        let line = shell.expect_refusal(&run, expected, 2);
        assert!(!line.contains("s3cret"), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn variable_that_is_no_text_is_refused_in_one_line() {
    use std::os::unix::ffi::OsStrExt;

    let shell = Shell::bare();
    let mut command = shell.command(&["run", "my_app", "--", "true"]);
    let value = std::ffi::OsStr::from_bytes(b"5x\xff");
    let output = command.env("INCUMBENT_LEASE", value).output().expect("it runs");
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(line.starts_with("incumbent: INCUMBENT_LEASE: invalid UTF-8"), "{line}");
    assert_eq!((line.lines().count(), output.status.code()), (1, Some(2)), "{line}");
}

/// Only the lock that the file names is out of reach, as its hosts are none.
#[test]
fn example_of_the_documentation_is_accepted() {
    let page = include_str!("../../../docs/configuration.md");
    let (_, example) = page.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let run = ["run", "my_app", "--timeout", "1s", "--", "true"];
    let line = shell(example).expect_refusal(&run, "nats.creds", 2);
    assert!(line.contains("No such file"), "{line}");
    let example = example.replace("creds = \"/run/secrets/nats.creds\"\n", "");
    let example = example.replace("n1.example.net,nats://n2.example.net", "127.0.0.1:1");
    shell(&example).expect_refusal(&run, "127.0.0.1:1", 4);
}

/// A password of one source and a URL of another are no connection without the password.
#[test]
fn credentials_that_a_url_leaves_out_are_refused() {
    let shell = shell("creds = '/s3cret'\n").with("INCUMBENT_LOCK", "nats://127.0.0.1:1/B");
    let run = ["run", "my_app", "--timeout", "1s", "--", "true"];
    shell.expect_refusal(&run, "options.toml:1: --creds has no effect on the URL of --lock", 2);
    let sqlite = ["run", "my_app", "--lock", "sqlite:elections.db", "--", "/bin/true"];
    assert_eq!(shell.run(&sqlite).code, Some(0));
}

/// What a user types excludes what the environment happens to have.
#[test]
fn option_of_a_stronger_source_excludes_those_of_weaker_ones() {
    let shell = shell("wait = '5s'\n[proxy]\nlisten = 1\n")
        .with("INCUMBENT_BUCKET", "B")
        .with("INCUMBENT_LISTEN", "socket");
    let command = ["run", "my_app", "--lock", "sqlite:elections.db", "--try", "--", "/bin/true"];
    let output = shell.run(&command);
    assert_eq!(output.code, Some(0), "{output:?}");
    let json = shell.json(&[&["config", "-o", "json"], &command[..]].concat());
    let excluded =
        Value::from(vec![vec!["INCUMBENT_BUCKET", "--lock"], vec!["options.toml:1", "--try"]]);
    assert_eq!(json["excluded"], excluded);
    // The program is no option, and excludes one too.
    let output =
        shell.run(&["sentinel", "--lock", "sqlite:elections.db", "--", "/bin/echo", "works"]);
    assert_eq!((&*output.stdout, output.code), ("works\n", Some(0)), "{output:?}");
}

/// Variables of options have no effect on what this program starts, and their secrets stay here.
#[test]
fn command_and_hooks_inherit_the_lock_and_no_other_option() {
    let shell = Shell::bare()
        .with("INCUMBENT_LOCK", "sqlite:elections.db")
        .with("INCUMBENT_TIMEOUT", "7s")
        .with("INCUMBENT_PASSWORD", "s3cret")
        .with("INCUMBENT_LEASE", "1h")
        .with("INCUMBENT_FLAG_IDENTITY", "me")
        .with("INCUMBENT_HTTP", "unix:socket")
        .with("INCUMBENT_ON_WON", "/usr/bin/env >&2")
        .with("INCUMBENT_CHECK", "/usr/bin/env > check; true")
        .with("INCUMBENT_CONFIG", "options.toml")
        .with("INCUMBENT_OPTIONS", "--password s3cret")
        .with("INCUMBENT_CHECKPOINT", "of an outer one")
        .with("INCUMBENT_JOB", "of an outer one")
        .with("INCUMBENT_SEATS", "of an outer one")
        .with("INCUMBENT_OWN", "of the user");
    shell.write("options.toml", "");
    // By hand, so that it excludes the password of another lock.
    let run = ["run", "my_app", "--lock", "sqlite:elections.db"];
    let output = shell.run(&[&run[..], &["--", "/usr/bin/env"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let check = std::fs::read_to_string(shell.home().join("check")).expect("it ran");
    for (started, text, more) in [
        ("COMMAND", output.stdout, &["DEADLINE_FILE", "ELECTION", "IDENTITY", "TOKEN"][..]),
        ("hook", output.stderr, &["DEADLINE_FILE", "ELECTION", "EVENT", "IDENTITY", "TOKEN"]),
        ("check", check, &[]),
    ] {
        let names =
            text.lines().filter_map(|line| line.split_once('=')?.0.strip_prefix("INCUMBENT_"));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        let mut expected = [&["LOCK", "OWN", "TIMEOUT"], more].concat();
        expected.sort_unstable();
        assert_eq!(names, expected, "{started}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    let passed = ["--pass-env", "INCUMBENT_LEASE", "--", "/usr/bin/env"];
    let passed = shell.run(&[&run[..], &passed].concat());
    assert!(passed.stdout.contains("INCUMBENT_LEASE=1h\n"), "{passed:?}");
}

/// The guard knows the lock of the file, though the file has changed.
#[test]
fn killed_candidate_is_released_on_the_lock_of_the_file() {
    let shell = shell("lock = 'sqlite:elections.db'\nlease = '1h'\n");
    let mut run =
        shell.start(&["run", "my_app", "--", "/bin/sh", "-c", "echo works; exec /bin/sleep 1000"]);
    run.line_with("works");
    shell.write("options.toml", "lock = 'sqlite:other.db'\nlease = '1h'\n");
    run.signal("KILL");
    run.wait();
    let by_flags = ["run", "my_app", "--lock", "sqlite:elections.db", "--lease", "1h"];
    let output = shell.run(&[&by_flags[..], &["--", "/bin/echo", "next"]].concat());
    assert_eq!((&*output.stdout, output.code), ("next\n", Some(0)), "{output:?}");
}

#[test]
fn secrets_are_hidden_and_typing_errors_shown() {
    let shell = Shell::bare()
        .with("INCUMBENT_LOCK", "nats://me:s3cret@127.0.0.1:1/B")
        .with("INCUMBENT_PASSWORD", "s3cret")
        .with("INCUMBENT_SERVER", "nats://me:s3cret@127.0.0.1:1")
        .with("INCUMBENT_LAESE", "10s")
        .with("INCUMBENT_TOKEN", "3")
        .with("INCUMBENT_SERVICE_HOST", "10.0.0.1");
    for command in [&[][..], &["run", "my_app"], &["election", "list"]] {
        for format in ["text", "json"] {
            let output = shell.run(&[&["config", "-o", format], command].concat());
            assert_eq!(output.code, Some(0), "{output:?}");
            let all = [output.stdout, output.stderr].concat();
            assert!(all.contains("INCUMBENT_PASSWORD") && !all.contains("s3cret"), "{all}");
            assert!(all.contains("INCUMBENT_LAESE"), "{all}");
            assert!(!all.contains("INCUMBENT_TOKEN") && !all.contains("HOST"), "{all}");
        }
    }
}

#[test]
fn long_help_shows_the_variables() {
    let shell = Shell::bare();
    let words = |args: &[&str]| shell.out(args).split_whitespace().collect::<Vec<_>>().join(" ");
    let long = words(&["run", "--help"]);
    for name in [
        "LEASE",
        "FLAG_IDENTITY",
        "FLAG_SEATS",
        "FLAG_CHECKPOINT",
        "LOCK",
        "CHECK_INTERVAL",
        "CONFIG",
    ] {
        assert!(long.contains(&format!("[env: INCUMBENT_{name}]")), "{name}: {long}");
    }
    assert!(!words(&["run", "-h"]).contains("[env: INCUMBENT_LEASE]"));
    assert!(words(&["election", "list", "--help"]).contains("[env: INCUMBENT_LOCK]"));
    assert!(!words(&["election", "list", "--help"]).contains("[env: INCUMBENT_OUTPUT]"));
}
