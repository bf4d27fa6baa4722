//! `kv get`, `put` and `keys`.

use incumbent_test_support::Server;

use crate::shell::Shell;

/// A server with a bucket that keeps three revisions per key.
async fn start_env() -> (Server, Shell) {
    let (server, shell) = Shell::serving().await;
    shell.out(&["kv", "add", "CHORIA_LEADER_ELECTION", "--history", "3", "-q"]);
    (server, shell)
}

const B: &str = "CHORIA_LEADER_ELECTION";

#[tokio::test]
async fn get_prints_what_choria_prints() {
    let (_server, shell) = start_env().await;
    for _ in 1..20 {
        shell.out(&["kv", "put", B, "other", "x"]);
    }
    assert_eq!(shell.out(&["kv", "put", B, "my_app", "c1.example.net"]), "20\n");
    let seen = shell.out(&["kv", "get", B, "my_app"]);
    let json = shell.json(&["kv", "get", B, "my_app", "-o", "json"]);
    let created = json["created"].as_str().unwrap();
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = (&created[2..4], &created[5..7], &created[8..10]);
    let month = months[month.parse::<usize>().unwrap() - 1];
    let time = &created[11..16];
    assert_eq!(
        seen,
        format!(
            "{B} > my_app sequence 20 created @ {day} {month} {year} {time} UTC\n\nc1.example.net\n"
        )
    );
    assert_eq!(json["value"], "c1.example.net");
    assert_eq!(json["revision"], 20);
    assert_eq!(shell.out(&["kv", "get", B, "my_app", "--raw"]), "c1.example.net");
}

#[tokio::test]
async fn values_are_kept_byte_for_byte() {
    let (_server, shell) = start_env().await;
    let bytes = b"\x1b[31mred\x00\xc3\xa9";
    assert_eq!(shell.run_with_input(&["kv", "put", B, "k"], bytes).code, Some(0));
    let raw = shell.command(&["kv", "get", B, "k", "--raw"]).output().unwrap();
    assert_eq!(raw.stdout, bytes);
    let shown = shell.out(&["kv", "get", B, "k"]);
    assert!(shown.ends_with("\nG1szMW1yZWQAw6k=\n"), "{shown}");
    assert_eq!(shell.run_with_input(&["kv", "put", B, "k", "-"], b"\xff").code, Some(0));
    assert_eq!(shell.json(&["kv", "get", B, "k", "-o", "json"])["value_base64"], "/w==");
    assert_eq!(shell.run_with_input(&["kv", "put", B, "new"], b"").code, Some(0));
    assert_eq!(shell.out(&["kv", "get", B, "new", "--raw"]), "");
}

#[tokio::test]
async fn get_reads_the_revision_asked_for() {
    let (_server, shell) = start_env().await;
    shell.out(&["kv", "put", B, "k", "one"]);
    shell.out(&["kv", "put", B, "k", "two"]);
    assert_eq!(shell.out(&["kv", "get", B, "k", "--raw"]), "two");
    assert_eq!(shell.out(&["kv", "get", B, "k", "--raw", "--revision", "1"]), "one");
    shell.out(&["kv", "put", B, "other", "x"]);
    let (line, code) = shell.refusal(&["kv", "get", B, "k", "--revision", "3"]);
    assert!(line.contains("revision 3 belongs to another key"), "{line}");
    assert_eq!(code, 3);
    let (_, code) = shell.refusal(&["kv", "get", B, "k", "--revision", "99"]);
    assert_eq!(code, 3);
}

#[tokio::test]
async fn keys_lists_what_has_a_value() {
    let (_server, shell) = start_env().await;
    assert_eq!(shell.out(&["kv", "keys", B]), "");
    for (key, value) in [("b", "1"), ("a", "1")] {
        shell.out(&["kv", "put", B, key, value]);
    }
    assert_eq!(shell.out(&["kv", "keys", B]), "a\nb\n");
    shell.out(&["kv", "del", B, "b", "--force"]);
    assert_eq!(shell.json(&["kv", "keys", B, "-o", "json"]), serde_json::json!(["a"]));
    let (line, code) = shell.refusal(&["kv", "get", B, "b"]);
    assert!(line.contains("it was deleted"), "{line}");
    assert_eq!(code, 3);
}

#[tokio::test]
async fn invalid_key_is_refused() {
    let (_server, shell) = start_env().await;
    for key in ["", ".", "a..b", "a b", "a*", ">", "é"] {
        for args in
            [&["kv", "get", B, key][..], &["kv", "put", B, key, "v"], &["kv", "del", B, key]]
        {
            let (line, code) = shell.refusal(args);
            assert!(line.contains("is not a valid key"), "{line}");
            assert_eq!(code, 2);
        }
    }
}
