//! A client that writes through the proxy while leaders change.

use std::os::unix::process::ExitStatusExt;

use incumbent_test_support::{Port, PostgresServer, eventually};
use rustix::process::Signal;

use super::Proxy;
use super::worker::{Store, Writer, server};
use crate::env::{Candidate, TestEnv, incumbent, operator};

/// Candidates whose commands write to one store.
struct Fleet<'a> {
    lock: Vec<&'a str>,
    store: Store,
    ports: Vec<Port>,
}

impl Fleet<'_> {
    fn run(&mut self, identity: &str) -> Candidate {
        let port = Port::pick();
        let address = format!("127.0.0.1:{}", port.number());
        self.ports.push(port);
        let mut command = incumbent();
        command.args(["run", "my_app", "--identity", identity, "--advertise", &address]);
        command.args(&self.lock).args(["--", "sh", "-c", &server(&address, &self.store.address)]);
        Candidate::start(command)
    }

    /// Waits until a leader with a greater token has written.
    async fn wait_for_next_leader(&self, than: u64) -> u64 {
        eventually("the next leader writes", async || {
            self.store.tokens().last().copied().filter(|token| *token > than)
        })
        .await
    }

    /// A stop, a move and a kill in each round, each with another next leader.
    async fn check(mut self, rounds: usize) {
        let lock = self.lock.clone();
        let mut leader = self.run("c0");
        leader.wait_for_line("up").await;
        let proxy = Proxy::of_lock(&lock, &["--hold", "1m"]);
        let writer = Writer::start(&proxy.address);
        let mut token = self.wait_for_next_leader(0).await;
        for number in 0..rounds {
            for fault in ["stop", "move", "kill"] {
                let identity = format!("{fault}-{number}");
                let mut next = self.run(&identity);
                match fault {
                    "stop" => leader.signal(Signal::TERM),
                    "kill" => leader.signal(Signal::KILL),
                    _ => {
                        eventually("the leadership moves", async || {
                            let mut moves = operator();
                            moves.args(["election", "move", "my_app", "--to", &identity]);
                            moves.args(&lock);
                            let code = Candidate::start(moves).exit_code().await;
                            // It may have moved, and the command have given up before it knew.
                            let has_moved = self.store.tokens().last() > Some(&token);
                            (code == Some(0) || has_moved).then_some(())
                        })
                        .await;
                    }
                }
                next.wait_for_line("up").await;
                token = self.wait_for_next_leader(token).await;
                leader = next;
            }
        }
        let acknowledged = writer.stop();
        let written = self.store.tokens();
        assert!(acknowledged.is_sorted() && written.is_sorted(), "{acknowledged:?} {written:?}");
        assert_eq!(proxy.metric("incumbent_proxy_refused_total"), Some(0.0));
        println!("{} writes of {} leaders, in order", written.len(), 1 + 3 * rounds);
        proxy.program.signal(Signal::TERM);
        let Proxy { mut program, .. } = proxy;
        assert_eq!(program.exit().await.signal(), Some(15));
        let lines = program.stderr();
        for identity in ["c0", "stop-0", "move-0", "kill-0"] {
            assert!(lines.contains(&format!("{identity} leads with token ")), "{lines}");
        }
    }
}

async fn check_on_nats(rounds: usize) {
    let env = TestEnv::calm().await;
    let url = env.server.url();
    let lock = vec!["--server", &url];
    Fleet { lock, store: Store::start(), ports: Vec::new() }.check(rounds).await;
}

#[tokio::test]
async fn writes_follow_the_leader_through_a_stop_a_move_and_a_kill() {
    check_on_nats(1).await;
}

#[tokio::test]
#[ignore = "takes minutes"]
async fn writes_follow_the_leader_through_two_hundred_faults() {
    check_on_nats(67).await;
}

#[tokio::test]
async fn writes_follow_the_leader_on_postgres() {
    let server = PostgresServer::start(&[]).await;
    let url = server.url("postgres");
    let lock = vec!["--lock", &url];
    Fleet { lock, store: Store::start(), ports: Vec::new() }.check(1).await;
}
