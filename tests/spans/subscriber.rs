//! Subscribers that use the library themselves.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Leadership, new_election};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Registry;

/// What a [`Gated`] asks, and how often it has asked.
#[derive(Default)]
struct Gate {
    leadership: OnceLock<Leadership>,
    asked: AtomicU32,
}

/// Asks whether the term continues whenever one of its spans is cloned.
struct Gated {
    spans: Registry,
    gate: Arc<Gate>,
}

impl Subscriber for Gated {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.spans.enabled(metadata)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.spans.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.spans.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.spans.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.spans.event(event);
    }

    fn enter(&self, span: &Id) {
        self.spans.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.spans.exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        if self.gate.leadership.get().is_some_and(Leadership::is_valid) {
            self.gate.asked.fetch_add(1, Ordering::Relaxed);
        }
        self.spans.clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        self.spans.try_close(span)
    }
}

#[test]
fn a_subscriber_may_ask_the_holder_of_a_term_about_it() {
    let (sender, asked) = mpsc::channel();
    // On a thread that may block forever.
    std::thread::spawn(move || {
        let gate = Arc::new(Gate::default());
        let subscriber = Gated { spans: Registry::default(), gate: Arc::clone(&gate) };
        let _default = tracing::subscriber::set_default(subscriber);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let election = new_election("app", MemoryLock::new()).start().unwrap();
            let leadership = election.won().await.unwrap();
            assert!(gate.leadership.set(leadership).is_ok());
            gate.leadership.get().map(Leadership::span)
        });
        let _ = sender.send(gate.asked.load(Ordering::Relaxed));
    });
    let asked = asked.recv_timeout(Duration::from_secs(120)).expect("it does not block");
    assert!(asked > 0);
}
