//! The workers, and their reports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::soak::Plan;
use crate::terms::{Term, faults};
use crate::worker::Said;

/// What one worker, or all together, take up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub led: usize,
    pub tasks: usize,
    pub fds: usize,
    /// Allocated and not freed.
    pub heap_kib: u64,
    /// Resident.
    pub rss_kib: u64,
}

/// All reports.
#[derive(Debug, Default)]
pub struct Book {
    /// Of each election.
    terms: Vec<Vec<Term>>,
    pub losses: BTreeMap<String, u64>,
    costs: Vec<Cost>,
    /// Tasks and files of the workers that have ended.
    pub ended: Vec<(usize, usize)>,
    /// What does not fit together.
    pub odd: Vec<String>,
}

impl Book {
    fn take(&mut self, worker: usize, said: Said) {
        match said {
            Said::Won { election, token, at } => {
                self.terms[election].push(Term { token, began: at, ended: None });
            }
            Said::Lost { election, token, at, cause } => {
                *self.losses.entry(cause).or_default() += 1;
                let mut open = self.terms[election].iter_mut();
                match open.find(|term| term.token == token && term.ended.is_none()) {
                    Some(term) => term.ended = Some(at),
                    None => self.odd.push(format!("a loss without a win: {election}, {token}")),
                }
            }
            Said::State { led, tasks, fds, heap_kib, rss_kib } => {
                self.costs[worker] = Cost { led, tasks, fds, heap_kib, rss_kib };
            }
            Said::Ended { tasks, fds } => self.ended.push((tasks, fds)),
        }
    }

    pub fn terms(&self) -> usize {
        self.terms.iter().map(Vec::len).sum()
    }

    /// Elections with a leader.
    pub fn led(&self) -> usize {
        self.terms.iter().filter(|terms| terms.iter().any(|term| term.ended.is_none())).count()
    }

    pub fn faults(&self) -> Vec<String> {
        self.terms.iter().flat_map(|terms| faults(terms)).chain(self.odd.iter().cloned()).collect()
    }

    pub fn cost(&self) -> Cost {
        self.costs.iter().fold(Cost::default(), |sum, cost| Cost {
            led: sum.led + cost.led,
            tasks: sum.tasks + cost.tasks,
            fds: sum.fds + cost.fds,
            heap_kib: sum.heap_kib + cost.heap_kib,
            rss_kib: sum.rss_kib + cost.rss_kib,
        })
    }
}

pub struct Fleet {
    workers: Vec<(Child, Option<ChildStdin>)>,
    readers: Vec<JoinHandle<()>>,
    book: Arc<Mutex<Book>>,
}

impl Fleet {
    pub fn start(program: &Path, plan: &Plan, urls: &[String]) -> std::io::Result<Self> {
        let book = Book {
            terms: vec![Vec::new(); plan.elections],
            costs: vec![Cost::default(); plan.candidates],
            ..Book::default()
        };
        let book = Arc::new(Mutex::new(book));
        let (mut workers, mut readers) = (Vec::new(), Vec::new());
        for number in 0..plan.candidates {
            let mut child = Command::new(program)
                .arg("work")
                .args(["--urls", &urls.join(",")])
                .args(["--identity", &format!("worker-{number}")])
                .args(["--elections", &plan.elections.to_string()])
                .args(["--ttl", &plan.ttl.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            workers.push((child, stdin));
            let book = Arc::clone(&book);
            readers.push(tokio::spawn(async move {
                let Some(stdout) = stdout else { return };
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let said = serde_json::from_str(&line);
                    let mut book = lock(&book);
                    match said {
                        Ok(said) => book.take(number, said),
                        Err(_) => book.odd.push(format!("worker {number} says: {line}")),
                    }
                }
            }));
        }
        Ok(Self { workers, readers, book })
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Stops all of them in order, and waits until they have ended.
    pub async fn stop(&mut self) -> std::io::Result<()> {
        for (_, stdin) in &mut self.workers {
            *stdin = None;
        }
        for (child, _) in &mut self.workers {
            let status = child.wait().await?;
            if !status.success() {
                lock(&self.book).odd.push(format!("a worker ended with {status}"));
            }
        }
        for reader in &mut self.readers {
            // A reader that panicked has left its mark in what it did not take down.
            let _ = reader.await;
        }
        Ok(())
    }
}

fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
