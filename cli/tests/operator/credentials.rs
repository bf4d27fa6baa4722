//! NKeys, credentials files and certificates, against servers that require them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use incumbent_test_support::{Authority, Server};
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::shell::Shell;

const LIST: [&str; 3] = ["kv", "ls", "--names"];

fn list(shell: &Shell, args: &[&str]) -> (String, Option<i32>) {
    let output = shell.run(&[&LIST, args].concat());
    (output.stdout + &output.stderr, output.code)
}

#[tokio::test]
async fn nkey_authenticates_its_user_only() {
    let (ours, other) = (KeyPair::new_user(), KeyPair::new_user());
    let users = format!("authorization: {{ users: [{{ nkey: {} }}] }}", ours.public_key());
    let server = Server::builder().config(users).start().await;
    let shell = Shell::at(&server);
    shell.write("ours.nk", &format!("-----BEGIN USER NKEY SEED-----\n{}\n", ours.seed().unwrap()));
    shell.write("other.nk", &other.seed().unwrap());
    assert_eq!(list(&shell, &["--nkey", "ours.nk"]), (String::new(), Some(0)));
    let (line, code) = list(&shell, &["--nkey", "other.nk"]);
    assert!(line.contains("denies access") && !line.contains(&other.seed().unwrap()), "{line}");
    assert_eq!(code, Some(5));
    assert_eq!(list(&shell.with("NATS_NKEY", "ours.nk"), &[]).1, Some(0));
}

/// A signed claim in the format of nats-server.
fn signed(issuer: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claim = json!({
        "jti": "test", "iat": 1_700_000_000, "name": "test", "nats": nats,
        "iss": issuer.public_key(), "sub": subject.public_key(),
    });
    let text = format!("{}.{}", part(json!({"typ": "JWT", "alg": "ed25519-nkey"})), part(claim));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(text.as_bytes()).expect("a seed"));
    format!("{text}.{signature}")
}

#[tokio::test]
async fn credentials_are_read_from_file_and_context() {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
    let limits = |streams: i32| {
        json!({
            "subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1,
            "exports": -1, "wildcards": true, "mem_storage": streams, "disk_storage": streams,
            "streams": streams, "consumer": streams,
        })
    };
    let trusted = signed(&operator, &operator, json!({"type": "operator", "version": 2}));
    let preloaded = [(&system, 0), (&account, -1)].map(|(account, streams)| {
        let claim = json!({"type": "account", "version": 2, "limits": limits(streams)});
        format!("{}: {}", account.public_key(), signed(&operator, account, claim))
    });
    let of_user = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    let of_user = signed(&account, &user, of_user);
    let config = format!(
        "operator: {trusted}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}\n",
        system.public_key(),
        preloaded.join("\n")
    );
    let server = Server::builder().config(config).start().await;
    let shell = Shell::at(&server);
    let seed = user.seed().unwrap();
    let file = format!(
        "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    shell.write("user.creds", &file);
    assert_eq!(list(&shell, &["--creds", "user.creds"]), (String::new(), Some(0)));
    assert_eq!(list(&shell, &[]).1, Some(5), "denied without credentials");
    let context = json!({"user_jwt": of_user, "user_seed": seed}).to_string();
    shell.write(".config/nats/context/c.json", &context);
    assert_eq!(list(&shell, &["--context", "c"]), (String::new(), Some(0)));
    shell.write(".config/nats/context/file.json", r#"{"creds": "~/user.creds"}"#);
    assert_eq!(list(&shell, &["--context", "file"]).1, Some(0));
    assert_eq!(list(&shell.with("NATS_CREDS", "user.creds"), &[]).1, Some(0));
}

#[tokio::test]
async fn certificates_of_both_sides_are_verified() {
    let shell = Shell::bare();
    let authority = Authority::new();
    shell.write("ca.pem", authority.certificate());
    for (name, host) in [("server", "127.0.0.1"), ("client", "client.example.net")] {
        let [certificate, key] = authority.issue(host);
        shell.write(&format!("{name}.pem"), &certificate);
        shell.write(&format!("{name}.key"), &key);
    }
    let at = shell.home().display();
    let config = format!(
        "tls {{ cert_file: \"{at}/server.pem\", key_file: \"{at}/server.key\", ca_file: \"{at}/ca.pem\", verify: true }}"
    );
    let server = Server::builder().config(config).start().await;
    let url = server.url();
    let (ca, ours) = (["--tlsca", "ca.pem"], ["--tlscert", "client.pem", "--tlskey", "client.key"]);
    let list = |shell: &Shell, args: &[&[&str]]| {
        list(shell, &[&["-s", &url][..], &args.concat()].concat())
    };
    assert_eq!(list(&shell, &[&ca, &ours]), (String::new(), Some(0)));
    let (line, code) = list(&shell, &[&ours]);
    assert!(line.contains("cannot reach a NATS server") && line.contains("certificate"), "{line}");
    assert_eq!(
        (line.lines().count(), code),
        (1, Some(4)),
        "the authority of the server is unknown"
    );
    let (line, code) = list(&shell, &[&ca]);
    assert_eq!((line.lines().count(), code), (1, Some(4)), "{line}: no client certificate");
    let shell = shell.with("NATS_CA", "ca.pem").with("NATS_CERT", "client.pem");
    assert_eq!(list(&shell.with("NATS_KEY", "client.key"), &[]).1, Some(0));
}
