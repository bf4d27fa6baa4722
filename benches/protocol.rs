//! What the pure machine costs: a renewal (wake, request, answer), a hint received by a standby, a
//! vacancy taken over.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use incumbent::clock::Instant;
use incumbent::lock::{
    Capabilities, Content, Coverage, Entry, Hint, Mark, Nonce, Reading, Record, Request, Revision,
    Token, Tombstone, WriteId,
};
use incumbent::protocol::{
    Action, Elector, Event, MIN_LEASE, Response, Settings, Timing, TimingOptions,
};

const TTL: Duration = Duration::from_secs(5);

/// A campaign with a server that grants every write at once.
struct Lab {
    campaign: Elector,
    now: Instant,
    revision: u64,
}

impl Lab {
    fn new() -> Self {
        let lock = Capabilities {
            min_lease: MIN_LEASE,
            max_lease: TTL,
            can_read: true,
            empty_is_proof: true,
            expires_entries: true,
            reads_are_durable: true,
            max_identity_len: 100,
        };
        let timing = Timing::new(TimingOptions::default(), TTL).expect("valid timing");
        let mut lab = Self {
            campaign: Elector::new(Settings::new("bench", Nonce(1), timing), lock),
            now: Instant::from_origin(TTL),
            revision: 0,
        };
        lab.handle(Event::Start);
        lab.handle(Event::Hint(Hint::Coverage(Coverage::Full)));
        lab
    }

    fn handle(&mut self, event: Event) {
        self.campaign.handle(self.now, event);
        while let Some(action) = self.campaign.poll_action() {
            let Action::Request { id, request } = action else { continue };
            let answer = match request {
                Request::Read { .. } => Response::Read(Ok(Reading::Empty { proof: true })),
                Request::Write(_) => {
                    self.revision += 1;
                    Response::Written(Ok(Revision(self.revision)))
                }
                Request::Release(_) => Response::Released(Ok(())),
                Request::NotifyStepDown(_) => Response::Notified(Ok(())),
            };
            self.campaign.handle(self.now, Event::Response { id, response: answer });
        }
    }

    fn wake(&mut self) {
        if let Some(at) = self.campaign.next_wake() {
            self.now = self.now.max(at);
        }
        self.handle(Event::Wake);
    }

    fn receives(&mut self, content: Content) {
        let previous = Some(Some(Revision(self.revision)));
        self.revision += 1;
        let record = Record { revision: Revision(self.revision), content };
        let age = Some(Duration::ZERO);
        self.handle(Event::Hint(Hint::Stored { record, previous, age }));
    }
}

fn entry(number: u64) -> Content {
    Content::Held(Entry {
        identity: "other".into(),
        mark: Some(Mark::new(WriteId { nonce: Nonce(2), number }, TTL, Some(Token(1)))),
        ttl: TTL,
        advertisement: None,
    })
}

fn machine(c: &mut Criterion) {
    c.bench_function("renewal", |b| {
        let mut lab = Lab::new();
        lab.wake();
        lab.wake();
        assert!(lab.campaign.deadline().is_some(), "the campaign leads");
        b.iter(|| lab.wake());
        assert!(lab.campaign.deadline().is_some(), "the campaign still leads");
    });
    c.bench_function("renewal heard by a standby", |b| {
        let mut lab = Lab::new();
        let mut number = 0;
        b.iter(|| {
            number += 1;
            lab.receives(black_box(entry(number)));
        });
    });
    c.bench_function("takeover after a release", |b| {
        b.iter_batched(
            || {
                let mut lab = Lab::new();
                lab.receives(entry(1));
                lab
            },
            |mut lab| {
                let released = Tombstone::Released {
                    by: Nonce(2),
                    left: Duration::ZERO,
                    cause: None,
                    to: None,
                    pause: None,
                };
                lab.receives(Content::Vacant(released));
                lab.wake();
                assert!(lab.campaign.deadline().is_some(), "the campaign leads");
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, machine);
criterion_main!(benches);
