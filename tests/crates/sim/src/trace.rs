//! The trace of a run, in words for people.

use incumbent::lock::{Content, Entry, Hint, Reading, Record, Request, Revision, Tombstone};
use incumbent::protocol::{Action, LockFailure, Response};

use crate::process::Drifting;

pub fn request(request: &Request) -> String {
    match request {
        Request::Read { .. } => "read".to_owned(),
        Request::Write(write) => {
            let what = if write.mark.token.is_none() { "create" } else { "renewal" };
            let number = write.mark.write.number;
            format!("{what} (write {number}) over {}, life {:?}", over(write.expected), write.ttl)
        }
        Request::Release(release) => {
            format!("release of {}, {:?} left", release.expected, release.left)
        }
        Request::NotifyStepDown(said) => {
            format!(
                "notice of term {}, last write {}, {:?} left",
                said.token, said.revision, said.left
            )
        }
    }
}

fn over(revision: Option<Revision>) -> String {
    revision.map_or_else(|| "nothing".to_owned(), |revision| revision.to_string())
}

fn failure(failure: &LockFailure) -> String {
    format!("{:?} ({})", failure.kind, failure.message)
}

pub fn answer(answer: &Response) -> String {
    match answer {
        Response::Read(Ok(Reading::Found(found))) => format!("finds {}", record(found)),
        Response::Read(Ok(Reading::Empty { proof: true })) => {
            "finds nothing, and no write for a lease".to_owned()
        }
        Response::Read(Ok(Reading::Empty { proof: false })) => "finds nothing".to_owned(),
        Response::Written(Ok(revision)) => format!("is stored as {revision}"),
        Response::Released(Ok(())) => "is released".to_owned(),
        Response::Notified(Ok(())) => "is passed on".to_owned(),
        Response::Read(Err(f))
        | Response::Written(Err(f))
        | Response::Released(Err(f))
        | Response::Notified(Err(f)) => format!("fails: {}", failure(f)),
    }
}

fn record(Record { revision, content }: &Record) -> String {
    match content {
        Content::Held(Entry { identity, mark: Some(mark), ttl: life, .. }) => {
            let number = mark.write.number;
            format!("{revision} of {identity} (write {number}, life {life:?})")
        }
        Content::Held(Entry { identity, .. }) => format!("{revision} of {identity}"),
        Content::Vacant(Tombstone::Released { left, .. }) => {
            format!("{revision}, released with {left:?} left")
        }
        Content::Vacant(Tombstone::Expired) => format!("{revision}, expired"),
        Content::Vacant(Tombstone::Deleted) => format!("{revision}, deleted"),
    }
}

pub fn hint(hint: &Hint) -> String {
    match hint {
        Hint::Stored { record: stored, previous, .. } => {
            let previous = previous.map_or_else(String::new, |p| format!(", over {}", over(p)));
            format!("of {}{previous}", record(stored))
        }
        Hint::SteppedDown(said) => {
            format!("that term {} is conceded, {:?} left", said.token, said.left)
        }
        Hint::Recheck => "that something may have changed".to_owned(),
        Hint::Coverage(coverage) => format!("that hints are {coverage:?}"),
        Hint::RollCall(_) => "a roll call".to_owned(),
    }
}

/// In the world's time, which is not what its `clock` shows.
pub fn action(action: &Action, clock: Drifting) -> String {
    let seconds = |instant| format!("{:.6}", clock.real(instant).as_secs_f64());
    match action {
        Action::Request { id, request: asked } => format!("-> #{id} {}", request(asked)),
        Action::Begin { token, deadline } => {
            format!("LEADS with token {token}, until {}", seconds(*deadline))
        }
        Action::Extend { deadline } => format!("leads until {}", seconds(*deadline)),
        Action::End { cause, by } => {
            format!("must stop by {}: {} ({cause})", seconds(*by), cause.as_str())
        }
        Action::Leader(Some(leader)) => format!("sees {} leading", leader.identity),
        Action::Leader(None) => "sees no leader".to_owned(),
        Action::LockFailing(why) => format!("lock failing: {}", failure(why)),
        other => format!("{other:?}").to_lowercase(),
    }
}
