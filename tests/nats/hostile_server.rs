//! Servers that speak NATS wrongly. How the client takes it is the client's own; a campaign neither
//! ends nor hangs by it.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::lock::Lock;
use incumbent::nats::{self, Bucket, BucketConfig, BucketErrorKind, NatsLock};
use incumbent::{Change, Election, new_election};
use incumbent_test_support::{Server, connected, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use crate::conformance::{change, leads, soon, working};
use crate::env::{BUCKET, TestEnv, opened};

const TTL: Duration = Duration::from_secs(2);

/// A proxy that sends messages to the client that the server has not sent.
struct Liar {
    address: SocketAddr,
    lies: broadcast::Sender<Vec<u8>>,
}

impl Liar {
    async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let lies = broadcast::Sender::new(8);
        let told = lies.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let heard = told.subscribe();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(server).await {
                        carry(client, server, heard).await;
                    }
                });
            }
        });
        Self { address, lies }
    }

    async fn client(&self) -> async_nats::Client {
        let options = || {
            async_nats::ConnectOptions::new()
                .reconnect_delay_callback(|_| Duration::from_millis(50))
                // A server that has fallen silent is given up after two of them.
                .ping_interval(Duration::from_millis(300))
        };
        connected(|| options().connect(format!("nats://{}", self.address))).await
    }
}

/// Until either side is gone, or a lie ends with the connection.
async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    mut lies: broadcast::Receiver<Vec<u8>>,
) {
    let (mut from_client, mut from_server) = ([0; 65_536], [0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(length) if length > 0 => {
                    if server.write_all(&from_client[..length]).await.is_err() { return }
                }
                _ => return,
            },
            read = server.read(&mut from_server) => match read {
                Ok(length) if length > 0 => {
                    if client.write_all(&from_server[..length]).await.is_err() { return }
                }
                _ => return,
            },
            lie = lies.recv() => match lie {
                Ok(lie) => if client.write_all(&lie).await.is_err() || lie.ends_with(b"...") { return },
                Err(_) => return,
            },
        }
    }
}

async fn lock_behind(liar: &Liar) -> NatsLock {
    opened(liar.client().await, BucketConfig::new(BUCKET)).await.lock()
}

async fn behind(liar: &Liar, name: &str) -> Election {
    working(new_election(name, lock_behind(liar).await)).start().unwrap()
}

/// Under any message to its client, a candidate keeps leading or leads again, and can be stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_nats_costs_a_connection_but_no_campaign() {
    let env = TestEnv::with_ttl(TTL).await;
    let long = [b"-ERR '".to_vec(), vec![b'x'; 1 << 20], b"'\r\n".to_vec()].concat();
    let lies: [&[u8]; 14] = [
        b"HELLO\r\n",
        b"\xff\xfe\r\n",
        b"INFO {\r\n",
        b"INFO {\"max_payload\":\"many\"}\r\n",
        b"INFO {\"server_id\":7,\"connect_urls\":[\"\",\"nats://\",\"[\"]}\r\n",
        b"MSG\r\n",
        b"MSG a 1 -5\r\n",
        b"MSG a 99999999999999999999 5\r\nhello\r\n",
        b"MSG a 1 5\r\nhel...",
        b"MSG a 1 4294967296\r\n",
        b"HMSG a 1 9 5\r\n",
        b"HMSG a 1 6 6\r\njunk\r\n\r\n",
        b"-ERR ''\r\n",
        &long,
    ];
    let cases = lies.iter().enumerate().map(|(number, lie)| {
        let env = &env;
        async move {
            let shown = String::from_utf8_lossy(&lie[..lie.len().min(40)]).into_owned();
            let liar = Liar::before(env.server.address()).await;
            let election = behind(&liar, &format!("e{number}")).await;
            let until = leads(&election).await.deadline();
            eventually("a connection", async || liar.lies.send(lie.to_vec()).ok()).await;
            eventually(&format!("{shown:?}: a renewal or a term after it"), async || {
                let leadership = leads(&election).await;
                (leadership.is_valid() && leadership.deadline() > until + TTL).then_some(())
            })
            .await;
            soon(&format!("{shown:?}: a stop"), election.stop()).await;
        }
    });
    futures_util::future::join_all(cases).await;
}

/// Two lies end the client's own task with a panic (of async-nats 0.51): it never responds again.
/// The campaign reports that, and neither leads nor hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_client_is_a_lock_failure_and_not_a_hang() {
    let env = TestEnv::with_ttl(TTL).await;
    for (name, lie) in
        [("length", &b"MSG a 1 18446744073709551615\r\n"[..]), ("error", b"-ERR\r\n")]
    {
        let liar = Liar::before(env.server.address()).await;
        let dead = lock_behind(&liar).await;
        let election = working(new_election(name, dead.clone())).start().unwrap();
        let leadership = leads(&election).await;
        // The first request to fail may have been sent before: it tells of no response.
        eventually(&format!("{name}: a dead client"), async || {
            let _ = liar.lies.send(lie.to_vec()); // an error: it connects just now
            let failure = dead.read(name, TTL).await.err()?;
            failure.to_string().contains("the connection broke").then_some(())
        })
        .await;
        soon("the end of the term", leadership.ended()).await;
        assert!(!election.is_leader());
        eventually("a failure", async || election.lock_failure()).await;
        drop(leadership);
        let lock = env.lock().await;
        let other = working(new_election(name, lock)).start().unwrap();
        drop(leads(&other).await);
        soon("a stop", election.stop()).await;
    }
}

/// Nothing but a greeting is expected, and none that is one comes: connecting fails, and does not
/// hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_greeting_refuses_the_connection() {
    let greetings: [&[u8]; 6] = [
        b"",
        b"\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"INFO {}",
        b"INFO []\r\n",
        b"INFO \xff\r\n",
    ];
    let cases = greetings.into_iter().map(|greeting| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.write_all(greeting).await;
                open.push(client);
            }
        });
        let connected = nats::connect(format!("nats://{address}"), Default::default());
        let refused = soon(&format!("{greeting:?}: an answer"), connected).await;
        assert!(refused.is_err(), "{greeting:?}");
        server.abort();
    });
    futures_util::future::join_all(cases).await;
}

/// Answers that are JSON, and not those of JetStream: each is refused, and a campaign continues
/// asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_the_wrong_kind_are_refused() {
    let server = Server::builder().without_jetstream().start().await;
    let liar = server.connect().await;
    let mut asked = liar.subscribe(">").await.unwrap();
    liar.flush().await.unwrap();
    let answers = [
        "",
        "null",
        "[]",
        "{}",
        r#"{"error":"no"}"#,
        r#"{"error":{"code":"x","err_code":-1}}"#,
        r#"{"config":null,"created":5}"#,
        r#"{"config":{"subjects":["$KV.B.>"],"max_age":-1},"created":"now"}"#,
        r#"{"config":{"subjects":["$KV.B.>"],"max_age":1e300},"created":"now"}"#,
        r#"{"config":{"subjects":["$KV.B.>"],"max_age":18446744073709551615},"created":"now"}"#,
        r#"{"config":{"subjects":"$KV.B.>","max_age":60000000000},"created":"now"}"#,
        r#"{"config":{"subjects":["$KV.B.>"],"max_age":60000000000,"max_msg_size":12},"created":"now"}"#,
    ];
    let answering = tokio::spawn(async move {
        let mut turn = answers.iter().cycle();
        while let Some(question) = asked.next().await {
            let Some(reply) = question.reply else { continue };
            liar.publish(reply, (*turn.next().unwrap()).into()).await.unwrap();
        }
    });
    for _ in answers {
        let opened = soon("an answer", Bucket::open(server.connect().await, "B")).await;
        let kind = opened.expect_err("no bucket").kind();
        assert!(
            matches!(kind, BucketErrorKind::Unavailable | BucketErrorKind::Unusable),
            "{kind:?}"
        );
    }
    let config = BucketConfig::new("B").ttl(TTL);
    let bucket = Bucket::deferred(server.connect().await, config).unwrap();
    let election = working(new_election("my_app", bucket.lock())).start().unwrap();
    let mut changes = election.changes();
    for _ in 0..3 {
        change(&mut changes, "a failure", |c| matches!(c, Change::LockFailing(_)).then_some(()))
            .await;
    }
    assert!(!election.is_leader());
    soon("a stop", election.stop()).await;
    answering.abort();
}
