//! What OpenTelemetry receives of the terms of an election, through `tracing`.

mod subscriber;

use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::{Change, Changes, Election, Leadership, new_election};
use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Registry};

/// Longer than a busy machine stands still.
const LEASE: Duration = Duration::from_secs(15);

/// What was exported: spans that have ended, of all tasks of the test, which run on its thread.
struct Exported {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _default: DefaultGuard,
}

impl Exported {
    fn new(filter: &str) -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = Registry::default().with(EnvFilter::new(filter)).with(layer);
        let _default = tracing::subscriber::set_default(subscriber);
        Self { exporter, _provider: provider, _default }
    }

    fn spans(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().expect("the spans")
    }

    fn named(&self, name: &str) -> Vec<SpanData> {
        self.spans().into_iter().filter(|span| span.name == name).collect()
    }

    fn term(&self) -> SpanData {
        let [term] = <[_; 1]>::try_from(self.named("term")).expect("one term");
        term
    }

    /// Of another task, which is about to end it.
    async fn until_named(&self, name: &str) -> SpanData {
        let wait = async {
            loop {
                if let Some(span) = self.named(name).pop() {
                    return span;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), wait).await.expect("the span ends")
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    attribute.map(|attribute| attribute.value.to_string())
}

async fn lost(changes: &mut Changes<Change>) {
    while !matches!(changes.next().await, Some(Change::Lost { .. })) {}
}

/// Does a step of work in a span of its own.
async fn step(leadership: Leadership) {
    let work = async { async {}.instrument(info_span!("step")).await };
    leadership.run(work).await.expect("the term continues");
}

#[tokio::test]
async fn each_term_is_a_span_that_ends_with_its_cause() {
    let exported = Exported::new("info");
    let lock = MemoryLock::with_ttl(LEASE);
    let election = new_election("app", lock.clone()).identity("c1").start().unwrap();
    let mut changes = election.changes();

    let leadership = election.won().await.unwrap();
    let first = leadership.token();
    assert!(exported.spans().is_empty(), "the term continues");
    lock.evict("app");
    leadership.ended().await;
    drop(leadership);
    lost(&mut changes).await;
    let term = exported.term();
    assert_eq!(term.parent_span_id, SpanId::INVALID, "a trace of its own");
    for (name, value) in
        [("election", "app"), ("identity", "c1"), ("cause", "evicted"), ("after", "deleted")]
    {
        assert_eq!(attribute(&term, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(attribute(&term, "token"), Some(first.to_string()));
    assert!(attribute(&term, "takeover_ms").is_some());
    let events: Vec<_> = term.events.iter().map(|event| &*event.name).collect();
    assert_eq!(events, ["became leader", "lost leadership"]);

    let second = election.won().await.unwrap();
    exported.exporter.reset();
    let token = second.token();
    second.resign();
    drop(second);
    lost(&mut changes).await;
    let term = exported.term();
    assert_eq!(attribute(&term, "cause").as_deref(), Some("resigned"));
    assert_eq!(attribute(&term, "token"), Some(token.to_string()));
}

#[tokio::test]
async fn spans_of_the_work_are_children_of_the_term() {
    let exported = Exported::new("info");
    let lock = MemoryLock::with_ttl(LEASE);
    let with_callback = new_election("callback", lock.clone())
        .on_won(|leadership| async {
            async {}.instrument(info_span!("callback")).await;
            step(leadership).await;
        })
        .start()
        .unwrap();
    let callback = exported.until_named("callback").await;
    let term = exported.until_named("term").await;
    let of_term = |span: &SpanData| {
        assert_eq!(span.parent_span_id, term.span_context.span_id());
        assert!(term.start_time <= span.start_time && span.end_time <= term.end_time);
    };
    of_term(&callback);
    of_term(&exported.named("step")[0]);
    assert_eq!(attribute(&term, "cause").as_deref(), Some("work_ended"));
    with_callback.stop().await;

    exported.exporter.reset();
    let guarded = new_election("guard", lock).start().unwrap();
    let leadership = guarded.won().await.unwrap();
    async {}.instrument(info_span!(parent: leadership.span(), "explicit")).await;
    let own = info_span!("own");
    async { leadership.run(async { drop(info_span!("within")) }).await }
        .instrument(own)
        .await
        .unwrap();
    step(leadership).await;
    let term = exported.until_named("term").await;
    let parent = |name: &str| exported.named(name)[0].parent_span_id;
    assert_eq!(parent("step"), term.span_context.span_id());
    assert_eq!(parent("explicit"), term.span_context.span_id());
    let own = exported.named("own").remove(0);
    assert_eq!(parent("within"), own.span_context.span_id(), "the caller's own context stays");
    assert_eq!(own.parent_span_id, SpanId::INVALID);
}

#[tokio::test]
async fn no_span_stays_open() {
    let exported = Exported::new("info");
    let lock = MemoryLock::with_ttl(LEASE);
    let leads = async |election: &Election| {
        while !election.is_leader() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let stopped = new_election("stopped", lock.clone()).start().unwrap();
    leads(&stopped).await;
    stopped.stop().await;
    assert_eq!(attribute(&exported.term(), "cause").as_deref(), Some("stopped"));

    // A guard that somebody forgets keeps no span open.
    exported.exporter.reset();
    let evicted = new_election("evicted", lock.clone()).start().unwrap();
    let forgotten = evicted.won().await.unwrap();
    let mut changes = evicted.changes();
    lock.evict("evicted");
    lost(&mut changes).await;
    assert_eq!(attribute(&exported.term(), "cause").as_deref(), Some("evicted"));
    drop(forgotten);
    evicted.stop().await;

    exported.exporter.reset();
    let dropped = new_election("dropped", lock).start().unwrap();
    leads(&dropped).await;
    drop(dropped);
    let term = exported.until_named("term").await;
    assert_eq!(attribute(&term, "cause").as_deref(), Some("stopped"));
}

#[test]
fn the_end_of_a_runtime_ends_the_span() {
    let exported = Exported::new("info");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let election = new_election("app", MemoryLock::with_ttl(LEASE))
            .on_won(|leadership| async move { drop(leadership.ended().await) })
            .start()
            .unwrap();
        drop(election.won().await.unwrap());
        std::mem::forget(election);
    });
    assert!(exported.named("term").is_empty());
    drop(runtime);
    assert_eq!(attribute(&exported.term(), "cause").as_deref(), Some("expired"));
}

#[tokio::test]
async fn a_filter_without_terms_leaves_work_in_the_current_span() {
    let exported = Exported::new("spans=info");
    let election = new_election("app", MemoryLock::with_ttl(LEASE)).start().unwrap();
    let leadership = election.won().await.unwrap();
    assert!(leadership.span().is_none());
    step(leadership).await;
    election.stop().await;
    let [step] = <[_; 1]>::try_from(exported.spans()).expect("one span");
    assert_eq!((&*step.name, step.parent_span_id), ("step", SpanId::INVALID));
}
