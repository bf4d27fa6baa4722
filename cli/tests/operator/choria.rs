//! Elections shared with Choria's candidates.

use async_nats::jetstream;
use incumbent_test_support::{Server, jetstream_on};

use crate::doctor::{doctor, expect_line};
use crate::shell::{BUCKET, Shell};

/// A bucket with the settings of a Choria broker.
async fn chorias_bucket(server: &Server) -> jetstream::kv::Store {
    let context = jetstream_on(server.connect().await);
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
async fn doctor_detects_chorias_candidates() {
    let (server, shell) = Shell::serving().await;
    let store = chorias_bucket(&server).await;
    let report = doctor(&shell, &[], 1);
    expect_line(
        &report,
        "warning  choria ",
        "Choria created the bucket: if Choria's candidates take part",
    );
    store.put("my_app", "go-1.example.net".into()).await.expect("a write");
    let report = doctor(&shell, &[], 1);
    let found = expect_line(
        &report,
        "warning  choria ",
        "the entry of \"my_app\" has no mark of this library",
    );
    assert!(found.contains("--with-choria") && found.contains("?with-choria"), "{found}");

    let report = doctor(&shell, &["--with-choria"], 1);
    expect_line(&report, "ok       choria ", "as configured with --with-choria or in the URL");
    let shared = format!("{}/{BUCKET}?with-choria", server.url());
    let report = doctor(&shell, &["--lock", &shared], 1);
    expect_line(&report, "ok       choria ", "as configured with --with-choria or in the URL");
    shell.expect_refusal(
        &["doctor", "--lock", &shared, "--with-choria"],
        "--with-choria requires --lock nats",
        2,
    );
}

/// Without `with_choria`, the library warns of an entry without a mark.
#[tokio::test]
async fn candidate_with_choria_does_not_warn_of_its_entries() {
    let (server, shell) = Shell::serving().await;
    let store = chorias_bucket(&server).await;
    let url = format!("{}/{BUCKET}", server.url());
    let shared = format!("{url}?with-choria");
    for (flags, warns) in [
        (&[][..], true),
        (&["--with-choria"], false),
        (&["--lock", &*url], true),
        (&["--lock", &*shared], false),
    ] {
        // It expires after a minute.
        store.put("my_app", "go-1.example.net".into()).await.expect("a write");
        let log = shell.home().join("log");
        let mut command = shell.command(&[&["campaign", "my_app", "-v"], flags].concat());
        command.stderr(std::fs::File::create(&log).expect("a file"));
        let mut candidate = shell.start_command(command);
        candidate.line_with("leader: go-1.example.net");
        candidate.end_with("TERM");
        let log = std::fs::read_to_string(log).expect("text");
        assert_eq!(log.contains("set with_choria()"), warns, "{flags:?}: {log}");
    }
    let both = ["campaign", "my_app", "--lock", &shared, "--with-choria"];
    shell.expect_refusal(&both, "write ?with-choria behind the bucket", 2);
    let placed = ["campaign", "my-app", "--lock", "sqlite:a.db", "--with-choria"];
    shell.expect_refusal(&placed, "--with-choria has no effect", 2);
}
