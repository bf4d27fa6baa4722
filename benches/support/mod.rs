//! Candidates that can stop and crash: ours, each on a runtime of its own in this process, and
//! other programs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use incumbent::{Election, ElectionBuilder};
use tokio::runtime::{Builder, Runtime};

/// Longer than any takeover should take.
const TIMEOUT: Duration = Duration::from_secs(90);

pub struct Candidate {
    program: Program,
    wins: Receiver<Instant>,
}

enum Program {
    Ours(Runtime, Election),
    Other(Child),
}

/// How a leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Release,
    /// Of ours: its runtime is gone. Of another program: SIGKILL.
    Crash,
}

impl Candidate {
    /// One of this library, with connections that are made on its own runtime.
    pub fn ours(builder: impl AsyncFnOnce() -> ElectionBuilder) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (won, wins) = channel();
        let election = runtime.block_on(async { working(builder().await, won).start() });
        Self { program: Program::Ours(runtime, election.expect("a start")), wins }
    }

    /// A program that prints `won` when it leads. `said` gets the other lines.
    pub fn other(command: &mut Command, said: impl Fn(&str) + Send + 'static) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("another candidate");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (won, wins) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line != "won" {
                    said(&line);
                } else if won.send(Instant::now()).is_err() {
                    return;
                }
            }
        });
        Self { program: Program::Other(child), wins }
    }

    /// When it won.
    pub fn won(&self) -> Instant {
        self.wins.recv_timeout(TIMEOUT).expect("a win in time")
    }

    pub fn end(self, end: End) {
        match (self.program, end) {
            (Program::Ours(runtime, election), End::Release) => {
                runtime.block_on(election.stop());
                runtime.shutdown_background();
            }
            (Program::Ours(runtime, _election), End::Crash) => runtime.shutdown_background(),
            (Program::Other(mut child), End::Release) => {
                let id = child.id().to_string();
                Command::new("kill").arg(id).status().expect("kill");
                child.wait().expect("an end");
            }
            (Program::Other(mut child), End::Crash) => {
                child.kill().expect("SIGKILL");
                child.wait().expect("an end");
            }
        }
    }
}

fn working(builder: ElectionBuilder, won: Sender<Instant>) -> ElectionBuilder {
    builder.on_won(move |leadership| {
        let _ = won.send(Instant::now());
        async move {
            leadership.ended().await;
        }
    })
}

/// How long after `end` of the first, which is of some `age` then, the second leads.
pub fn takeover(start: impl Fn(&str) -> Candidate, age: Duration, end: End) -> Duration {
    let first = start("first");
    first.won();
    let second = start("second");
    thread::sleep(age);
    let began = Instant::now();
    first.end(end);
    let took = second.won().saturating_duration_since(began);
    second.end(End::Release);
    took
}

/// Starts a leader and `standbys` standbys, and returns the rate of `count` per second over `span`,
/// after `settle`.
pub fn load(
    start: impl Fn(&str) -> Candidate,
    standbys: usize,
    settle: Duration,
    span: Duration,
    count: impl Fn() -> f64,
) -> f64 {
    let leader = start("leader");
    leader.won();
    let standbys: Vec<_> = (0..standbys).map(|i| start(&format!("standby-{i}"))).collect();
    thread::sleep(settle);
    let (before, began) = (count(), Instant::now());
    thread::sleep(span);
    let rate = (count() - before) / began.elapsed().as_secs_f64();
    standbys.into_iter().for_each(|standby| standby.end(End::Crash));
    leader.end(End::Release);
    rate
}

/// Prints the least, the median and the most.
pub fn show(what: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let [min, median, max] = [0, took.len() / 2, took.len() - 1].map(|i| took[i]);
    println!("{what}: {min:.3?} / {median:.3?} / {max:.3?}");
}
