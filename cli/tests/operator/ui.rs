//! `ui` over plain HTTP: who may read and change, and what it costs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use incumbent_test_support::{Port, eventually, jetstream_on};
use serde_json::Value;

use crate::record;
use crate::shell::{BUCKET, Running, Shell, TIMEOUT};

/// Starts `incumbent ui` at a free port. Returns its address.
pub fn serve(shell: &Shell, args: &[&str]) -> (Running, String) {
    let mut ui = shell.start(&[&["ui", "--listen", "0"], args].concat());
    let line = ui.line_with("serving the elections at http://");
    let (_, address) = line.trim_end_matches('/').rsplit_once('/').expect("an address");
    let address = address.to_owned();
    (ui, address)
}

/// The head of the response, and the rest to read.
fn send(address: &str, request: &str, fields: &str, body: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a head") > 0, "{head}");
    }
    (head, reader)
}

/// The status and the body of a response that ends.
pub fn request(address: &str, request: &str, fields: &str, body: &str) -> (u16, String) {
    let fields = format!("Host: {address}\r\n{fields}");
    let (head, mut rest) = send(address, request, &fields, body);
    let mut body = String::new();
    rest.read_to_string(&mut body).expect("text");
    (status(&head), body)
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// Reads events until one of this name. Returns its data.
pub fn event(events: &mut impl BufRead, name: &str) -> Value {
    loop {
        let mut line = String::new();
        assert!(events.read_line(&mut line).expect("a line") > 0, "no event {name}");
        if line.trim_end() == format!("event: {name}") {
            let mut data = String::new();
            events.read_line(&mut data).expect("data");
            return serde_json::from_str(data.trim_start_matches("data: ")).expect("JSON");
        }
    }
}

pub fn follow(address: &str, fields: &str) -> BufReader<TcpStream> {
    let fields = format!("Host: {address}\r\n{fields}");
    let (head, events) = send(address, "GET /api/events", &fields, "");
    assert_eq!(status(&head), 200, "{head}");
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    events
}

/// Writes the token `s3cret` to a file. Returns its path.
pub fn token_file(shell: &Shell) -> String {
    shell.write("token", "s3cret\n");
    let file = shell.home().join("token");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("our file");
    file.to_str().expect("a path").to_owned()
}

#[tokio::test]
async fn events_are_everything_and_then_each_change() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one"), ("f", "one")]).await;
    let (_ui, address) = serve(&shell, &[]);
    let mut events = follow(&address, "");
    let first = event(&mut events, "snapshot");
    assert_eq!((&first["is_read"], &first["changes"]), (&false.into(), &false.into()), "{first}");
    let all = event(&mut events, "changes");
    assert_eq!(all["elections"].as_array().map(Vec::len), Some(2), "{all}");
    // One who comes later is sent everything at once.
    let mut late = follow(&address, "");
    let snapshot = event(&mut late, "snapshot");
    assert_eq!(snapshot["elections"], all["elections"].clone().take_times(&snapshot["elections"]));
    shell.put("e", "two");
    for events in [&mut events, &mut late] {
        let change = event(events, "changes");
        assert_eq!(change["elections"].as_array().map(Vec::len), Some(1), "{change}");
        assert_eq!(change["elections"][0]["leader"], "two");
        assert_eq!(change["transitions"][0]["before"], "one");
    }
    // The same leader again is a renewal: only what is left of its lease is sent.
    shell.put("e", "two");
    loop {
        let renewal = event(&mut events, "changes");
        assert_eq!(renewal["elections"], Value::Array(Vec::new()), "{renewal}");
        if renewal["renewed"][0][0] == "e" {
            break;
        }
    }
}

/// The TTL of the bucket bounds the lease of a holder that states none.
#[tokio::test]
async fn url_and_flags_show_the_same_deadline() {
    let (server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let url = format!("{}/{BUCKET}", server.url());
    for args in [&["--lock", &*url][..], &[]] {
        let (_ui, address) = serve(&shell, args);
        let all = event(&mut follow(&address, ""), "changes");
        assert_eq!(all["elections"][0]["lease_ms"], 3_600_000, "{all}");
    }
}

/// What two readings of one state differ in.
trait TakeTimes {
    fn take_times(self, of: &Value) -> Self;
}

impl TakeTimes for Value {
    fn take_times(mut self, of: &Value) -> Self {
        let both =
            self.as_array_mut().into_iter().flatten().zip(of.as_array().into_iter().flatten());
        for (mine, other) in both {
            for field in ["remaining_ms", "deadline"] {
                mine[field] = other[field].clone();
            }
        }
        self
    }
}

#[tokio::test]
async fn without_a_token_only_this_host_reads_and_nobody_changes() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let (_ui, address) = serve(&shell, &[]);
    let refused = |fields: &str| {
        let (head, _) = send(&address, "GET /api/events", fields, "");
        status(&head)
    };
    // A page of another origin, also with a name that was made to resolve to this host.
    assert_eq!(refused(&format!("Host: {address}\r\nSec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(refused("Host: evil.example:8610\r\n"), 403);
    let about = r#"{"election":"e","leader":"one"}"#;
    let json = "Content-Type: application/json\r\n";
    for change in ["evict", "move", "pause"] {
        let (status, _) = request(&address, &format!("POST /api/{change}"), json, about);
        assert_eq!(status, 404, "{change} is not offered");
    }
    // Another page cannot send JSON without asking first, which nobody answers.
    let (status, _) = request(&address, "POST /api/roll-call", "", r#"{"election":"e"}"#);
    assert_eq!(status, 415);
    assert_eq!(shell.out(&["kv", "get", BUCKET, "e", "--raw"]), "one");

    let (head, mut body) = send(&address, "GET /", &format!("Host: {address}\r\n"), "");
    let head = head.to_lowercase();
    for field in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(head.contains(field), "no {field}: {head}");
    }
    let mut page = String::new();
    body.read_to_string(&mut page).expect("text");
    assert!(!page.contains("http"), "the page names another place: {page}");
    assert_eq!(request(&address, "GET /../Cargo.toml", "", "").0, 404);
}

#[tokio::test]
async fn with_a_token_only_those_who_send_it_read_and_change() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let file = token_file(&shell);
    let (_ui, address) = serve(&shell, &["--token-file", &file, "--allow-changes"]);
    let json = "Content-Type: application/json\r\n";
    let authorized = format!("{json}Authorization: Bearer s3cret\r\n");
    let evict = |fields: &str, about: &str| request(&address, "POST /api/evict", fields, about);
    for wrong in [json.to_owned(), format!("{json}Authorization: Bearer s3cre\r\n")] {
        assert_eq!(request(&address, "GET /api/events", &wrong, "").0, 401);
        assert_eq!(evict(&wrong, r#"{"election":"e","leader":"one"}"#).0, 401);
    }
    // The page is the same for all: it asks for the token.
    assert_eq!(request(&address, "GET /", "", "").0, 200);
    let mut events = follow(&address, "Authorization: Bearer s3cret\r\n");
    assert_eq!(event(&mut events, "snapshot")["changes"], true);
    // Only the term that was seen is ended.
    let (status, why) = evict(&authorized, r#"{"election":"e","leader":"two"}"#);
    assert_eq!((status, why.contains("one leads now")), (409, true), "{why}");
    for (about, expected) in [
        (r#"{"election":"none","leader":"one"}"#, 404),
        (r#"{"election":"no name","leader":"one"}"#, 400),
        (r#"{"election":"e"}"#, 400),
        (r#"{"election":"e","leader":"one","force":true}"#, 422),
        ("{", 400),
        (&format!(r#"{{"election":"{}"}}"#, "x".repeat(20_000)), 413),
    ] {
        let (status, why) = evict(&authorized, about);
        assert_eq!(status, expected, "{about:.60}: {why}");
        assert!(why.starts_with("{\"error\":\"") && why.lines().count() == 1, "{why}");
    }
    let (status, done) = evict(&authorized, r#"{"election":"e","leader":"one"}"#);
    assert_eq!((status, done.as_str()), (200, r#"{"done":"evicted one from e"}"#));
    loop {
        let changes = event(&mut events, "changes");
        if changes["elections"][0]["vacant"] == "evicted" {
            break;
        }
    }
}

#[tokio::test]
async fn empty_lock_and_absent_elections_are_shown_as_such() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    for names in [&[][..], &["a", "b"]] {
        let (_ui, address) = serve(&shell, names);
        let mut events = follow(&address, "");
        let first = event(&mut events, "snapshot");
        assert_eq!(first["names"].as_array().map(Vec::len), Some(names.len()), "{first}");
        let all = event(&mut events, "changes");
        assert_eq!(all["elections"], Value::Array(Vec::new()), "it was read: {all}");
    }
}

/// The connections are few, and some are for others.
#[tokio::test]
async fn one_browser_too_many_is_told_so() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let (_ui, address) = serve(&shell, &[]);
    let mut viewers: Vec<_> = (0..32).map(|_| follow(&address, "")).collect();
    let (status, why) = request(&address, "GET /api/events", "", "");
    assert_eq!((status, why.contains("too many browsers")), (503, true), "{why}");
    let page = request(&address, "GET /", "", "");
    assert_eq!(page.0, 200);
    // Those before are still sent changes, and one who leaves makes room.
    shell.put("e", "two");
    for events in &mut viewers {
        while event(events, "changes")["elections"][0]["leader"] != "two" {}
    }
    viewers.pop();
    eventually("there is room", async || {
        (send(&address, "GET /api/events", &format!("Host: {address}\r\n"), "").0)
            .contains(" 200 ")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn lock_that_is_away_is_told_to_all_who_ask() {
    let (server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let (_ui, address) = serve(&shell, &["--timeout", "20s"]);
    server.stop().await;
    let mut events = follow(&address, "");
    let failing = event(&mut events, "failing");
    assert!(failing["reason"].as_str().is_some_and(|why| why.contains("cannot reach")));
    let json = "Content-Type: application/json\r\n";
    let (status, why) = request(&address, "POST /api/roll-call", json, r#"{"election":"e"}"#);
    assert_eq!((status, why.contains("cannot reach")), (503, true), "{why}");
    // One who comes later knows it at once.
    let mut late = follow(&address, "");
    assert_ne!(event(&mut late, "snapshot")["failing"], Value::Null);
    server.start_again().await;
    for events in [&mut events, &mut late] {
        while event(events, "changes")["elections"][0]["leader"] != "one" {}
    }
}

#[tokio::test]
async fn nothing_is_read_while_nobody_looks() {
    let (server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let (_ui, address) = serve(&shell, &[]);
    let connections = async || server.connz().await["connections"].as_array().map(Vec::len);
    eventually("the first read is over", async || (connections().await == Some(0)).then_some(()))
        .await;
    let mut events = follow(&address, "");
    event(&mut events, "changes");
    assert_eq!(connections().await, Some(1));
    let mut second = follow(&address, "");
    event(&mut second, "snapshot");
    assert_eq!(connections().await, Some(1), "all browsers share one reader");
    drop((events, second));
    eventually("the reader ends", async || (connections().await == Some(0)).then_some(())).await;
    let mut events = follow(&address, "");
    let all = event(&mut events, "changes");
    assert_eq!(all["elections"][0]["leader"], "one");
}

#[tokio::test]
async fn page_needs_only_the_rights_of_an_observer() {
    let (_server, admin, observer) = Shell::with_observer(&["incumbent-roll-call.B.>"]).await;
    admin.out(&["kv", "add", "B", "--election", "--ttl", "30s", "-q"]);
    let mut leader = admin.start(&["campaign", "e", "--bucket", "B", "--identity", "one"]);
    leader.line_with("won");
    let file = token_file(&observer);
    let flags = ["--bucket", "B", "--token-file", &file, "--allow-changes"];
    let (_ui, address) = serve(&observer, &flags);
    let fields = "Content-Type: application/json\r\nAuthorization: Bearer s3cret\r\n";
    let mut events = follow(&address, "Authorization: Bearer s3cret\r\n");
    let all = event(&mut events, "changes");
    assert_eq!(all["elections"][0]["leader"], "one");
    eventually("the leader answers in time", async || {
        let about = r#"{"election":"e"}"#;
        let (status, answer) = request(&address, "POST /api/roll-call", fields, about);
        assert_eq!(status, 200, "{answer}");
        (answer == r#"{"answers":1,"done":null}"#).then_some(())
    })
    .await;
    let token = all["elections"][0]["token"].as_str().expect("a token");
    let about = format!(r#"{{"election":"e","leader":"one","token":"{token}"}}"#);
    let (status, why) = request(&address, "POST /api/evict", fields, &about);
    assert_eq!((status, why.contains("denies")), (403, true), "{why}");
}

#[tokio::test]
async fn candidate_serves_the_page_under_its_own_address() {
    let (_server, shell) = Shell::serving().await;
    let port = Port::pick().number().to_string();
    let address = format!("127.0.0.1:{port}");
    let flags = ["campaign", "e", "--lease", "24s", "--identity", "one", "--http", &port];
    let mut leader = shell.start(&[&flags[..], &["--http-ui"]].concat());
    leader.line_with("won");
    assert!(request(&address, "GET /ui/", "", "").1.contains("<title>Elections</title>"));
    assert_eq!(request(&address, "GET /ui", "", "").0, 307);
    assert_eq!(request(&address, "GET /ui/style.css", "", "").0, 200);
    assert_eq!(request(&address, "GET /leader", "", "").0, 200);
    let fields = format!("Host: {address}\r\n");
    let (_, mut events) = send(&address, "GET /ui/api/events", &fields, "");
    assert_eq!(event(&mut events, "changes")["elections"][0]["leader"], "one");
    let other = "campaign f --identity two --http 0.0.0.0:0 --http-ui";
    let other: Vec<&str> = other.split(' ').collect();
    shell.expect_refusal(
        &other,
        "--http: other hosts reach this address: add --http-token-file",
        2,
    );
}

#[tokio::test]
async fn what_cannot_be_served_is_one_clear_line() {
    let (_server, shell) = Shell::serving().await;
    shell.expect_refusal(&["ui", "--listen", "0"], BUCKET, 3);
    shell.out(&["kv", "add", BUCKET, "--election", "-q"]);
    let refusal = |args: &str, text: &str, code| {
        let args: Vec<&str> = args.split(' ').collect();
        shell.expect_refusal(&args, text, code);
    };
    refusal(
        "ui --listen 0.0.0.0:0",
        "--listen: other hosts reach this address: add --token-file",
        2,
    );
    refusal("ui --listen nowhere", "invalid --listen \"nowhere\": use a port", 2);
    refusal("ui --listen 192.0.2.1:80", "cannot serve HTTP at 192.0.2.1:80", 1);
    refusal("ui --token-file absent", "--token-file absent: No such file", 2);
    refusal("ui --listen 0 -s 127.0.0.1:1", "cannot reach", 4);
    refusal("ui --listen nowhere -s 127.0.0.1:1", "invalid --listen", 2);
    shell.write("open", "s3cret");
    std::fs::set_permissions(shell.home().join("open"), PermissionsExt::from_mode(0o644)).unwrap();
    refusal("ui --token-file open", "all users may access it", 2);
    assert_eq!(shell.run(&["ui", "--allow-changes"]).code, Some(2), "changes need a token");
    let (_ui, address) = serve(&shell, &[]);
    refusal(&format!("ui --listen {address}"), "Address already in use", 1);
}

/// The mode of the socket decides who connects, and a page of another site sends its own origin.
#[tokio::test]
async fn user_of_a_socket_may_change_elections() {
    let (_server, shell) = Shell::with_leaders(&[("e", "one")]).await;
    let path = shell.home().join("ui.sock");
    let at = format!("unix:{}", path.display());
    let mut ui = shell.start(&["ui", "--listen", &at, "--allow-changes"]);
    ui.line_with("serving the elections at unix:");
    let evict = |fields: &str| {
        let mut stream = UnixStream::connect(&path).expect("it listens");
        let body = r#"{"election":"e","leader":"one"}"#;
        let length = body.len();
        // In one piece: a request that is refused is not read to its end.
        let request = format!(
            "POST /api/evict HTTP/1.1\r\nContent-Type: application/json\r\n\
             {fields}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut head = String::new();
        BufReader::new(stream).read_line(&mut head).expect("a head");
        status(&head)
    };
    assert_eq!(evict("Host: localhost\r\nOrigin: https://evil.example\r\n"), 403);
    assert_eq!(evict("Host: evil.example\r\n"), 403);
    assert_eq!(shell.out(&["kv", "get", BUCKET, "e", "--raw"]), "one");
    assert_eq!(evict("Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n"), 200);
}

/// A number of a page is exact up to 2^53 only.
#[tokio::test]
async fn tokens_are_sent_to_a_page_as_text() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    let mut headers = async_nats::HeaderMap::new();
    for (name, value) in [
        ("Incumbent-Version", "1"),
        ("Incumbent-Write", "00000000000000aa-7"),
        ("Incumbent-Lease", "60000"),
        ("Incumbent-Token", "9007199254740993"),
    ] {
        headers.insert(name, value);
    }
    let context = jetstream_on(server.connect().await);
    let subject = format!("$KV.{BUCKET}.e");
    let sent = context.publish_with_headers(subject, headers, "one".into()).await;
    sent.expect("it is sent").await.expect("it is stored");
    let file = token_file(&shell);
    let (_ui, address) = serve(&shell, &["--token-file", &file, "--allow-changes"]);
    let token = "Authorization: Bearer s3cret\r\n";
    let mut events = follow(&address, token);
    let changes = event(&mut events, "changes");
    assert_eq!(changes["elections"][0]["token"], "9007199254740993");
    let fields = format!("{token}Content-Type: application/json\r\n");
    let evict = |token: &str| {
        let about = format!(r#"{{"election":"e","leader":"one","token":"{token}"}}"#);
        request(&address, "POST /api/evict", &fields, &about).0
    };
    assert_eq!(evict("9007199254740992"), 409, "of another term");
    assert_eq!(evict("9007199254740993"), 200);
}

#[tokio::test]
async fn recording_is_served_of_the_selected_elections_alone() {
    let (_server, shell) = Shell::with_leaders(&[]).await;
    ["e", "f"].into_iter().for_each(|election| shell.put(election, "one"));
    let _recorder = record::record(&shell, &[]);
    record::recorded(&shell, "f", &["term one -"]).await;
    let (_ui, address) = serve(&shell, &["e", "--recording", record::FILE]);
    let json = "Content-Type: application/json\r\n";
    let history = |election: &str| {
        let about = format!(r#"{{"election":"{election}"}}"#);
        request(&address, "POST /api/history", json, &about)
    };
    assert_eq!(history("e").0, 200);
    let (status, why) = history("f");
    assert!(status == 404 && why.contains("this page does not show it"), "{why}");
}

/// The name of an election is the choice of whoever writes it.
#[tokio::test]
async fn great_numbers_in_names_take_no_memory() {
    let (server, shell) = Shell::with_leaders(&[]).await;
    let context = jetstream_on(server.connect().await);
    for set in 0..200 {
        for shard in ["99998", "99999"] {
            let subject = format!("$KV.{BUCKET}.s{set}.{shard}");
            context.publish(subject, "one".into()).await.expect("sent").await.expect("stored");
        }
    }
    let (ui, address) = serve(&shell, &[]);
    let mut events = follow(&address, "");
    let sets = loop {
        let changes = event(&mut events, "changes");
        if changes["sets"].is_array() {
            break changes["sets"].clone();
        }
    };
    assert_eq!(sets.as_array().map(Vec::len), Some(200));
    assert_eq!(sets[0]["leaderless_count"], 0, "nothing states that there are more: {}", sets[0]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", ui.id())).expect("a process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    assert!(peak < 120_000, "{peak} kB");
}
