//! Tests of the file: what is written is what is read.

use std::time::Duration;

use incumbent::Token;
use incumbent::lock::Revision;
use incumbent::schedule::RunState;
use time::OffsetDateTime;

use super::*;
use crate::console::history::spans::{Event, Period};
use crate::console::history::{KnownRun, RunLine};
use crate::console::model::Transition;
use crate::lock::elections::{ElectionState, Holder};

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_700_049_600 + seconds).expect("a time")
}

fn holder(leader: &str, token: Option<u64>) -> Holder {
    Holder { since: Some(at(-5).into()), ..Holder::new(leader, token.map(Token)) }
}

fn event(seconds: i64, revision: u64, now: ElectionState) -> Event {
    let transition = Transition {
        election: "e".to_owned(),
        time: at(seconds),
        revision: Revision(revision),
        before: Some(holder("before", Some(7))),
        now,
        found: false,
        leaderless: Some(Duration::from_millis(3)),
        unrenewed: None,
    };
    Event { transition, at: at(seconds), learned: at(seconds) }
}

fn held(leader: &str, token: u64) -> ElectionState {
    ElectionState::Held(holder(leader, Some(token)))
}

fn vacant(cause: &str) -> ElectionState {
    ElectionState::Vacant(cause.into())
}

fn seen(begin: i64, end: i64) -> Vec<ObservedPeriod> {
    vec![ObservedPeriod { id: None, period: Period { begin: at(begin), end: at(end) } }]
}

/// A new file of a lock that dates its writes.
async fn writer(path: &std::path::Path) -> Writer {
    let mut writer = Writer::open(path, &[], MIN_SIZE).await.expect("a file");
    writer.set_lock("a lock", true).await.expect("the first lock");
    writer
}

#[tokio::test]
async fn transitions_are_read_as_they_were_written() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut other = event(3, u64::MAX, vacant("handed_over"));
    other.transition.election = "größer \u{1b}[2J".to_owned();
    other.transition.time =
        OffsetDateTime::from_unix_timestamp_nanos(i64::MIN.into()).expect("a time");
    other.transition.unrenewed = Some(Duration::MAX);
    other.transition.before = None;
    other.transition.found = true;
    let events = [event(1, 1, held("one", u64::MAX)), event(2, 2, vacant("expired")), other];
    let mut writer = writer(&path).await;
    assert_eq!(writer.write(&events, &mut seen(0, 10)).await.expect("room"), 3);
    let recording = Recording::open(&path).await.expect("a recording");
    let mut read = recording.transitions("e", 10).await.expect("rows");
    let other = &events[2].transition.election;
    read.extend(recording.transitions(other, 10).await.expect("rows"));
    let json = |transition: &Transition| transition.json();
    let mut expected: Vec<_> = events.iter().map(|event| event.transition.json()).collect();
    expected[2]["unrenewed_ms"] = i64::MAX.into(); // as far as the file counts
    assert_eq!(read.iter().map(json).collect::<Vec<_>>(), expected);

    let of = async |election, limit| {
        let rows = recording.transitions(election, limit).await.expect("rows");
        rows.iter().map(|row| row.revision.0).collect::<Vec<_>>()
    };
    assert_eq!(of("e", 10).await, [1, 2]);
    assert_eq!(of("e", 1).await, [2], "the latest");
    assert_eq!(of("absent", 10).await, [0; 0]);
    assert!(recording.history("absent", None).await.expect("rows").is_none());
    let history = recording.history("e", Some(at(4))).await.expect("rows").expect("a history");
    let causes: Vec<_> = history.spans().map(|span| span.cause.clone()).collect();
    assert_eq!(causes, [Some("expired".to_owned())], "the state at that time");
}

#[tokio::test]
async fn what_is_found_again_is_not_doubled() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    // A lock on which nobody ends a term has the record of a leader that expired.
    let expired = |seconds, revision| {
        let mut expired = event(seconds, revision, vacant("expired"));
        expired.transition.before = Some(holder("one", Some(1)));
        expired
    };
    // It has renewed before.
    let term = [event(1, 1, held("one", 1)), expired(9, 5)];
    writer.write(&term, &mut seen(0, 10)).await.expect("room");
    let mut found = event(20, 5, held("one", 1));
    found.transition.found = true;
    let again = [found, expired(29, 5)];
    writer.write(&again, &mut seen(20, 30)).await.expect("room");
    let recording = Recording::open(&path).await.expect("a recording");
    assert_eq!(recording.transitions("e", 10).await.expect("rows").len(), 2);
    // The revisions of a lock that was deleted begin again.
    let anew = [event(40, 1, held("two", 1)), event(49, 1, vacant("expired"))];
    writer.write(&anew, &mut seen(35, 50)).await.expect("room");
    assert_eq!(recording.transitions("e", 10).await.expect("rows").len(), 4);
    writer.close().await.expect("an end");
}

#[tokio::test]
async fn full_file_loses_its_oldest_rows_and_says_so() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let mut quiet = event(0, 1, held("quiet", 1));
    quiet.transition.election = "quiet".to_owned();
    writer.write(&[quiet], &mut seen(0, 1)).await.expect("room");
    let mut observed = seen(2, 3);
    for number in 0..6000_u32 {
        let seconds = 10 * i64::from(number);
        observed[0].period.end = at(seconds);
        let event = event(seconds, number.into(), held("one", number.into()));
        writer.write(&[event], &mut observed).await.expect("room");
    }
    let size = std::fs::metadata(&path).expect("a file").len();
    assert!(size <= MIN_SIZE, "{size}");
    let recording = Recording::open(&path).await.expect("a recording");
    let left = recording.transitions("e", u32::MAX).await.expect("rows");
    assert_eq!(left.last().map(|last| last.revision.0), Some(5999));
    let history = recording.history("e", None).await.expect("rows").expect("a history");
    let first = left.first().expect("rows").time;
    let begin = history.begin().expect("a begin");
    assert!(begin >= first - Duration::from_secs(10), "{begin} {first}");
}

/// One that flaps does not erase the history of the others.
#[tokio::test]
async fn full_file_keeps_the_history_of_quiet_elections() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let quiet = |seconds, revision: u64| {
        let mut quiet = event(seconds, revision, held("quiet", revision));
        quiet.transition.election = "quiet".to_owned();
        quiet
    };
    writer.write(&[quiet(0, 1), quiet(1, 2), quiet(2, 3)], &mut seen(0, 3)).await.expect("room");
    let mut observed = seen(3, 3);
    for number in 10..6000_u32 {
        let seconds = i64::from(number);
        observed[0].period.end = at(seconds);
        let event = event(seconds, number.into(), held("one", number.into()));
        writer.write(&[event], &mut observed).await.expect("room");
    }
    for file in std::fs::read_dir(&place).expect("files").flatten() {
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
    let recording = Recording::open(&path).await.expect("a recording");
    let flapping = recording.history("e", None).await.expect("rows").expect("a history");
    assert!(flapping.begin().expect("a begin") > at(100), "its oldest rows were removed");
    let quiet = recording.history("quiet", None).await.expect("rows").expect("a history");
    assert_eq!(quiet.begin(), Some(at(0)));
    assert_eq!(quiet.statistics().led, Duration::from_secs(5999));
}

#[tokio::test]
async fn what_is_cut_off_is_unknown() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let leaders = [(1, "before"), (50, "two"), (100, "three"), (110, "four")];
    let mut events = Vec::new();
    for (number, (seconds, leader)) in leaders.into_iter().enumerate() {
        let token = number as u64 + 7;
        let mut event = event(seconds, token, held(leader, token));
        let before = number.checked_sub(1).and_then(|before| leaders.get(before));
        event.transition.before = before.map(|(_, name)| holder(name, Some(token - 1)));
        events.push(event);
    }
    writer.write(&events, &mut seen(0, 120)).await.expect("room");
    let recording = Recording::open(&path).await.expect("a recording");
    let read = async |limit| {
        let history = recording.history_of_rows("e", None, limit).await.expect("rows");
        history.expect("a history")
    };
    assert_eq!(read(2).await.begin(), Some(at(100)), "no term of before over the time cut off");
    assert_eq!(read(2).await.statistics().led, Duration::from_secs(20));
    assert_eq!(read(5).await.statistics().led, Duration::from_secs(119));
}

#[tokio::test]
async fn found_leader_is_stored_once_unless_it_is_another_one() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let found = |seconds, revision, leader, token| {
        let mut event = event(seconds, revision, held(leader, token));
        event.transition.found = true;
        event
    };
    let mut count = async |event: Event| {
        writer.write(&[event], &mut seen(0, 10)).await.expect("room");
        let recording = Recording::open(&path).await.expect("a recording");
        recording.transitions("e", 10).await.expect("rows").len()
    };
    assert_eq!(count(event(1, 1, held("one", 1))).await, 1);
    assert_eq!(count(found(10, 4, "one", 1)).await, 1, "it has renewed");
    assert_eq!(count(found(20, 4, "one", 3)).await, 2, "another term");
    assert_eq!(count(found(30, 4, "two", 3)).await, 3, "another lock, of the same revision");
    assert_eq!(count(event(40, 4, held("three", 3))).await, 4);
    assert_eq!(count(found(50, 1, "one", 1)).await, 5, "the first row is not the state");
}

#[tokio::test]
async fn time_is_known_once_its_transitions_are_written() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let event = |number: i64| event(number, number as u64, held("one", number as u64));
    let events: Vec<Event> = (1..=600).map(event).collect();
    let mut observed = seen(0, 700);
    let count = writer.write(&events, &mut observed).await.expect("room");
    assert!(count < events.len(), "several batches");
    let recording = Recording::open(&path).await.expect("a recording");
    let known = async || {
        let history = recording.history("e", None).await.expect("rows").expect("a history");
        history.statistics().known()
    };
    assert_eq!(known().await, Duration::ZERO, "the recorder may be killed here");
    let mut written = count;
    while written < events.len() {
        written += writer.write(&events[written..], &mut observed).await.expect("room");
    }
    assert_eq!(known().await, Duration::from_secs(700));
}

#[tokio::test]
async fn clock_that_was_ahead_leaves_the_rest_known() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let mut ahead = event(0, 1, held("ahead", 1));
    ahead.learned = OffsetDateTime::now_utc() + time::Duration::days(4000);
    writer.write(&[ahead], &mut seen(0, 1)).await.expect("room");
    let mut observed = seen(2, 3);
    for part in 0..60_u32 {
        let numbers = 100 * part + 2..100 * part + 102;
        observed[0].period.end = at(10 * i64::from(numbers.end));
        let event =
            |number: u32| event(10 * i64::from(number), number.into(), held("one", number.into()));
        let events: Vec<Event> = numbers.map(event).collect();
        let mut written = 0;
        while written < events.len() {
            written += writer.write(&events[written..], &mut observed).await.expect("room");
        }
    }
    let recording = Recording::open(&path).await.expect("a recording");
    let left = recording.transitions("e", u32::MAX).await.expect("rows");
    assert!(left.len() < 6000, "rows were removed");
    let history = recording.history("e", None).await.expect("rows").expect("a history");
    let known = history.statistics().known().as_secs();
    assert!(known + 20 >= 10 * left.len() as u64, "{known} {}", left.len());
}

#[tokio::test]
async fn file_that_is_too_small_is_no_full_disk() {
    let place = tempfile::tempdir().expect("a directory");
    let names: Vec<String> = (0..1000).map(|number| format!("{number:0400}")).collect();
    let writer = Writer::open(&place.path().join("rec"), &names, MIN_SIZE).await;
    let mut writer = writer.expect("a file");
    let failed = writer.write(&[event(1, 1, held("one", 1))], &mut seen(0, 1)).await;
    match failed {
        Err(WriteError::Lasting(failure)) => {
            assert!(failure.to_string().contains("--max-size is too small"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

fn run(number: u64, job: &str, state: RunState) -> ElectionRun {
    let run = KnownRun {
        number,
        job: job.to_owned(),
        slot: at(number.cast_signed()),
        token: Token(u64::MAX),
        state: Some(state),
        learned: at(number.cast_signed()),
        leader: None,
    };
    ElectionRun { election: "e".to_owned(), run }
}

fn ended(code: u8) -> RunState {
    RunState::Ended { code, took: Duration::from_millis(5) }
}

#[tokio::test]
async fn runs_are_read_as_they_were_learned_last() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let recording = Recording::open(&path).await.expect("a recording");
    let read = async |since| {
        let history = recording.runs("e", since).await.expect("rows");
        history.lines().to_vec()
    };
    assert_eq!(read(None).await, [], "a file without runs");
    let led = event(1, 1, held("one", u64::MAX));
    writer.write(&[led], &mut seen(0, 1)).await.expect("room");
    let cut = RunState::CutShort { took: None };
    let begun = [run(1, "a", RunState::Begun), run(2, "b", cut), run(3, "c", cut)];
    assert_eq!(writer.write_runs(&begun).await.expect("room"), 3);
    let mut later = [run(1, "a", ended(9)), run(2, "b", RunState::Begun), run(3, "c", cut)];
    later.iter_mut().for_each(|run| run.run.learned = at(50));
    writer.write_runs(&later).await.expect("room");
    // A read of a server that is behind.
    writer.write_runs(&begun[..1]).await.expect("room");
    later[2].run.learned = at(3);
    let expected =
        later.map(|run| RunLine::Run(KnownRun { leader: Some("one".to_owned()), ..run.run }));
    assert_eq!(read(None).await, expected);
    assert_eq!(read(Some(at(2))).await, expected[1..]);
}

/// Nor do they take the room of the transitions.
#[tokio::test]
async fn full_file_keeps_the_runs_of_rare_jobs() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let led = event(1, 1, held("one", u64::MAX));
    writer.write(&[led], &mut seen(0, 1)).await.expect("room");
    writer.write_runs(&[run(1, "nightly", ended(0))]).await.expect("room");
    for part in 0..60 {
        let runs: Vec<_> = (0..100).map(|n| run(part * 100 + n + 2, "often", ended(0))).collect();
        let mut written = 0;
        while written < runs.len() {
            written += writer.write_runs(&runs[written..]).await.expect("room");
        }
    }
    assert!(std::fs::metadata(&path).expect("a file").len() <= MIN_SIZE);
    let recording = Recording::open(&path).await.expect("a recording");
    let history = recording.runs("e", None).await.expect("rows");
    let statistics = history.statistics();
    assert_eq!(statistics["nightly"].succeeded, 1);
    let left = statistics["often"].succeeded;
    assert!((100..6000).contains(&left), "{left}");
    assert_eq!(history.lines()[1], RunLine::Unknown(Some(6000 - left)));
    assert_eq!(recording.transitions("e", 10).await.expect("rows").len(), 1);
}

/// Nor the room of the transitions of a recorder that cannot remove them.
#[tokio::test]
async fn runs_of_ever_new_jobs_leave_half_of_the_file() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let led = [event(1, 1, held("one", 1)), event(2, 2, held("two", 2))];
    writer.write(&led, &mut seen(0, 2)).await.expect("room");
    for number in 1..3000 {
        let job = format!("{number:040}");
        assert_eq!(writer.write_runs(&[run(number, &job, ended(0))]).await.expect("room"), 1);
    }
    writer.close().await.expect("an end");
    let size = std::fs::metadata(&path).expect("a file").len();
    assert!(size <= MIN_SIZE * 5 / 8, "{size}");
    let recording = Recording::open(&path).await.expect("a recording");
    assert_eq!(recording.transitions("e", 10).await.expect("rows").len(), 2);
    let runs = recording.runs("e", None).await.expect("rows");
    match runs.lines() {
        [first, .., RunLine::Run(last)] if last.number == 2999 => match first {
            RunLine::Run(first) => assert!(first.number < 2800, "{first:?}"),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Transitions and their last state are kept rather than runs.
#[tokio::test]
async fn runs_give_way_to_the_state_of_elections() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let first = |number: u64| {
        let mut event = event(1, 1, held("one", 1));
        event.transition.election = format!("{number:0100}");
        event
    };
    let mut observed = seen(0, 1);
    let mut written = 0;
    while written < 500 {
        let events: Vec<_> = (written..500).map(first).collect();
        written += writer.write(&events, &mut observed).await.expect("room") as u64;
    }
    for number in 1..400 {
        let job = format!("{number:0100}");
        assert_eq!(writer.write_runs(&[run(number, &job, ended(0))]).await.expect("room"), 1);
    }
    let recording = Recording::open(&path).await.expect("a recording");
    for number in 0..500 {
        let left = recording.transitions(&first(number).transition.election, 10).await;
        assert_eq!(left.expect("rows").len(), 1, "{number}");
    }
    let runs = recording.runs("e", None).await.expect("rows");
    assert!((1..399).contains(&runs.lines().len()), "{}", runs.lines().len());
}

/// The tokens of a lock that was deleted begin again.
#[tokio::test]
async fn run_is_of_the_leader_of_its_time() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let led = [(10, "one"), (20, "two"), (100, "three"), (200, "four")];
    let led =
        led.map(|(seconds, leader)| event(seconds, 1, held(leader, 1 + u64::from(seconds == 20))));
    writer.write(&led, &mut seen(0, 300)).await.expect("room");
    let learned =
        [(1, 1), (11, 1), (21, 2), (30, 1), (99, 1), (100, 1), (300, 1), (300, 2), (300, 3)];
    let runs = (1..).zip(learned).map(|(number, (seconds, token))| {
        let mut run = run(number, "a", ended(0));
        (run.run.learned, run.run.token) = (at(seconds), Token(token));
        run
    });
    writer.write_runs(&runs.collect::<Vec<_>>()).await.expect("room");
    let recording = Recording::open(&path).await.expect("a recording");
    let history = recording.runs("e", None).await.expect("rows");
    let leader = |line: &RunLine| match line {
        RunLine::Run(run) => run.leader.clone().unwrap_or_default(),
        RunLine::Unknown(_) => "unknown".to_owned(),
    };
    let leaders: Vec<_> = history.lines().iter().map(leader).collect();
    assert_eq!(leaders, ["one", "one", "two", "one", "one", "three", "four", "two", ""]);
}

#[tokio::test]
async fn run_that_was_removed_does_not_return() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("rec");
    let mut writer = writer(&path).await;
    let first: Vec<_> = (1..=4).map(|number| run(number, "a", RunState::Begun)).collect();
    writer.write_runs(&first[1..3]).await.expect("room");
    // A restarted recorder finds all that are in the checkpoint.
    writer.write_runs(&first).await.expect("room");
    writer.write_runs(&[run(2, "a", ended(5))]).await.expect("room");
    // The lock was deleted.
    let mut anew = run(1, "a", ended(0));
    (anew.run.token, anew.run.slot) = (Token(1), at(90));
    writer.write_runs(&[anew]).await.expect("room");
    let recording = Recording::open(&path).await.expect("a recording");
    let history = recording.runs("e", None).await.expect("rows");
    let line = |line: &RunLine| match line {
        RunLine::Run(run) => (run.number, run.end().1),
        RunLine::Unknown(count) => (count.unwrap_or(0), None),
    };
    let lines: Vec<_> = history.lines().iter().map(line).collect();
    assert_eq!(lines, [(2, Some(5)), (3, None), (4, None), (0, None), (1, Some(0))]);
}
