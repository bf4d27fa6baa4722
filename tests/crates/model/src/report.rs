//! Exploring, and telling what came of it.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::state::{Message, State};
use crate::transitions::{Move, Sights};
use crate::{Config, Election};

/// How far to go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// At most this many steps from the beginning.
    pub depth: Option<NonZeroUsize>,
    /// At most this long.
    pub time: Option<Duration>,
    /// On how many threads; 0 means one.
    pub threads: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Its [`Config::name`].
    pub name: &'static str,
    /// States generated.
    pub states: usize,
    /// Distinct states.
    pub unique: usize,
    /// The most steps from the beginning.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether every state within the bound on the depth was visited.
    pub complete: bool,
    /// That bound.
    pub bound: Option<NonZeroUsize>,
    /// What was seen on the way.
    pub sights: Arc<Sights>,
    /// The broken property, and the steps that break it.
    pub broken: Option<String>,
}

/// Explores all schedules of an election.
pub fn explore(config: Config, bounds: Bounds) -> Outcome {
    let name = config.name;
    let sights = Arc::new(Sights::default());
    let election = Election { config: Arc::new(config), sights: Arc::clone(&sights) };
    let mut builder =
        election.checker().threads(bounds.threads.max(1)).finish_when(HasDiscoveries::AnyFailures);
    if let Some(depth) = bounds.depth {
        builder = builder.target_max_depth(depth.get());
    }
    if let Some(time) = bounds.time {
        builder = builder.timeout(time);
    }
    let began = Instant::now();
    let checker = builder.spawn_bfs().join();
    let took = began.elapsed();
    let broken = checker.discoveries().into_iter().find_map(|(property, path)| {
        let failure = checker.discovery_classification(property).to_string() == "counterexample";
        failure.then(|| format!("broken: {property}\n{}", describe_path(checker.model(), path)))
    });
    Outcome {
        name,
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        complete: broken.is_none() && bounds.time.is_none_or(|time| took < time),
        bound: bounds.depth,
        sights,
        broken,
    }
}

/// The steps of a path, one a line.
fn describe_path(election: &Election, path: Path<State, Move>) -> String {
    let mut lines = Vec::new();
    for (state, step) in path.into_vec() {
        let Some(step) = step else { continue };
        let mut told = Some(Vec::new());
        let what = name(&state, step);
        let mut next = state.clone();
        next.make(step, &election.sights, &mut told);
        if step == Move::Tick {
            let at = next.now.as_secs_f64();
            lines.push(format!("--- tick {}, at {at:.3} s", next.tick));
            continue;
        }
        lines.push(format!("{:>4}  {what}", state.tick));
        let told = told.unwrap_or_default();
        lines.extend(told.into_iter().map(|line| format!("          -> {line}")));
        let leaders = next.processes.iter().filter(|process| process.leads(next.now));
        let leaders: Vec<_> = leaders.map(|process| format!("c{}", process.who)).collect();
        if leaders.len() > 1 {
            lines.push(format!("      {} lead", leaders.join(" and ")));
        }
    }
    lines.join("\n")
}

fn name(state: &State, step: Move) -> String {
    let message = |index: usize| {
        let flight = &state.flights[index];
        let who = format!("c{}.{}", flight.who, flight.life);
        match &flight.message {
            Message::Request { id, request } => format!("{who} -> lock: #{id} {request:?}"),
            Message::Reply { id, answer } => format!("{who} <- lock: #{id} {answer:?}"),
            Message::Hint(hint) => format!("{who} hears {hint:?}"),
            Message::OfSentinel { request, .. } => {
                format!("sentinel of {who} -> lock: {request:?}")
            }
            Message::ToSentinel { answer, .. } => format!("sentinel of {who} <- lock: {answer:?}"),
            Message::Checkpoint { token, request, .. } => {
                format!("{who}'s term {token} -> checkpoint: {request:?}")
            }
            Message::OfCheckpoint { token, response, .. } => {
                format!("{who}'s term {token} <- checkpoint: {response:?}")
            }
        }
    };
    match step {
        Move::Arrive(index) => message(index),
        Move::Disturb(fault, index) => format!("FAULT {fault:?}: {}", message(index)),
        Move::Strike(fault, who) => format!("FAULT {fault:?} c{who}"),
        Move::HandOver(who, to) => format!("c{who} hands over to c{to}"),
        Move::Remove(fault) => format!("FAULT {fault:?} of the entry"),
        Move::Start(who) => format!("c{who} starts"),
        Move::Wake(who) => format!("c{who} wakes"),
        Move::TimeOut(who) => format!("c{who}: its request times out"),
        Move::WorkStops(who) => format!("c{who}: its work stops"),
        Move::Resume(who) => format!("c{who} resumes"),
        Move::Register(who) => format!("c{who} registers {:?}", state.processes[who].releasable()),
        Move::Sentinel(run) => format!("sentinel of c{}: next step", state.runs[run].who),
        Move::SentinelTimeOut(run) => format!("sentinel of c{}: timeout", state.runs[run].who),
        Move::Save(index) => format!("c{}: its work saves", state.keepers[index].who),
        Move::CheckpointTimeOut(index) => {
            format!("c{}: its request to the checkpoint times out", state.keepers[index].who)
        }
        Move::Expire => "the lock expires what it holds".to_owned(),
        Move::Tick => "time passes".to_owned(),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, states, unique, depth, took, complete, bound, sights, broken } = self;
        let seen = |sight: &std::sync::atomic::AtomicU64| sight.load(Ordering::Relaxed);
        let creates: Vec<_> = sights.creates.iter().map(seen).collect();
        write!(
            f,
            "{name}: {states} states, {unique} unique, depth {depth}, {:.1} s, {}; {} terms; creates over nothing {}, \
             a release {}, an expiry {}, a delete {}; {} notices heard; {}",
            took.as_secs_f64(),
            match (complete, bound) {
                (false, _) => "cut short",
                (true, None) => "all there are",
                (true, Some(_)) => "all to that depth",
            },
            seen(&sights.terms),
            creates[0],
            creates[1],
            creates[2],
            creates[3],
            seen(&sights.notices),
            if broken.is_none() { "all properties hold" } else { "BROKEN" },
        )?;
        let [stored, refused] = sights.releases.each_ref().map(seen);
        if stored + refused > 0 {
            write!(f, "; sentinels: {stored} releases, {refused} refused")?;
        }
        let [claims, saves] = sights.kept.each_ref().map(seen);
        match claims {
            0 => Ok(()),
            _ => {
                let late = seen(&sights.late);
                write!(f, "; checkpoint: {claims} claims, {saves} saves, {late} late ones refused")
            }
        }
    }
}
