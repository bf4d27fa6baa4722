//! Elections that are shared with Choria's candidates.

use async_nats::jetstream;
use incumbent_test_support::Server;

use crate::doctor::{doctor, line};
use crate::shell::Shell;

const BUCKET: &str = "CHORIA_LEADER_ELECTION";

/// As a broker of Choria makes it.
async fn chorias_bucket(server: &Server) -> jetstream::kv::Store {
    let context = jetstream::new(server.connect().await);
    let stream = jetstream::stream::Config {
        name: format!("KV_{BUCKET}"),
        subjects: vec![format!("$KV.{BUCKET}.>")],
        max_messages_per_subject: 1,
        max_age: std::time::Duration::from_secs(60),
        max_message_size: 1024,
        discard: jetstream::stream::DiscardPolicy::New,
        deny_delete: true,
        allow_rollup: true,
        allow_direct: true,
        ..Default::default()
    };
    context.create_stream(stream).await.expect("a stream");
    context.get_key_value(BUCKET).await.expect("a bucket")
}

#[tokio::test]
async fn the_doctor_notices_chorias_candidates() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let store = chorias_bucket(&server).await;
    let told = doctor(&shell, &[], 1);
    line(&told, "warning  choria ", "Choria created the bucket: if Choria's candidates take part");
    store.put("my_app", "go-1.example.net".into()).await.expect("a write");
    let told = doctor(&shell, &[], 1);
    let found =
        line(&told, "warning  choria ", "the entry of \"my_app\" has no mark of this library");
    assert!(found.contains("--with-choria") && found.contains("?with-choria"), "{found}");

    let told = doctor(&shell, &["--with-choria"], 1);
    line(&told, "ok       choria ", "as configured with --with-choria or in the URL");
    let shared = format!("{}/{BUCKET}?with-choria", server.url());
    let told = doctor(&shell, &["--lock", &shared], 1);
    line(&told, "ok       choria ", "as configured with --with-choria or in the URL");
    shell.refuses(
        &["doctor", "--lock", &shared, "--with-choria"],
        "--with-choria requires --lock nats",
        2,
    );
}

#[tokio::test]
async fn a_bucket_of_this_library_shows_no_trace_of_choria() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let mut leader = shell.start(&["campaign", "my_app"]);
    leader.line_with("won");
    let told = doctor(&shell, &[], 0);
    line(&told, "ok       choria ", "no trace of Choria's candidates");
}

/// Without it the library warns of an entry that it cannot know, and waits as for one of its own.
#[tokio::test]
async fn a_candidate_that_was_told_of_choria_does_not_warn_of_its_entries() {
    let server = Server::start().await;
    let shell = Shell::at(&server);
    let store = chorias_bucket(&server).await;
    store.put("my_app", "go-1.example.net".into()).await.expect("a write");
    let url = format!("{}/{BUCKET}", server.url());
    let shared = format!("{url}?with-choria");
    for (flags, warns) in [
        (&[][..], true),
        (&["--with-choria"], false),
        (&["--lock", &*url], true),
        (&["--lock", &*shared], false),
    ] {
        let log = shell.home().join("log");
        let mut command = shell.command(&[&["campaign", "my_app", "-v"], flags].concat());
        command.stderr(std::fs::File::create(&log).expect("a file"));
        let mut candidate = shell.start_command(command);
        candidate.line_with("leader: go-1.example.net");
        candidate.end_by("TERM");
        let log = std::fs::read_to_string(log).expect("text");
        assert_eq!(log.contains("set with_choria()"), warns, "{flags:?}: {log}");
    }
    let both = ["campaign", "my_app", "--lock", &shared, "--with-choria"];
    shell.refuses(&both, "write ?with-choria behind the bucket", 2);
    let placed = ["campaign", "my-app", "--lock", "sqlite:a.db", "--with-choria"];
    shell.refuses(&placed, "--with-choria has no effect", 2);
}
