//! `incumbent campaign` as a process: standard output, standard error and exit code.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use incumbent_test_support::Server;

fn incumbent(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
    command.args(args).env_remove("NATS_URL").env_remove("NATS_CREDS").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    incumbent(args).output().expect("the program starts")
}

/// Runs a command that must fail. Returns its one line on standard error and its exit code.
fn refusal(args: &[&str]) -> (String, Option<i32>) {
    let output = run(args);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.stdout, b"", "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    (error.trim_end().to_owned(), output.status.code())
}

/// A running candidate, killed when dropped.
struct Candidate {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    errors: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Candidate {
    fn start(args: &[&str]) -> Self {
        let mut child = incumbent(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let errors = BufReader::new(child.stderr.take().expect("piped")).lines();
        Self { child, lines, errors }
    }

    fn line(&mut self) -> Option<String> {
        self.lines.next().map(|line| line.expect("text"))
    }

    fn error(&mut self) -> Option<String> {
        self.errors.next().map(|line| line.expect("text"))
    }

    /// Sends SIGTERM and returns the signal that ended the process.
    fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill").success());
        while self.line().is_some() {}
        self.child.wait().expect("an exit").signal()
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn version_is_printed() {
    let output = run(&["--version"]);
    assert_eq!(output.stdout, format!("incumbent {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    assert!(output.status.success());
}

#[test]
fn unknown_flag_is_a_usage_error() {
    let output = run(&["campaign", "my_app", "--leese", "5s"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--lease"),
        "the correct flag is suggested"
    );
}

#[test]
fn unreachable_server_is_reported_in_one_line() {
    let campaign = ["campaign", "my_app", "-s", "nats://127.0.0.1:1", "--timeout", "5s"];
    let (line, code) = refusal(&campaign);
    assert!(line.starts_with("incumbent: cannot reach a NATS server at 127.0.0.1:1"), "{line}");
    assert_eq!(line.matches("onnection refused").count(), 1, "{line}");
    assert_eq!(code, Some(4));
}

#[tokio::test]
async fn invalid_input_is_reported_in_one_line() {
    let server = Server::start().await;
    let url = server.url();
    let campaign = |args: &[&str]| refusal(&[&["campaign", "-s", url.as_str()], args].concat());
    let (line, code) = campaign(&["a name"]);
    assert!(line.contains("\"a name\" is not a valid election"), "{line}");
    assert_eq!(code, Some(2));
    let (line, _) = campaign(&["my_app", "--lease", "100ms"]);
    assert!(line.contains("100ms") && line.contains("200ms"), "{line}");
    let (line, _) = campaign(&["my_app", "--bucket", "not a bucket"]);
    assert!(line.contains("not a bucket"), "{line}");
    let (line, code) = campaign(&["my_app", "--bucket", "ABSENT", "--no-create"]);
    assert!(line.contains("bucket ABSENT does not exist"), "{line}");
    assert_eq!(code, Some(3));
    let (line, _) = campaign(&["my_app", "--creds", "/does/not/exist"]);
    assert!(line.contains("/does/not/exist"), "{line}");
}

/// Checks that need no server come before the connection.
#[test]
fn invalid_input_is_refused_before_connecting() {
    let campaign =
        |args: &[&str]| refusal(&[&["campaign", "-s", "nats://127.0.0.1:1"], args].concat());
    for (args, expected) in [
        (&["a..b"][..], "\"a..b\" is not a valid election"),
        (&["my_app", "--lease", "2h"], "7200s"),
    ] {
        let (line, code) = campaign(args);
        assert!(line.contains(expected), "{line}");
        assert_eq!(code, Some(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_may_start_before_its_server() {
    let server = Server::start().await;
    server.stop().await;
    let mut early = Candidate::start(&["campaign", "my_app", "-s", &server.url()]);
    let waits = early.error().expect("a line");
    assert!(waits.starts_with("incumbent: cannot reach a NATS server at 127.0.0.1:"), "{waits}");
    assert!(waits.ends_with("; retrying"), "{waits}");
    server.start_again().await;
    let won = early.line().expect("a line");
    assert!(won.starts_with("won: leading with token "), "{won}");
}

/// A win, the report of another leader and a handover on SIGTERM, as text and as JSON lines.
#[tokio::test(flavor = "multi_thread")]
async fn campaign_prints_transitions_and_releases_on_sigterm() {
    let server = Server::start().await;
    let url = server.url();
    let base = ["campaign", "my_app", "-s", &url, "--lease", "2s", "--identity"];
    let mut first = Candidate::start(&[&base[..], &["first"]].concat());
    let won = first.line().expect("a line");
    assert!(won.starts_with("won: leading with token "), "{won}");
    let mut second = Candidate::start(&[&base[..], &["second", "--output", "json"]].concat());
    let seen: serde_json::Value = serde_json::from_str(&second.line().expect("a line")).unwrap();
    assert_eq!((&seen["event"], &seen["leader"]), (&"leader".into(), &"first".into()));
    assert_eq!(first.terminate(), Some(15));
    loop {
        let line: serde_json::Value =
            serde_json::from_str(&second.line().expect("a line")).unwrap();
        if line["event"] == "won" {
            assert!(line["token"].is_u64());
            break;
        }
    }
    assert_eq!(second.terminate(), Some(15));
}

/// The server accepts the connection and sends nothing.
#[test]
fn campaign_can_be_interrupted_while_connecting() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("nats://{}", silent.local_addr().expect("an address"));
    let mut campaign = Candidate::start(&["campaign", "my_app", "-s", &url, "--timeout", "30s"]);
    let _connection = silent.accept().expect("it connects");
    assert_eq!(campaign.terminate(), Some(15));
}
