//! Server and credentials: flags, variables, and contexts of the `nats` program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use incumbent_test_support::{Authority, Server};

use crate::shell::Shell;

const USERS: &str = r#"authorization: { users: [
    { user: u, password: s3cret },
    { user: limited, password: p, permissions: { publish: "_INBOX.>" } },
] }"#;

async fn start_with_users() -> Server {
    Server::builder().config(USERS).start().await
}

fn context(url: &str, password: &str) -> String {
    format!(
        r#"{{"description": "", "url": "{url}", "user": "u", "password": "{password}", "nkey": ""}}"#
    )
}

#[tokio::test]
async fn flag_precedes_variable_and_variable_precedes_context() {
    let (server, other) = (Server::start().await, "nats://127.0.0.1:1");
    let url = server.url();
    let shell = Shell::bare().with("NATS_URL", other);
    assert_eq!(shell.out(&["kv", "ls", "--names", "-s", &url]), "");
    let shell = Shell::bare().with("NATS_URL", &url);
    shell.write(".config/nats/context/c.json", &format!(r#"{{"url": "{other}"}}"#));
    shell.write(".config/nats/context.txt", "c");
    assert_eq!(shell.out(&["kv", "ls", "--names"]), "");
    let (_, code) = shell.refusal(&["kv", "ls", "-s", other]);
    assert_eq!(code, 4);
}

#[tokio::test]
async fn contexts_are_selected_and_named() {
    let server = start_with_users().await;
    let shell = Shell::bare();
    shell.write(".config/nats/context/good.json", &context(&server.url(), "s3cret"));
    shell.write(".config/nats/context/bad.json", &context(&server.url(), "wr0ng"));
    shell.write(".config/nats/context.txt", "good\n");
    assert_eq!(shell.out(&["kv", "ls", "--names"]), "");
    let (line, code) = shell.refusal(&["kv", "ls", "--context", "bad"]);
    assert!(line.contains("denies access") && !line.contains("wr0ng"), "{line}");
    assert_eq!(code, 5);
    let shell = Shell::bare().with("NATS_CONTEXT", "there");
    let elsewhere = shell.home().join("elsewhere").display().to_string();
    shell.write("elsewhere/nats/context/there.json", &context(&server.url(), "s3cret"));
    assert_eq!(shell.with("XDG_CONFIG_HOME", elsewhere).out(&["kv", "ls", "--names"]), "");
}

#[tokio::test]
async fn variables_that_are_not_used_are_reported() {
    let server = Server::start().await;
    let shell = Shell::bare().with("NATS_URL", server.url()).with("NATS_TOKEN", "s3cret");
    let shell = shell.with("NATS_SERVICE_HOST", "10.0.0.1").with("NATS_PORT_4222_TCP", "tcp://h");
    let output = shell.command(&["kv", "ls", "--names"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("NATS_TOKEN is ignored") && said.lines().count() == 1, "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    let mut command = shell.command(&["kv", "ls", "--names"]);
    let output = command.env("NATS_USER", OsStr::from_bytes(b"\xff")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("NATS_USER is not UTF-8"), "{said}");
}

#[test]
fn broken_context_is_reported_in_one_line_without_secrets() {
    let shell = Shell::bare();
    shell.write(".config/nats/context/junk.json", "{\"password\": s3cret");
    shell.write(".config/nats/context/typo.json", "{\"pasword\": \"s3cret\"}");
    shell.write(".config/nats/context/kind.json", "{\"user\": [\"s3cret\"]}");
    shell.write(".config/nats/context/vault.json", "{\"creds\": \"op://s3cret\"}");
    std::fs::create_dir_all(shell.home().join(".config/nats/context/dir.json")).unwrap();
    std::fs::write(shell.home().join(".config/nats/context/bin.json"), [0xff, 0xfe]).unwrap();
    for (name, expected) in [
        ("junk", "not JSON at line 1"),
        ("typo", "unknown field \"pasword\""),
        ("kind", "field \"user\" is of the wrong type"),
        ("vault", "op:// references are not supported"),
        ("dir", "directory"),
        ("bin", "not text"),
        ("absent", "does not exist"),
        ("../junk", "not a valid context name"),
    ] {
        let (line, code) = shell.refusal(&["kv", "ls", "--context", name]);
        assert!(line.contains(expected) && !line.contains("s3cret"), "{line}");
        assert_eq!(code, 2, "{line}");
    }
    shell.write(".config/nats/context.txt", "absent");
    shell.expect_refusal(&["kv", "ls"], "selected context absent", 2);
}

#[tokio::test]
async fn user_password_and_token_come_from_flag_url_or_variable() {
    let server = start_with_users().await;
    let url = server.url();
    let shell = Shell::bare().with("NATS_URL", &url);
    let good = ["kv", "ls", "--names", "--user", "u", "--password", "s3cret"];
    assert_eq!(shell.out(&good), "");
    assert_eq!(shell.out(&["kv", "ls", "--names", "-s", &server.url_as("u", "s3cret")]), "");
    let named = Shell::at(&server).with("NATS_USER", "u").with("NATS_PASSWORD", "s3cret");
    assert_eq!(named.out(&["kv", "ls", "--names"]), "");
    let (line, code) = shell.refusal(&["kv", "ls", "--user", "u", "--password", "wr0ng"]);
    assert!(!line.contains("wr0ng"), "{line}");
    assert_eq!(code, 5);
    shell.expect_refusal(
        &["kv", "ls", "--user", "u", "--nkey", "n"],
        "conflicting credentials in the",
        2,
    );

    let server = Server::builder().config("authorization: { token: t0ken }").start().await;
    assert_eq!(Shell::at(&server).out(&["kv", "ls", "--names", "--user", "t0ken"]), "");
}

#[tokio::test]
async fn password_of_an_address_is_decoded_everywhere() {
    let users = r#"authorization: { users: [{ user: "u@x", password: "p@s s%" }] }"#;
    let server = Server::builder().config(users).start().await;
    let url = server.url_as("u%40x", "p%40s%20s%25");
    Shell::bare().with("NATS_URL", &url).out(&["kv", "add", "B", "--election", "-q"]);
    let lock = format!("{url}/B");
    for at in [&["--server", &url, "--bucket", "B"][..], &["--lock", &lock]] {
        let output = Shell::bare().run(&[&["election", "list"], at].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        let output = Shell::bare().run(&[&["doctor"], at].concat());
        assert!(!output.stdout.contains("denie"), "{output:?}");
    }
}

#[tokio::test]
async fn tls_is_required_where_it_is_configured() {
    let server = start_with_users().await;
    let shell = Shell::at(&server).with("NATS_USER", "u").with("NATS_PASSWORD", "s3cret");
    shell.write("ca.pem", Authority::new().certificate());
    let tls = server.url().replace("nats://", "tls://");
    for args in [["--tlsca", "ca.pem"], ["-s", &tls]] {
        shell.expect_refusal(&[&["kv", "ls"], &args[..]].concat(), "TLS is required", 4);
    }
    for scheme in ["ws", "wss"] {
        let url = server.url_as("u", "s3cret").replace("nats", scheme);
        let refused = format!("{scheme}:// is not supported: use nats:// or tls://");
        shell.expect_refusal(&["kv", "ls", "-s", &url], &refused, 2);
        shell.expect_refusal(&["election", "list", "--lock", &format!("{url}/B")], scheme, 2);
    }
}

#[tokio::test]
async fn invalid_credential_files_are_named() {
    let (_server, shell) = Shell::serving().await;
    shell.write("junk", "s3cret");
    for (flag, expected) in [
        ("--creds", "no credentials in junk"),
        ("--nkey", "no NKey seed in junk"),
        ("--tlscert", "requires its key"),
    ] {
        let (line, code) = shell.refusal(&["kv", "ls", flag, "junk"]);
        assert!(line.contains(expected) && !line.contains("s3cret"), "{line}");
        assert_eq!(code, 2, "{line}");
    }
    let jwt = r#"{"user_jwt": "s3cret", "user_seed": "s3cret"}"#;
    shell.write(".config/nats/context/jwt.json", jwt);
    shell.write(".config/nats/context/env.json", r#"{"creds": "env://CREDS"}"#);
    let shell = shell.with("CREDS", "s3cret");
    for (context, expected) in [
        ("jwt", "no credentials in user_jwt (context jwt)"),
        ("env", "no credentials in the reference (context env)"),
    ] {
        let line = shell.expect_refusal(&["kv", "ls", "--context", context], expected, 2);
        assert!(!line.contains("s3cret"), "{line}");
    }
    for flag in ["--creds", "--nkey", "--tlsca"] {
        shell.expect_refusal(&["kv", "ls", flag, "/does/not/exist"], "/does/not/exist", 2);
    }
}

#[tokio::test]
async fn address_is_shown_without_its_password() {
    let shell = Shell::bare();
    let (line, code) = shell.refusal(&["kv", "ls", "-s", "nats://u:s3cret@127.0.0.1:1"]);
    assert!(line.contains("127.0.0.1:1") && !line.contains("s3cret"), "{line}");
    assert_eq!(code, 4);
    let (line, code) = shell.refusal(&["kv", "ls", "-s", "http://u:s3cret@127.0.0.1:1"]);
    assert!(line.contains("address") && !line.contains("s3cret"), "{line}");
    assert_eq!(code, 2);
    let help = Shell::bare().with("NATS_URL", "nats://u:s3cret@h").run(&["kv", "ls", "--help"]);
    assert!(!help.stdout.contains("s3cret"), "{}", help.stdout);
}

#[tokio::test]
async fn log_never_shows_a_password() {
    let server = start_with_users().await;
    let shell = Shell::bare().with("INCUMBENT_LOG", "trace");
    let in_address = ["kv", "ls", "-s", &server.url_as("u", "s3cret")];
    let in_flags = ["kv", "ls", "-s", &server.url(), "--user", "u", "--password", "s3cret"];
    for args in [&in_address[..], &in_flags] {
        let output = shell.run(args);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(
            output.stderr.contains("async_nats") && !output.stderr.contains("s3cret"),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn jetstream_domain_is_used() {
    let server = Server::builder().domain("hub").start().await;
    let shell = Shell::at(&server);
    shell.out(&["kv", "add", "B", "--js-domain", "hub", "-q"]);
    shell.out(&["kv", "put", "B", "a", "1", "--js-domain", "hub"]);
    assert_eq!(shell.out(&["kv", "get", "B", "a", "--raw", "--js-domain", "hub"]), "1");
    let absent = ["kv", "ls", "--js-domain", "absent"];
    shell.expect_refusal(&absent, "no response from JetStream", 4);
}

#[tokio::test]
async fn missing_right_is_reported_at_once() {
    let server = start_with_users().await;
    let shell = Shell::at(&server).with("NATS_USER", "limited").with("NATS_PASSWORD", "p");
    // The timeout exceeds that of the test: the refusal ends the wait.
    let (line, code) = shell.refusal(&["kv", "status", "B", "--timeout", "1h"]);
    assert!(line.contains("denied") && line.contains("$JS.API.STREAM.INFO.KV_B"), "{line}");
    assert_eq!(code, 5);
}
