//! What a real driver fed the protocol, replayed: the same once more, and every alteration is
//! noticed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::clock::TokioClock;
use incumbent::history::{Replay, ReplayError};
use incumbent::lock::{Content, Hint, Lock, Record, Revision, Tombstone};
use incumbent::memory::MemoryLock;
use incumbent::{Change, Election, all_of, best_effort, new_election, required};
use serde_json::{Value, json};

const LEASE: Duration = Duration::from_secs(5);

/// The lines of a history.
type Lines = Arc<Mutex<Vec<String>>>;

struct Recorded {
    election: Election,
    lines: Lines,
}

fn start(identity: &str, lock: impl Lock, clock: TokioClock) -> Recorded {
    let lines = Lines::default();
    let sink = Arc::clone(&lines);
    let election = new_election("e", lock)
        .identity(identity)
        .lease(LEASE)
        .clock(clock)
        .on_won(|leadership| async move {
            leadership.ended().await;
        })
        .record_history(move |line| sink.lock().unwrap().push(line.to_owned()))
        .start()
        .unwrap();
    Recorded { election, lines }
}

impl Recorded {
    /// Stops it, and returns its history.
    async fn end(self) -> Vec<String> {
        self.election.stop().await;
        self.lines.lock().unwrap().clone()
    }
}

/// VimeoTiming that end in many ways, the last one by an outage in which the standby polls.
async fn scenario(
    clock: TokioClock,
    locks: &[MemoryLock],
    lock: impl Fn() -> Arc<dyn Lock>,
) -> [Vec<String>; 2] {
    let (a, b) = (start("a", lock(), clock), start("b", lock(), clock));
    for fault in 0..=4 {
        let leader = tokio::select! {
            won = a.election.won() => won.map(|_| &a.election).unwrap(),
            won = b.election.won() => won.map(|_| &b.election).unwrap(),
        };
        let mut changes = leader.changes();
        tokio::time::sleep(LEASE).await; // in virtual time
        match fault {
            0 => leader.resign(),
            1 => assert!(locks[0].evict("e")),
            2 => drop(locks[0].overwrite("e", "someone")),
            3 => locks.iter().for_each(|lock| lock.set_reachable(false)),
            _ => break,
        }
        while !matches!(changes.next().await, Some(Change::Lost { .. })) {}
        tokio::time::sleep(LEASE * 3).await;
        locks.iter().for_each(|lock| lock.set_reachable(true));
    }
    [a.end().await, b.end().await]
}

async fn on_one_lock() -> [Vec<String>; 2] {
    let clock = TokioClock::new();
    let lock = MemoryLock::with_clock(LEASE, clock);
    scenario(clock, std::slice::from_ref(&lock), || Arc::new(lock.clone())).await
}

/// The first line that is noticed, and why.
fn replay(lines: &[String]) -> Result<(), (usize, ReplayError)> {
    let mut replay = Replay::new(&lines[0]).map_err(|error| (0, error))?;
    for (number, line) in lines.iter().enumerate().skip(1) {
        replay.step(line).map_err(|error| (number, error))?;
    }
    Ok(())
}

fn assert_replays(histories: &[Vec<String>], words: &[&str]) {
    for history in histories {
        replay(history).unwrap();
    }
    let all = histories.concat().concat();
    for word in ["Begin", "Extend", "End", "Finished"].iter().chain(words) {
        assert!(all.contains(&format!("\"{word}\"")), "no {word} in {histories:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_is_replayed() {
    assert_replays(&on_one_lock().await, &["SteppedDown", "LockFailing", "LockRecovered"]);
}

/// On a required lock and one of best effort.
async fn on_two_locks() -> [Vec<String>; 2] {
    let clock = TokioClock::new();
    let locks = [(); 2].map(|()| MemoryLock::with_clock(LEASE, clock));
    let both = || all_of([required(locks[0].clone()), best_effort(locks[1].clone())]);
    scenario(clock, &locks, || Arc::new(both())).await
}

#[tokio::test(start_paused = true)]
async fn a_history_on_two_locks_is_replayed() {
    assert_replays(&on_two_locks().await, &["polls"]);
}

/// Changes the value at `pointer`, if it is there and `change` knows how.
fn alter(line: &mut Value, pointer: &str, change: impl FnOnce(&Value) -> Option<Value>) -> bool {
    let Some(place) = line.pointer_mut(pointer) else { return false };
    let changed = change(place).map(|changed| *place = changed);
    changed.is_some()
}

/// Alters each line that `change` can alter, one at a time. Each of at least `least` alterations
/// must be noticed.
fn assert_noticed(histories: &[Vec<String>], least: u32, change: impl Fn(&mut Value) -> bool) {
    let (mut unnoticed, mut noticed) = (Vec::new(), 0);
    for history in histories {
        for (number, line) in history.iter().enumerate() {
            let mut value = serde_json::from_str(line).unwrap();
            if !change(&mut value) {
                continue;
            }
            let mut lines = history.clone();
            lines[number] = value.to_string();
            match replay(&lines) {
                Ok(()) => unnoticed.push(line.clone()),
                Err((at, _)) => {
                    assert!(at >= number);
                    noticed += 1;
                }
            }
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
    assert!(noticed >= least, "{noticed} alterations");
}

#[tokio::test(start_paused = true)]
async fn an_altered_instant_is_noticed() {
    let histories = on_one_lock().await;
    // Before what the protocol waited for. A timer of tokio is late by a millisecond at most.
    assert_noticed(&histories, 20, |line| {
        let acts = line["out"]["actions"].as_array().is_some_and(|actions| !actions.is_empty());
        if line["in"]["event"] != "Wake" || !acts {
            return false;
        }
        alter(line, "/in/at/nanos", |nanos| Some(json!(nanos.as_u64()?.checked_sub(1_000_000)?)))
    });
}

#[tokio::test(start_paused = true)]
async fn an_altered_answer_is_noticed() {
    let histories = on_one_lock().await;
    let written = "/in/event/Response/response/Written";
    assert_noticed(&histories, 10, |line| {
        alter(line, written, |answer| answer["Ok"].as_u64().map(|_| json!({ "Ok": 1_000_000 })))
    });
    assert_noticed(&histories, 10, |line| {
        let failure = json!({ "Err": { "kind": "Unknown", "message": "no answer" } });
        alter(line, written, |answer| answer["Ok"].as_u64().map(|_| failure))
    });
}

#[tokio::test(start_paused = true)]
async fn an_invalid_driver_is_noticed() {
    let [history, _] = on_one_lock().await;
    let error = |pointer: &str, change: &dyn Fn(&Value) -> Option<Value>| {
        let (number, altered) = history
            .iter()
            .enumerate()
            .skip(2)
            .find_map(|(number, line)| {
                let mut line = serde_json::from_str(line).unwrap();
                alter(&mut line, pointer, change).then(|| (number, line.to_string()))
            })
            .unwrap();
        let (at, error) = replay(&[&history[..number], &[altered]].concat()).unwrap_err();
        assert_eq!(at, number);
        error
    };
    let other_request = error("/in/event/Response/id", &|id| Some(json!(id.as_u64()? + 1)));
    assert!(matches!(other_request, ReplayError::NotInFlight { .. }), "{other_request}");
    let before = error("/in/at/secs", &|secs| Some(json!(secs.as_u64()? - 1)));
    assert!(matches!(before, ReplayError::TimeRunsBack { .. }), "{before}");
}

#[tokio::test(start_paused = true)]
async fn another_draw_is_noticed() {
    let histories = on_two_locks().await;
    assert_noticed(&histories, 2, |line| {
        alter(line, "/locks/0/settings/seed", |seed| seed.as_u64().map(|_| json!(7)))
    });
    assert_noticed(&histories, 1, |line| {
        alter(line, "/in/polls/0/random_bits", |bits| Some(json!(bits.as_u64()? ^ 1)))
    });
}

#[test]
fn the_replaced_revision_of_a_hint_round_trips() {
    let record = Record { revision: Revision(3), content: Content::Vacant(Tombstone::Deleted) };
    for previous in [None, Some(None), Some(Some(Revision(2)))] {
        let hint = Hint::Stored { record: record.clone(), previous, age: None };
        let text = serde_json::to_string(&hint).unwrap();
        assert_eq!(serde_json::from_str::<Hint>(&text).unwrap(), hint, "{text}");
    }
}
