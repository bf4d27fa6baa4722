//! Terms as spans of OpenTelemetry: one trace for each term, with the spans of its work.
//!
//! ```text
//! cargo run --example opentelemetry
//! ```
//! It prints the spans. For a collector, export them with `opentelemetry-otlp`:
//!
//! ```text
//! let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
//! let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
//! ```

use std::error::Error;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::new_election;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::instrument;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let exporter = opentelemetry_stdout::SpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("nightly_report"));
    tracing_subscriber::registry().with(EnvFilter::new("info")).with(traces).init();

    let lock = MemoryLock::with_ttl(Duration::from_secs(2));
    let election = new_election("nightly_report", lock).identity("host-1").start()?;
    let leadership = election.won().await?;
    leadership.run(write_report()).await?;
    drop(leadership); // the term ends: `work_ended`
    election.stop().await;

    provider.shutdown()?; // exports what is left
    Ok(())
}

/// A child of the span of the term.
#[instrument]
async fn write_report() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
