//! In one election with the candidates of vimeo/leaderelection.
//!
//! Where their module is not available these tests print that, and pass.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use incumbent::Election;
use incumbent_test_support::object_stores::BUCKET;
use incumbent_test_support::{eventually, go_program, not_run};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::conformance::{Process, Service, becomes_true, is_renewed, leads, sees, soon};
use crate::env::{Fields, Gcs, LEASE, TestEnv, unix_ms};

struct Peer {
    process: Child,
    lines: mpsc::UnboundedReceiver<(Instant, String)>,
}

async fn program() -> Option<PathBuf> {
    let built = tokio::task::spawn_blocking(|| std::panic::catch_unwind(|| go_program("vimeo")));
    let built = built.await.expect("a thread").ok();
    if built.is_none() {
        not_run("elections beside vimeo/leaderelection", "its module cannot be built here");
    }
    built
}

impl Peer {
    fn start(program: &PathBuf, env: &TestEnv<Gcs>, identity: &str) -> Self {
        let mut process = Command::new(program)
            .env("STORAGE_EMULATOR_HOST", format!("127.0.0.1:{}", env.server.port()))
            .args(["-bucket", BUCKET, "-object", env.path().as_ref(), "-identity", identity])
            .args(["-term", &format!("{}s", env.lease.as_secs())])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .expect("vimeo's candidate");
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let (tell, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = said.next_line().await {
                let _ = tell.send((Instant::now(), line));
            }
        });
        Self { process, lines }
    }

    async fn wait_for_line(&mut self, wanted: &str) -> Instant {
        soon(&format!("vimeo's candidate says {wanted:?}"), async {
            loop {
                let (at, line) = self.lines.recv().await.expect("it runs");
                if line == wanted {
                    return at;
                }
            }
        })
        .await
    }

    /// When it was last at work, according to its output so far.
    fn last_at_work(&mut self) -> Option<Instant> {
        let mut last = None;
        while let Ok((at, line)) = self.lines.try_recv() {
            if line == "tick" || line == "context" {
                last = Some(at);
            }
        }
        last
    }

    async fn signal(&self, signal: &str) {
        let id = self.process.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &*id]).status().await;
        assert!(sent.unwrap().success());
    }
}

/// Leadership moves from one to the other and back, by a crash and by a release, and at most one is
/// at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn leadership_moves_both_ways() {
    let Some(program) = program().await else { return };
    becomes_true("terms that last", async || moves_both_ways(&program).await).await;
}

/// False: a lease ran out, as it may on a busy machine.
async fn moves_both_ways(program: &PathBuf) -> bool {
    let env = Arc::new(TestEnv::<Gcs>::new(LEASE).await);
    let mut number = 0;
    let mut token = None;
    for turn in 0..2 {
        let mut go = Peer::start(program, &env, "go");
        go.wait_for_line("won").await;
        let ours = env.campaign("ours");
        sees(&ours, "go").await;
        let said = ours.leader().and_then(|leader| leader.advertisement).expect("an address");
        assert_eq!(said.address(), "10.0.0.9:1");
        go.process.kill().await.unwrap();
        let leadership = leads(&ours).await;
        assert!(Some(leadership.token()) > token);
        token = Some(leadership.token());
        let worked = go.last_at_work().expect("it was at work");
        assert!(worked.elapsed() >= LEASE, "turn {turn}: {:?}", worked.elapsed());

        let mut go = Peer::start(program, &env, "go-again");
        tokio::time::sleep(LEASE * 2).await;
        // No other leads while it is renewed.
        if !is_renewed(&leadership).await {
            return false;
        }
        drop(leadership);
        let released = Instant::now();
        ours.stop().await;
        let won = go.wait_for_line("won").await;
        assert!(won >= released);
        let entry = Fields::of(&env.object().await.unwrap());
        assert_eq!(entry.text(2).as_deref(), Some("go-again"));
        assert!(entry.number(1) > number, "the numbers continue");
        number = entry.number(1);
        drop(go);
        eventually("its term is over", async || {
            let entry = Fields::of(&env.object().await.unwrap());
            (entry.expiry_ms() <= unix_ms()).then_some(())
        })
        .await;
    }
    true
}

/// Where ours crashes, Go's candidate takes over when the time is over that ours has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_crash_of_ours_is_noticed_by_go_after_the_lease() {
    let Some(program) = program().await else { return };
    let env = Arc::new(TestEnv::<Gcs>::new(LEASE).await);
    let process = Process::start(&env, "ours").await;
    let leadership = leads(&process.election).await;
    let mut go = Peer::start(&program, &env, "go");
    tokio::time::sleep(LEASE).await;
    process.crash();
    let won = go.wait_for_line("won").await;
    assert!(
        won <= Instant::now() && !leadership.is_valid(),
        "ours is out of office by its own clock"
    );
}

/// A paused Go leader finds, when it wakes up, that it leads no more, and leaves ours alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_paused_go_leader_finds_its_successor() {
    let Some(program) = program().await else { return };
    becomes_true("a term that lasts", async || finds_its_successor(&program).await).await;
}

/// False: the lease of the successor ran out, as it may on a busy machine.
async fn finds_its_successor(program: &PathBuf) -> bool {
    let env = Arc::new(TestEnv::<Gcs>::new(LEASE).await);
    let mut go = Peer::start(program, &env, "go");
    go.wait_for_line("won").await;
    let ours = env.campaign("ours");
    sees(&ours, "go").await;
    go.signal("STOP").await;
    let leadership = leads(&ours).await;
    go.signal("CONT").await;
    go.wait_for_line("lost").await;
    is_renewed(&leadership).await
}

/// Two of each; all of one kind leave, by release or by crash, and come back, over and over: at no
/// time are two at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_mixed_fleet_has_one_leader() {
    let Some(program) = program().await else { return };
    let env = Arc::new(TestEnv::<Gcs>::new(Duration::from_secs(2)).await);
    let (told, mut tellings) = mpsc::unbounded_channel::<(Instant, Instant)>();
    let campaign = |name: &str| {
        let told = told.clone();
        let working = move |leadership: incumbent::Leadership| {
            let told = told.clone();
            async move {
                let began = Instant::now();
                leadership.ended().await;
                let _ = told.send((began, Instant::now()));
            }
        };
        env.describe(name).on_won(working).start().unwrap()
    };
    let holder = async |prefix: &str| {
        eventually(&format!("one of {prefix} leads"), async || {
            env.holder("my_app").await.filter(|holder| holder.starts_with(prefix))
        })
        .await;
    };
    let mut spans: Vec<(Instant, Instant, &str)> = Vec::new();
    for _ in 0..4 {
        let ours = ["ours-1", "ours-2"].map(campaign);
        holder("ours").await;
        let mut go = ["go-1", "go-2"].map(|name| Peer::start(&program, &env, name));
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            ours.iter().for_each(Election::resign);
        }
        for election in ours {
            election.stop().await;
        }
        holder("go").await;
        let ours = ["ours-3", "ours-4"].map(campaign);
        tokio::time::sleep(env.lease * 2).await;
        for peer in &mut go {
            peer.process.kill().await.unwrap();
        }
        holder("ours").await;
        for election in ours {
            election.stop().await;
        }
        for (peer, name) in go.iter_mut().zip(["go-1", "go-2"]) {
            collect(peer, name, &mut spans);
        }
    }
    let of_go = spans.len();
    while let Ok((began, ended)) = tellings.try_recv() {
        spans.push((began, ended, "ours"));
    }
    spans.sort();
    println!("{} terms of ours, {of_go} of Go's", spans.len() - of_go);
    assert!(of_go >= 4 && spans.len() >= of_go + 8, "both lead at times");
    // A line of Go's is read a little after it was written.
    let slack = Duration::from_millis(20);
    for two in spans.windows(2) {
        let [(_, ended, who), (began, _, next)] = two else { unreachable!() };
        assert!(*began + slack >= *ended, "{next} began {:?} before {who} ended", *ended - *began);
    }
}

/// The spans of time in which a peer was at work: ticks that follow each other closely.
fn collect<'a>(peer: &mut Peer, name: &'a str, spans: &mut Vec<(Instant, Instant, &'a str)>) {
    let mut span: Option<(Instant, Instant)> = None;
    while let Ok((at, line)) = peer.lines.try_recv() {
        match (&mut span, &*line) {
            (Some((_, last)), "tick" | "context") => *last = at,
            (None, "tick" | "context") => span = Some((at, at)),
            (_, "lost") => {
                if let Some((began, ended)) = span.take() {
                    spans.push((began, ended, name));
                }
            }
            _ => {}
        }
    }
    if let Some((began, ended)) = span {
        spans.push((began, ended, name));
    }
}
