//! A program that uses the library, and crashes on request: this test program itself.

use std::env;
use std::io::{Write, stdin};
use std::path::Path;
use std::process::{abort, exit};

use futures_util::future::join_all;
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::sentinel::{
    ENVIRONMENT, SentinelMessage, SentinelReply, VERSION, connect, encode, read_message, start_time,
};
use incumbent_test_support::{client_options, connected};
use tokio::io::{AsyncWriteExt, BufReader};

use crate::env::{BUCKET, answered};
use crate::setup::LONG_LEASE;

const SERVER: &str = "INCUMBENT_TEST_SERVER";
const WORKER: &str = "INCUMBENT_TEST_WORKER";
const ELECTIONS: &str = "INCUMBENT_TEST_ELECTIONS";

/// The arguments of the program, which campaigns in this many elections: `my_app` if it is one.
pub fn program(server: &str, elections: usize) -> Vec<String> {
    let ourselves = env::current_exe().expect("a program").display().to_string();
    let words = ["env", &format!("{SERVER}={server}"), &format!("{ELECTIONS}={elections}")];
    let test = [&ourselves, "--exact", "program::program_of_other_tests", "--nocapture"];
    words.into_iter().chain(test).map(str::to_owned).collect()
}

/// The arguments of a program that registers a term, and ends.
pub fn worker() -> Vec<String> {
    let ourselves = env::current_exe().expect("a program").display().to_string();
    let words = ["env", &format!("{WORKER}=1"), &ourselves, "--exact"];
    words.iter().chain(&["program::worker_of_other_tests"]).map(|&word| word.to_owned()).collect()
}

#[tokio::test]
async fn worker_of_other_tests() {
    let Ok(_) = env::var(WORKER) else { return };
    let address = env::var(ENVIRONMENT).expect("an address");
    let mut stream = BufReader::new(connect(Path::new(&address)).await.expect("it listens"));
    let started = start_time(None).expect("a time");
    let hello = SentinelMessage::Hello { version: VERSION, started };
    let began = SentinelMessage::Began {
        election: format!("of-{started}").into(),
        nonce: format!("{:016x}", std::process::id()),
        token: 1,
        create: 1,
    };
    stream.write_all(&[encode(&hello), encode(&began)].concat()).await.expect("it reads");
    let reply: SentinelReply = read_message(&mut stream, &mut Vec::new()).await.expect("a reply");
    assert_eq!(reply, SentinelReply::Watching { version: VERSION });
    abort();
}

/// Prints `won` when it leads all its elections, and then does what a line of its input says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_of_other_tests() {
    let Ok(server) = env::var(SERVER) else { return };
    let elections: usize = env::var(ELECTIONS).expect("a number").parse().expect("a number");
    let client = connected(|| client_options().connect(&*server)).await;
    let config = BucketConfig::new(BUCKET).ttl(LONG_LEASE);
    let bucket = answered(|| Bucket::create_or_open(client.clone(), config.clone())).await;
    let lock = bucket.lock();
    let started = (0..elections).map(|number| {
        let name = if elections == 1 { "my_app".to_owned() } else { format!("my_app-{number}") };
        incumbent::new_election(name, lock.clone()).identity("first").start().expect("a start")
    });
    let started: Vec<_> = started.collect();
    println!("\nstarted");
    let _terms = join_all(started.iter().map(|election| election.won())).await;
    println!("won");
    std::io::stdout().flush().expect("it is read");
    let order = tokio::task::spawn_blocking(|| stdin().lines().next()).await.expect("a thread");
    match &*order.expect("a line").expect("text") {
        "abort" => abort(),
        "exit" => exit(3),
        other => panic!("unknown: {other}"),
    }
}

/// A shell command line with `ulimit -c 0`: a crash leaves no core file.
pub fn without_core(script: &str) -> String {
    format!("ulimit -c 0; {script}")
}
