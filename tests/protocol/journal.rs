//! What a machine took in and returned, line by line, in plain words.

use incumbent::clock::Instant;
use incumbent::lock::{
    Content, Coverage, Entry, Hint, LockErrorKind, Mark, Nonce, Pause, Reading, Record, Release,
    Request, Revision, StepDownNotice, Tombstone, Write,
};
use incumbent::protocol::{Action, Event, LockFailure, Response};
use incumbent_sim::Time;

use super::harness::{Harness, ME, OTHER, WALL_MS};

/// Where the actions of a line begin.
const ACTIONS_AT: usize = 52;
const MAX_WIDTH: usize = 118;
/// The most lines that one pattern has.
const MAX_PATTERN: usize = 6;

#[derive(Default)]
pub struct Journal {
    lines: Vec<Line>,
    wake: Option<Instant>,
}

struct Line {
    at: Time,
    event: String,
    actions: Vec<String>,
}

impl Journal {
    pub fn add_event(&mut self, at: Time, event: &Event) {
        self.lines.push(Line { at, event: event_text(event), actions: Vec::new() });
    }

    pub fn add_action(&mut self, action: &Action) {
        if let Some(line) = self.lines.last_mut() {
            line.actions.push(action_text(action));
        }
    }

    /// When the machine wants to be woken after the last event: noted if it has changed.
    pub fn set_wake(&mut self, wake: Option<Instant>) {
        if let (Some(line), true) = (self.lines.last_mut(), wake != self.wake) {
            line.actions.push(match wake {
                Some(at) => format!("wake at {}", time(at)),
                None => "no wake".to_owned(),
            });
        }
        self.wake = wake;
    }

    /// All lines. What repeats itself but for its numbers is written once.
    pub fn text(&self) -> String {
        let patterns: Vec<String> = self.lines.iter().map(Line::pattern).collect();
        let mut text = String::new();
        let mut at = 0;
        while at < self.lines.len() {
            let repeats = |length: usize| {
                let block = &patterns[at..(at + length).min(patterns.len())];
                patterns[at..].chunks_exact(length).take_while(|chunk| *chunk == block).count()
            };
            let length = (1..=MAX_PATTERN).find(|length| repeats(*length) > 2).unwrap_or(1);
            let times = repeats(length).max(1);
            let printed = if times > 2 { length } else { 1 };
            self.lines[at..at + printed].iter().for_each(|line| text += &line.text());
            at += printed;
            if times > 2 {
                at += length * (times - 1);
                let until = seconds(self.lines[at - 1].at);
                text += &format!("{:>10}  the same {} times more, until {until}\n", "…", times - 1);
            }
        }
        text
    }
}

impl Line {
    fn pattern(&self) -> String {
        let text = format!("{}: {}", self.event, self.actions.join("; "));
        text.split(|c: char| c.is_ascii_digit() || c == '.')
            .filter(|part| !part.is_empty())
            .collect()
    }

    fn text(&self) -> String {
        let mut line = format!("{:>10}  {}", seconds(self.at), self.event);
        let mut text = String::new();
        for (index, action) in self.actions.iter().enumerate() {
            if index == 0 {
                line = format!("{line:<ACTIONS_AT$} -> {action}");
            } else if line.len() + action.len() + 2 <= MAX_WIDTH {
                line += &format!("; {action}");
            } else {
                text += &format!("{line};\n");
                line = format!("{:ACTIONS_AT$}    {action}", "");
            }
        }
        text + line.trim_end() + "\n"
    }
}

fn seconds(time: Time) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// Without trailing zeros.
fn span(time: Time) -> String {
    seconds(time).trim_end_matches(" s").trim_end_matches('0').trim_end_matches('.').to_owned()
        + " s"
}

fn time(at: Instant) -> String {
    seconds(Harness::time(at))
}

fn name(nonce: Nonce) -> String {
    match nonce {
        ME => "me".to_owned(),
        OTHER => "other".to_owned(),
        Nonce(number) => format!("candidate {number}"),
    }
}

fn over(expected: Option<Revision>) -> String {
    expected.map_or_else(|| "nothing".to_owned(), |revision| format!("r{revision}"))
}

fn event_text(event: &Event) -> String {
    match event {
        Event::Start => "start".to_owned(),
        Event::Wake => "wake".to_owned(),
        Event::Hint(hint) => format!("hint: {}", hint_text(hint)),
        Event::Response { id, response } => format!("response {id}: {}", response_text(response)),
        Event::TermEnded { work_stopped: true } => "the work has stopped".to_owned(),
        Event::TermEnded { work_stopped: false } => "the work does not stop".to_owned(),
        Event::WorkEnded { panicked: false } => "the work has ended by itself".to_owned(),
        Event::WorkEnded { panicked: true } => "the work has panicked".to_owned(),
        Event::Resign => "resign".to_owned(),
        Event::HandOver { to, .. } => format!("hand over to {}", name(*to)),
        Event::Readiness(readiness) => format!("standing: {}", readiness.as_str()),
        Event::Stop => "stop".to_owned(),
        Event::Capabilities(_) => "other capabilities".to_owned(),
        Event::Advertise(advertisement) => format!("advertise {}", advertisement.address()),
        Event::Pause(pause) => format!("an order{}", pause_text(Some(*pause))),
        other => format!("{other:?}"),
    }
}

fn hint_text(hint: &Hint) -> String {
    match hint {
        Hint::Stored { record, previous: None, .. } => record_text(record),
        Hint::Stored { record, previous: Some(previous), .. } => {
            format!("{} over {}", record_text(record), over(*previous))
        }
        Hint::SteppedDown(notice) => notice_text(notice),
        Hint::Recheck => "recheck".to_owned(),
        Hint::RollCall(_) => "a roll call".to_owned(),
        Hint::Coverage(Coverage::None) => "no hints come".to_owned(),
        Hint::Coverage(Coverage::Sampled) => "a few hints come".to_owned(),
        Hint::Coverage(Coverage::Partial) => "some hints come".to_owned(),
        Hint::Coverage(Coverage::Full) => "all hints come".to_owned(),
    }
}

fn notice_text(notice: &StepDownNotice) -> String {
    let StepDownNotice { by, token, revision, left } = notice;
    format!("{} stepped down at r{revision} of term {token}{}", name(*by), left_text(*left))
}

fn left_text(left: Time) -> String {
    if left.is_zero() { String::new() } else { format!(", {} left", span(left)) }
}

/// Whom the holder hands over to.
fn to_text(to: Option<Nonce>) -> String {
    to.map(|to| format!(", to {}", name(to))).unwrap_or_default()
}

/// Until when the election is paused, by the wall clock since the scenario began.
fn pause_text(pause: Option<Pause>) -> String {
    let until = |pause: Pause| pause.until_unix_ms.saturating_sub(WALL_MS) / 1000;
    pause.map(|pause| format!(", paused until {} s", until(pause))).unwrap_or_default()
}

fn record_text(Record { revision, content }: &Record) -> String {
    let content = match content {
        Content::Held(Entry { identity, mark: Some(mark), ttl, .. }) => {
            let Mark { lease, token, moves, .. } = mark;
            let term = token.map_or_else(|| "new term".to_owned(), |token| format!("term {token}"));
            let ttl = if ttl == lease { String::new() } else { format!(", kept {}", span(*ttl)) };
            let pause = pause_text(moves.pause);
            format!("entry of {identity}, {term}, {}{ttl}{pause}", span(*lease))
        }
        Content::Held(Entry { identity, mark: None, .. }) => {
            format!("entry of {identity}, no mark")
        }
        Content::Vacant(Tombstone::Released { by, left, to, pause, .. }) => {
            let (to, pause) = (to_text(*to), pause_text(*pause));
            format!("released by {}{}{to}{pause}", name(*by), left_text(*left))
        }
        Content::Vacant(Tombstone::Expired) => "expired".to_owned(),
        Content::Vacant(Tombstone::Deleted) => "deleted".to_owned(),
    };
    format!("r{revision} {content}")
}

fn response_text(response: &Response) -> String {
    match response {
        Response::Read(Ok(Reading::Found(record))) => record_text(record),
        Response::Read(Ok(Reading::Empty { proof: true })) => "empty, which is proof".to_owned(),
        Response::Read(Ok(Reading::Empty { proof: false })) => "empty".to_owned(),
        Response::Written(Ok(revision)) => format!("stored as r{revision}"),
        Response::Released(Ok(())) => "released".to_owned(),
        Response::Notified(Ok(())) => "sent".to_owned(),
        Response::Read(Err(failure))
        | Response::Written(Err(failure))
        | Response::Released(Err(failure))
        | Response::Notified(Err(failure)) => failure_text(failure).to_owned(),
    }
}

fn failure_text(failure: &LockFailure) -> &'static str {
    match failure.kind {
        LockErrorKind::Conflict => "refused, a conflict",
        LockErrorKind::OutcomeUnknown => "outcome unknown",
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::Denied => "denied",
        LockErrorKind::Misconfigured => "misconfigured",
        _ => "failed",
    }
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Request { id, request } => format!("request {id}: {}", request_text(request)),
        Action::Begin { token, deadline } => format!("LEAD term {token} until {}", time(*deadline)),
        Action::Extend { deadline } => format!("lead until {}", time(*deadline)),
        Action::End { cause, by } => format!("STOP the work by {}: {}", time(*by), cause.as_str()),
        Action::Leader(None) => "leader: none".to_owned(),
        Action::Leader(Some(leader)) if leader.is_me => "leader: itself".to_owned(),
        Action::Leader(Some(leader)) => format!("leader: {}", leader.identity),
        Action::LockFailing(failure) => format!("lock failing: {}", failure_text(failure)),
        Action::LockRecovered => "lock recovered".to_owned(),
        Action::Finished => "finished".to_owned(),
        other => format!("{other:?}"),
    }
}

fn request_text(request: &Request) -> String {
    match request {
        Request::Read { .. } => "read".to_owned(),
        Request::Write(Write { expected, mark, ttl, advertisement, .. }) => {
            let verb = if mark.token.is_some() { "renew" } else { "create" };
            let at =
                advertisement.as_ref().map_or(String::new(), |a| format!(", at {}", a.address()));
            let pause = pause_text(mark.moves.pause);
            format!("{verb} over {} for {}{at}{pause}", over(*expected), span(*ttl))
        }
        Request::Release(Release { expected, left, cause, to, pause, .. }) => {
            let (to, pause) = (to_text(*to), pause_text(*pause));
            format!("release r{expected}, {cause}{}{to}{pause}", left_text(*left))
        }
        Request::NotifyStepDown(notice) => format!("notify: {}", notice_text(notice)),
    }
}
