//! Under any messages of a lock and its peers, in any order: nothing panics, overflows or spins,
//! terms begin and end in turn, and no right to lead outlasts the lease of a write that was sent.

use std::time::Duration;

use bolero::TypeGenerator;
use incumbent::clock::Instant;
use incumbent::lock::{
    Capabilities, Content, Coverage, Entry, Hint, LockErrorKind, Mark, MoveInfo, Nonce, Reading,
    Record, Request, Revision, StepDownNotice, Token, Tombstone, WriteId,
};
use incumbent::protocol::{Action, Event, MIN_LEASE, Response};

use super::harness::{Harness, LEASE, ME, OTHER, capabilities, released, settings};

/// The number of scenarios in `cargo test`; `make fuzz` overrides it.
const FEW: usize = 3_000;

#[derive(Debug, Clone, TypeGenerator)]
enum Span {
    None,
    Millis(u16),
    Lease,
    Seconds(u32),
    Most,
}

impl Span {
    fn get(&self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Millis(millis) => Duration::from_millis(u64::from(*millis)),
            Self::Lease => LEASE,
            Self::Seconds(seconds) => Duration::from_secs(u64::from(*seconds)),
            Self::Most => Duration::MAX,
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
enum Number {
    Of(u64),
    Small(u8),
    Most,
    /// As far from the last one that the server stored.
    Near(i8),
}

impl Number {
    fn get(&self, harness: &Harness) -> u64 {
        match self {
            Self::Of(number) => *number,
            Self::Small(number) => u64::from(*number),
            Self::Most => u64::MAX,
            Self::Near(far) => {
                let last = harness.server.last.as_ref().map_or(0, |last| last.record.revision.0);
                last.saturating_add_signed(i64::from(*far))
            }
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
enum Holder {
    Me,
    Other,
    Any(u64),
}

impl Holder {
    fn nonce(&self) -> Nonce {
        match self {
            Self::Me => ME,
            Self::Other => OTHER,
            Self::Any(nonce) => Nonce(*nonce),
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
enum Said {
    Held { by: Holder, number: Number, lease: Span, token: Option<Number>, since: u64, life: Span },
    Foreign { life: Span },
    Released { by: Holder, left: Span },
    Expired,
    Deleted,
}

impl Said {
    fn get(&self, harness: &Harness) -> Content {
        match self {
            Self::Held { by, number, lease, token, since, life } => Content::Held(Entry {
                identity: "somebody".into(),
                mark: Some(Mark {
                    write: WriteId { nonce: by.nonce(), number: number.get(harness) },
                    lease: lease.get(),
                    token: token.as_ref().map(|token| Token(token.get(harness))),
                    since_unix_ms: *since,
                    moves: Box::new(MoveInfo::default()),
                }),
                ttl: life.get(),
                advertisement: None,
            }),
            Self::Foreign { life } => Content::Held(Entry {
                identity: "junk".into(),
                mark: None,
                ttl: life.get(),
                advertisement: None,
            }),
            Self::Released { by, left } => released(by.nonce(), left.get()),
            Self::Expired => Content::Vacant(Tombstone::Expired),
            Self::Deleted => Content::Vacant(Tombstone::Deleted),
        }
    }
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Wait(u16),
    WaitLong(u8),
    /// The server answers.
    Serve,
    /// Time passes, and the server answers.
    Goes(u16),
    GoesOn(u16),
    Lose,
    Fail(u8),
    /// Something else answers.
    Read(Number, Said),
    Empty(bool),
    Accept(Number),
    /// Another candidate writes.
    Stores(Said),
    /// A forged hint.
    Hint {
        revision: Number,
        said: Said,
        previous: Option<Option<Number>>,
        age: Option<Span>,
    },
    SteppedDown {
        by: Holder,
        token: Number,
        revision: Number,
        left: Span,
    },
    Look,
    Coverage(u8),
    Capabilities {
        longest: Span,
        reads: bool,
        proof: bool,
    },
    WorkEnded(bool),
    Ended(bool),
    Resign,
}

#[derive(Debug, Clone, TypeGenerator)]
enum Beginning {
    Fresh,
    Leading,
    StandingBy,
}

#[derive(Debug, Clone, TypeGenerator)]
struct Scenario {
    begins: Beginning,
    works_on: bool,
    with_choria: bool,
    #[generator(bolero::produce::<Vec<Step>>().with().len(0_usize..40))]
    steps: Vec<Step>,
}

fn take(harness: &mut Harness, step: &Step) {
    let held = harness.held.is_some();
    let forged = match (step, harness.held.as_ref().map(|(_, request)| request)) {
        (Step::Read(revision, said), Some(Request::Read { .. })) => {
            let revision = Revision(revision.get(harness));
            Some(Response::Read(Ok(Reading::Found(Record {
                revision,
                content: said.get(harness),
            }))))
        }
        (Step::Empty(proof), Some(Request::Read { .. })) => {
            Some(Response::Read(Ok(Reading::Empty { proof: *proof })))
        }
        (Step::Accept(revision), Some(Request::Write(_))) => {
            Some(Response::Written(Ok(Revision(revision.get(harness)))))
        }
        (Step::Accept(_), Some(Request::Release(_))) => Some(Response::Released(Ok(()))),
        _ => None,
    };
    match step {
        Step::Wait(millis) => harness.run(Duration::from_millis(u64::from(*millis))),
        Step::WaitLong(seconds) => harness.run(Duration::from_secs(u64::from(*seconds))),
        Step::Serve => harness.serve(),
        Step::Goes(millis) | Step::GoesOn(millis) => {
            harness.run(Duration::from_millis(u64::from(*millis)));
            harness.serve();
        }
        Step::Lose if held => harness.lose_the_reply(),
        Step::Fail(kind) if held => harness.fail(match kind % 5 {
            0 => LockErrorKind::Conflict,
            1 => LockErrorKind::OutcomeUnknown,
            2 => LockErrorKind::Denied,
            3 => LockErrorKind::Misconfigured,
            _ => LockErrorKind::Unavailable,
        }),
        Step::Read(..) | Step::Empty(_) | Step::Accept(_) => {
            if let Some(answer) = forged {
                harness.answer(answer);
            }
        }
        Step::Stores(said) => {
            let content = said.get(harness);
            harness.stores(content);
        }
        Step::Hint { revision, said, previous, age } => {
            let record =
                Record { revision: Revision(revision.get(harness)), content: said.get(harness) };
            let previous = previous.as_ref().map(|p| p.as_ref().map(|n| Revision(n.get(harness))));
            let age = age.as_ref().map(Span::get);
            harness.event(Event::Hint(Hint::Stored { record, previous, age }));
        }
        Step::SteppedDown { by, token, revision, left } => {
            let (token, revision) = (Token(token.get(harness)), Revision(revision.get(harness)));
            let said = StepDownNotice { by: by.nonce(), token, revision, left: left.get() };
            harness.event(Event::Hint(Hint::SteppedDown(said)));
        }
        Step::Look => harness.event(Event::Hint(Hint::Recheck)),
        Step::Coverage(coverage) => {
            harness.event(Event::Hint(Hint::Coverage(match coverage % 4 {
                0 => Coverage::None,
                1 => Coverage::Partial,
                2 => Coverage::Sampled,
                _ => Coverage::Full,
            })))
        }
        Step::Capabilities { longest, reads, proof } => {
            harness.event(Event::Capabilities(Capabilities {
                min_lease: MIN_LEASE,
                max_lease: longest.get(),
                can_read: *reads,
                empty_is_proof: *proof,
                ..capabilities()
            }));
        }
        Step::WorkEnded(panicked) => harness.event(Event::WorkEnded { panicked: *panicked }),
        Step::Ended(work_stopped) => {
            harness.event(Event::TermEnded { work_stopped: *work_stopped })
        }
        Step::Resign => harness.event(Event::Resign),
        Step::Lose | Step::Fail(_) => {}
    }
}

fn check(harness: &Harness) {
    let mut leads = false;
    let mut sent = None;
    for (at, action) in &harness.log {
        match action {
            Action::Begin { .. } | Action::End { .. } => {
                let begins = matches!(action, Action::Begin { .. });
                assert!(begins != leads, "{action:?} at {at:?}: {:?}", harness.log);
                leads = begins;
            }
            Action::Request { request: Request::Write(_), .. } => sent = Some(*at),
            _ => {}
        }
    }
    assert_eq!(harness.machine.deadline().is_some(), leads, "{:?}", harness.log);
    if let Some(deadline) = harness.machine.deadline() {
        let sent = sent.expect("who leads has written");
        let tenure = harness.machine.settings().timing.validity();
        assert!(Harness::time(deadline) <= sent + tenure, "{:?}", harness.log);
    }
}

#[test]
fn terms_alternate_within_their_lease_under_any_input() {
    bolero::check!().with_iterations(FEW).with_type::<Scenario>().for_each(|scenario| {
        let mut ours = settings();
        ours.with_choria = scenario.with_choria;
        let mut harness = match scenario.begins {
            Beginning::Fresh => Harness::started_with(ours, capabilities()),
            Beginning::Leading => Harness::leading(),
            Beginning::StandingBy => Harness::standby_with(ours, capabilities()),
        };
        harness.works_on = scenario.works_on;
        harness.holds = true;
        for step in &scenario.steps {
            take(&mut harness, step);
            check(&harness);
        }
        assert!(harness.local() < Instant::from_origin(Duration::MAX));
        harness.event(Event::Stop);
        harness.event(Event::TermEnded { work_stopped: true });
        harness.run(LEASE * 3);
        check(&harness);
        assert!(harness.is_finished(), "{:?}", harness.machine);
    });
}
