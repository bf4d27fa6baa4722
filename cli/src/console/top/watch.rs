//! The loop of the view: keys, observations, what it asks of the lock and of a recording, frames.

use std::pin::pin;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
#[cfg(unix)]
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::frame;
use super::state::{Action, Done, Recorded, Request, State};
use super::terminal::{self, FullScreen};
use crate::console::history::Recording;
use crate::console::model::{Answer, Command, Moment, Source, execute, forward};
use crate::error::{CliError, Code};
use crate::lock::elections::Elections;
use crate::process::BackgroundTask;
#[cfg(unix)]
use crate::process::signals::SignalStreams;

/// How often the view is drawn while nothing happens but time.
const FRAME: Duration = Duration::from_millis(250);
/// How many observations wait for the view.
const WAITING: usize = 256;
/// How long the view may take to end after a signal.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Shows the view until a key or a signal ends it.
pub async fn run<'a>(
    elections: &'a Elections,
    recording: Option<&'a Recording>,
    source: Source<'a>,
    mut state: State,
    has_colors: bool,
) -> Result<(), CliError> {
    let mut signals = Signals::listen()?;
    let _guard = BackgroundTask(tokio::spawn(end_if_stuck(Signals::listen()?)));
    let mut screen = FullScreen::enter()?;
    // The variable alone would decide otherwise, without the flag.
    crossterm::style::force_color_output(has_colors);
    let theme = frame::Theme { has_colors };
    let (sender, mut observed) = mpsc::channel(WAITING);
    let mut watching = pin!(forward(source, sender));
    let mut events = EventStream::new();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut tasks = FuturesUnordered::new();
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Received::End(number) => return Err(CliError::Signal(number)),
                #[cfg(unix)]
                Received::Stop => screen.suspend()?,
                #[cfg(unix)]
                Received::Continue => screen.resume()?,
            },
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match state.on_key(key) {
                        Some(Action::Quit) => return Ok(()),
                        Some(Action::Suspend) => screen.suspend()?,
                        Some(Action::Redraw) => screen.clear()?,
                        Some(Action::Request(request)) => {
                            tasks.push(start(elections, recording, request));
                        }
                        None => {}
                    }
                }
                Some(Ok(Event::Paste(text))) => state.on_paste(&text),
                Some(Ok(_)) => {} // a resize, among others
                Some(Err(_)) | None => return Err(lost_terminal()),
            },
            Some(observation) = observed.recv() => {
                let mut is_change = state.on_observation(observation, Moment::now());
                // One frame for all that happened at once, as when a server starts again.
                while let Ok(more) = observed.try_recv() {
                    is_change |= state.on_observation(more, Moment::now());
                }
                if let Some(request) = state.due_roll_call() {
                    tasks.push(start(elections, recording, request));
                }
                if !is_change {
                    continue; // the next frame shows it
                }
            }
            () = &mut watching => return Err(lost_terminal()), // never: this side is open
            Some(done) = tasks.next(), if !tasks.is_empty() => state.on_done(done, Moment::now()),
            _ = frames.tick() => state.on_time(Moment::now()),
        }
        if let Some(request) = state.due_recorded(Moment::now()) {
            tasks.push(start(elections, recording, request));
        }
        if !screen.is_active() {
            return Err(CliError::Silent(Code::Failed)); // a panic was reported
        }
        let size = screen.terminal.size()?;
        frame::fit(&mut state, size.width, size.height);
        let now = Moment::now();
        screen.terminal.draw(|frame| frame::draw(&state, now, theme, frame.buffer_mut()))?;
    }
}

/// Ends the process in time, although the view waits for a terminal that takes no output, such as
/// that of a connection that hangs.
async fn end_if_stuck(mut signals: Signals) {
    loop {
        match signals.next().await {
            Received::End(signal) => {
                sleep(END_WITHIN).await;
                terminal::end_stuck(signal);
            }
            #[cfg(unix)]
            Received::Stop | Received::Continue => {}
        }
    }
}

fn lost_terminal() -> CliError {
    CliError::new(Code::Failed, "top: the terminal is gone")
}

enum Received {
    End(i32),
    #[cfg(unix)]
    Stop,
    #[cfg(unix)]
    Continue,
}

/// The signals that concern the terminal.
#[cfg(unix)]
struct Signals(SignalStreams);

#[cfg(unix)]
impl Signals {
    fn listen() -> Result<Self, CliError> {
        let ends = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
        let others = [Signal::TSTP, Signal::CONT];
        Ok(Self(SignalStreams::listen(&[&ends[..], &others].concat())?))
    }

    /// Cancel safe.
    async fn next(&mut self) -> Received {
        match self.0.next().await {
            Signal::TSTP => Received::Stop,
            Signal::CONT => Received::Continue,
            end => Received::End(end.as_raw()),
        }
    }
}

/// Those that end the view: a console has no others.
#[cfg(windows)]
struct Signals(crate::process::signals::StopSignals);

#[cfg(windows)]
impl Signals {
    fn listen() -> Result<Self, CliError> {
        Ok(Self(crate::process::signals::StopSignals::listen()?))
    }

    /// Cancel safe.
    async fn next(&mut self) -> Received {
        Received::End(self.0.next().await)
    }
}

/// How many recorded transitions are shown at most.
const TRANSITIONS: u32 = 100;

/// Carries out a request.
fn start<'a>(
    elections: &'a Elections,
    recording: Option<&'a Recording>,
    request: Request,
) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        match request {
            Request::Ask(election, asked) => {
                let is_roll_call = matches!(asked, Command::CallRoll);
                match execute(elections, &election, asked).await {
                    Ok(Answer::Roll(roll)) => Done::Roll { election, answers: Ok(roll) },
                    Err(failure) if is_roll_call => Done::Roll { election, answers: Err(failure) },
                    Ok(Answer::Done(line)) => Done::Change(Ok(line)),
                    Err(failure) => Done::Change(Err(failure)),
                }
            }
            Request::ReadRecording(election) => {
                let answer = match recording {
                    Some(recording) => read_apart(recording.clone(), election.clone()).await,
                    None => Ok(None),
                };
                Done::Recorded { election, answer }
            }
        }
    })
}

/// Reads beside the view: a long history takes some time to compute.
async fn read_apart(recording: Recording, election: String) -> Result<Option<Recorded>, CliError> {
    let mut task = JoinSet::new(); // ends the task with the view
    task.spawn(async move { read(&recording, &election).await });
    match task.join_next().await {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => Err(CliError::new(Code::Failed, error.to_string())),
        None => Ok(None),
    }
}

async fn read(recording: &Recording, election: &str) -> Result<Option<Recorded>, CliError> {
    let Some(history) = recording.history(election, None).await? else { return Ok(None) };
    let transitions = recording.transitions(election, TRANSITIONS).await?;
    let runs = recording.runs(election, None).await?.summary();
    Ok(Some(Recorded { statistics: history.statistics(), transitions, runs }))
}
