//! A process of the running test program that does one ignored test, and takes its orders by lines.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::poll::eventually;

/// Begins each line that a worker says: others are those of the test harness.
const SAID: &str = "worker: ";

/// A worker process. Dropping it kills it, paused or not.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts the ignored test with this path, such as `late_writes::worker`, with an environment.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(test: &str, environment: &[(&str, String)]) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("a worker");
        let orders = child.stdin.take().expect("its input");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, orders, said }
    }

    /// Gives an order.
    ///
    /// # Panics
    ///
    /// If the worker has ended.
    pub async fn order(&mut self, line: &str) {
        self.orders.write_all(format!("{line}\n").as_bytes()).await.expect("a running worker");
    }

    /// Returns what it says next.
    ///
    /// # Panics
    ///
    /// If the worker has ended.
    pub async fn next(&mut self) -> String {
        loop {
            let line = self.said.next_line().await.expect("a line").expect("a running worker");
            // The harness writes the name of the test without ending the line.
            if let Some((_, said)) = line.split_once(SAID) {
                return said.to_owned();
            }
        }
    }

    /// Orders it to lead with this token, and returns once it is suspended: in every other round by
    /// itself, between its check and its write (`late`), else within `most` of its writes
    /// (`storm`).
    ///
    /// # Panics
    ///
    /// If it does not say that it leads.
    pub async fn lead_and_suspend(&mut self, token: u64, round: u64, most: Duration) {
        let late = round.is_multiple_of(2);
        self.order(&format!("{} {token}", if late { "late" } else { "storm" })).await;
        assert_eq!(self.next().await, "leads");
        if late {
            return self.stopped().await;
        }
        tokio::time::sleep(most.mul_f64(fastrand::f64())).await;
        self.pause().await;
    }

    /// Stops its process (SIGSTOP), and returns once it is stopped.
    pub async fn pause(&self) {
        self.signal(Signal::STOP);
        self.stopped().await;
    }

    /// Waits until its process is stopped, by itself or another.
    pub async fn stopped(&self) {
        let status = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        eventually("a stopped worker", async || {
            let text = std::fs::read_to_string(&status).expect("a worker that was not waited for");
            let (_, rest) = text.rsplit_once(") ").expect("a name in parentheses");
            rest.starts_with('T').then_some(())
        })
        .await;
    }

    /// Lets its process continue.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills its process, paused or not.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for its end, and returns whether it succeeded.
    pub async fn succeeds(mut self) -> bool {
        self.child.wait().await.is_ok_and(|status| status.success())
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child of our own");
    }

    fn pid(&self) -> Pid {
        let id = self.child.id().expect("a worker that was not waited for");
        Pid::from_raw(id.cast_signed()).expect("a process")
    }
}

/// In a worker: its orders.
pub fn worker_orders() -> Lines<BufReader<Stdin>> {
    BufReader::new(tokio::io::stdin()).lines()
}

/// In a worker: says a line.
pub fn worker_says(line: impl std::fmt::Display) {
    use std::io::Write;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{SAID}{line}").and_then(|()| output.flush()).expect("a test that reads");
}

/// In a worker: stops its own process (SIGSTOP) until the test resumes it.
pub fn worker_stops() {
    kill_process(getpid(), Signal::STOP).expect("ourselves");
}

/// How many rounds a test of late writes plays: `INCUMBENT_LATE_WRITES` for more than usual.
///
/// # Panics
///
/// If that is no number.
pub fn late_write_rounds(usual: u64) -> u64 {
    env::var("INCUMBENT_LATE_WRITES").map_or(usual, |text| text.parse().expect("a number"))
}
