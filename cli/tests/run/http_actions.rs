//! `POST` to `--http`: who may act on a candidate, and how.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::{Candidate, TestEnv, incumbent};
use crate::http::{free_port, get};

const SERVE: &str = "echo up; exec sleep 1000";

/// The status and the body of a response.
fn exchange(mut stream: impl Read + Write, request: &str) -> (u16, String) {
    let (line, rest) = request.split_once('\n').unwrap_or((request, ""));
    let host = if rest.starts_with("Host:") { "" } else { "Host: localhost\r\n" };
    write!(stream, "{line} HTTP/1.0\r\n{host}{rest}\r\n").expect("it listens");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// At a Unix socket.
fn on_socket(path: &Path, request: &str) -> (u16, String) {
    exchange(UnixStream::connect(path).expect("it listens"), request)
}

/// At a port. `header` ends with a line break.
fn on_port(address: &str, request: &str, header: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).expect("it listens");
    exchange(stream, &format!("{request}\n{header}"))
}

fn ok(line: &str) -> (u16, String) {
    (200, format!("{line}\n"))
}

#[tokio::test]
async fn user_of_the_socket_may_act() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let [first_path, second_path] = ["1", "2"].map(|name| directory.path().join(name));
    let http = |path: &Path| format!("unix:{}", path.display());
    let flags = ["--identity", "first", "--http", &http(&first_path)];
    let mut first = env.run("my_app", &flags, SERVE);
    first.wait_for_line("up").await;
    let mode = fs::metadata(&first_path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let flags = ["--identity", "second/b", "--site", "b", "--http", &http(&second_path)];
    let mut second = env.run("my_app", &flags, SERVE);
    eventually("it takes part", async || {
        UnixStream::connect(&second_path).ok()?;
        (on_socket(&second_path, "GET /readyz") == ok("ok: first leads")).then_some(())
    })
    .await;

    let not_leading = (409, "this candidate does not lead\n".to_owned());
    assert_eq!(on_socket(&second_path, "POST /resign"), not_leading);
    assert_eq!(on_socket(&second_path, "POST /move"), not_leading);
    let (status, line) = on_socket(&first_path, "POST /move?site=c");
    assert!(status == 409 && line.contains("no candidate that may lead next is ready"), "{line}");
    assert_eq!(on_socket(&first_path, "POST /move?from=first").0, 400);
    assert_eq!(on_socket(&first_path, "GET /move").0, 405);
    eventually("it hands over", async || {
        let (status, line) = on_socket(&first_path, "POST /move?to=second%2Fb");
        // On a busy machine an answer to its roll call may be late.
        assert!(status != 200 || line == "handing over to second/b\n", "{line}");
        (status == 200).then_some(())
    })
    .await;
    second.wait_for_line("up").await;

    // Whatever it resigns, somebody who stands aside does not lead before others.
    assert_eq!(on_socket(&second_path, "POST /stand-aside"), ok("standing aside"));
    first.wait_for_line("up").await;
    eventually("it sees the leader", async || {
        let aside = ok("ok: first leads; standing aside");
        (on_socket(&second_path, "GET /readyz") == aside).then_some(())
    })
    .await;
    assert_eq!(on_socket(&second_path, "POST /stand-ready"), ok("no longer standing aside"));
    eventually("it is ready", async || {
        (on_socket(&second_path, "GET /readyz") == ok("ok: first leads")).then_some(())
    })
    .await;
    assert_eq!(on_socket(&first_path, "POST /resign"), ok("resigning"));
    second.wait_for_line("up").await;

    let taken = Candidate::start(env.campaign("other", &["--http", &http(&first_path)]));
    let (code, line) = refused(taken).await;
    let expected = format!("incumbent: {}: another process listens there", first_path.display());
    assert_eq!((code, line.trim_end()), (Some(1), &*expected));
    first.signal(Signal::TERM);
    first.exit().await;
    assert!(!first_path.exists(), "it is removed");
    second.signal(Signal::KILL);
    second.exit().await;
    assert!(second_path.exists(), "it is left");
    let mut next = Candidate::start(env.campaign("other", &["--http", &http(&second_path)]));
    next.line().await;
    assert_eq!(on_socket(&second_path, "GET /livez").0, 200);
}

/// A browser reaches a socket or a port that a person forwards, as with `ssh -L`.
#[tokio::test]
async fn page_of_another_site_neither_reads_nor_acts() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let (port, address) = free_port();
    let at = format!("unix:{}", path.display());
    let mut first = env.run("my_app", &["--http", &at], SERVE);
    first.wait_for_line("up").await;
    let mut second = env.run("other", &["--http", &port], SERVE);
    second.wait_for_line("up").await;
    for header in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n",
        "Host: evil.example:8080\r\n",
        "Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\n",
    ] {
        for request in ["POST /resign", "GET /leader", "GET /metrics"] {
            let (status, line) = on_socket(&path, &format!("{request}\n{header}"));
            assert!(status == 403 && line.starts_with("refused: "), "{request} {header} {line}");
            let (status, line) = on_port(&address, request, header);
            assert!(status == 403 && line.starts_with("refused: "), "{request} {header} {line}");
        }
        assert_eq!(on_port(&address, "GET /livez", header).0, 200, "probes have any name");
    }
    for host in ["localhost:8080", "127.0.0.1", "[::1]:80", "10.0.0.1:8080"] {
        let header = format!("Host: {host}\r\nOrigin: http://{host}\r\n");
        assert_eq!(on_port(&address, "GET /leader", &header).0, 200, "{host}");
        let request = format!("POST /stand-aside\n{header}");
        assert_eq!(on_socket(&path, &request), ok("standing aside"), "{host}");
    }
}

/// The exit code and standard error.
async fn refused(mut candidate: Candidate) -> (Option<i32>, String) {
    let code = candidate.exit_code().await;
    (code, candidate.stderr())
}

#[tokio::test]
async fn refused_term_does_not_undo_what_an_operator_did() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let (path, go) = (directory.path().join("socket"), directory.path().join("go"));
    let won = format!("[ -e {} ]", go.display());
    let http = format!("unix:{}", path.display());
    let mut run = env.run("my_app", &["--http", &http, "--on-won", &won], SERVE);
    eventually("a term is refused", async || {
        UnixStream::connect(&path).ok()?;
        on_socket(&path, "GET /readyz").1.contains("standing aside").then_some(())
    })
    .await;
    assert_eq!(on_socket(&path, "POST /stand-aside"), ok("standing aside"));
    fs::write(&go, "").expect("a file");
    run.wait_for_line("up").await;
    let (_, line) = on_socket(&path, "GET /readyz");
    assert!(line.contains("leading") && line.contains("standing aside"), "{line}");
}

#[tokio::test]
async fn holder_of_the_token_may_act() {
    let env = TestEnv::calm().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    fs::write(&file, "s3cret-0123456789\n").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
    let (port, address) = free_port();
    let file = file.to_str().expect("text");
    let flags = ["--http", &port, "--http-token-file", file];
    let mut run = env.run("my_app", &flags, SERVE);
    run.wait_for_line("up").await;
    for header in [
        "",
        "Authorization: Bearer s3cret-012345678\r\n",
        "Authorization: Bearer s3cret-01234567890\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: s3cret-0123456789\r\n",
        "Authorization: Basic s3cret-0123456789\r\n",
    ] {
        let (status, line) = on_port(&address, "POST /resign", header);
        assert_eq!(status, 403, "{header}");
        assert!(line.contains("Authorization: Bearer TOKEN") && line.lines().count() == 1);
    }
    assert_eq!(get(&address, "/leader").map(|(status, _)| status), Some(200), "GET is open");
    let token = "Authorization: Bearer s3cret-0123456789\r\n";
    assert_eq!(on_port(&address, "POST /resign", token), ok("resigning"));
    run.wait_for_line("up").await;
}

#[tokio::test]
async fn nobody_may_act_at_a_port_without_a_token() {
    let env = TestEnv::calm().await;
    let (port, address) = free_port();
    let mut run = env.run("my_app", &["--http", &port], SERVE);
    run.wait_for_line("up").await;
    for path in ["/resign", "/move", "/stand-aside", "/stand-ready"] {
        let (status, line) = on_port(&address, &format!("POST {path}"), "");
        assert_eq!(status, 403, "{path}");
        let expected = "refused: start this candidate with --http unix:PATH, or with \
                        --http-token-file\n";
        assert_eq!(line, expected);
    }
    let (_, line) = get(&address, "/readyz").expect("it listens");
    assert!(line.starts_with("ok: leading with token ") && !line.contains("aside"), "{line}");
}

#[test]
fn unusable_token_file_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (port, _) = free_port();
    let write = |name: &str, text: &str, mode: u32| {
        let file = directory.path().join(name);
        fs::write(&file, text).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
        file.to_str().expect("text").to_owned()
    };
    let socket = format!("unix:{}", directory.path().join("socket").display());
    for (http, file, why) in [
        (&port, write("open", "s3cret", 0o604), "all users may access it"),
        (&port, write("empty", " \n", 0o600), "it is empty"),
        (&port, write("two", "s3cret s3cret", 0o600), "it has several words"),
        (&port, "/nowhere/token".to_owned(), "No such file"),
        (&socket, write("token", "s3cret", 0o600), "has no effect with --http unix:PATH"),
    ] {
        let mut command = incumbent();
        command.args(["campaign", "my_app", "-s", "nats://127.0.0.1:1", "--http", http]);
        let output = command.args(["--http-token-file", &file]).output().expect("it starts");
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(why) && line.lines().count() == 1, "{line}");
        assert!(!line.contains("s3cret"), "{line}");
    }
    let without = incumbent().args(["campaign", "e", "--http-token-file", "x"]).output();
    assert_eq!(without.expect("it starts").status.code(), Some(2));
}
