//! The log of the work of candidates, by this machine's clock.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::Leadership;
use tokio::io::{BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;

/// A moment at which a candidate was at work, in nanoseconds of this machine's clock.
pub struct Tick {
    pub at: u64,
    pub who: String,
    pub term: u64,
}

pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// A runtime that ends at once, from wherever it is dropped: so a candidate in it crashes.
pub struct Own(Option<Runtime>);

impl Own {
    pub fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Self(Some(builder.worker_threads(1).enable_all().build().unwrap()))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        start: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.0.as_ref().expect("it has not crashed").spawn(start).await.unwrap()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Ticks until it must stop, while its term is valid.
pub async fn work(leadership: Leadership, who: String, tell: UnboundedSender<Tick>) {
    let term = leadership.token().0;
    loop {
        tokio::select! {
            _ = leadership.ended() => return,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
        let at = now();
        if leadership.is_valid() {
            let _ = tell.send(Tick { at, who: who.clone(), term });
        }
    }
}

/// Passes on the ticks of a candidate of client-go.
pub async fn listen(
    mut lines: Lines<BufReader<ChildStdout>>,
    who: String,
    tell: UnboundedSender<Tick>,
) {
    let mut term = 0;
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "won" {
            term += 1;
        } else if let Some(at) = line.strip_prefix("tick ") {
            let _ = tell.send(Tick { at: at.parse().unwrap(), who: who.clone(), term });
        }
    }
}

/// The terms in which these were at work, by candidate and term. Panics if one was at work within
/// another's term.
pub fn terms<'a>(ticks: impl IntoIterator<Item = &'a Tick>) -> HashSet<(&'a str, u64)> {
    let mut ticks: Vec<&Tick> = ticks.into_iter().collect();
    ticks.sort_by_key(|tick| tick.at);
    let (mut over, mut working, mut overlaps) = (HashSet::new(), None, Vec::new());
    for tick in ticks {
        let key = (&*tick.who, tick.term);
        if working == Some(key) {
            continue;
        }
        if over.contains(&key) && overlaps.len() < 4 {
            overlaps.push((tick.at, key, working));
        }
        over.extend(working.replace(key));
    }
    assert!(overlaps.is_empty(), "two worked at once: {overlaps:?}");
    over.extend(working);
    over
}
