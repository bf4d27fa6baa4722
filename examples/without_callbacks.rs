//! Leading without callbacks: wait to lead, work while leading, campaign again after a loss.
//!
//! ```text
//! cargo run --example without_callbacks
//! ```

use std::error::Error;
use std::time::Duration;

use incumbent::memory::MemoryLock;
use incumbent::new_election;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let lock = MemoryLock::with_ttl(Duration::from_secs(2));
    let election = new_election("nightly_report", lock.clone()).identity("host-1").start()?;

    // A job that fits into a term. The term lasts as long as the guard is held.
    let leadership = election.won().await?;
    let pages = leadership.run(write_report()).await?;
    println!("wrote {pages} pages under token {}", leadership.token());
    drop(leadership);

    // A job that lasts until the term ends: here, by an operator.
    let leadership = election.won().await?;
    println!("leads again, under token {}", leadership.token());
    let operator = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        lock.evict("nightly_report");
    };
    let (ended, ()) = tokio::join!(leadership.run(serve()), operator);
    if let Err(loss) = ended {
        println!("{loss}");
    }
    drop(leadership);

    election.stop().await;
    Ok(())
}

async fn write_report() -> u32 {
    tokio::time::sleep(Duration::from_millis(200)).await;
    12
}

async fn serve() {
    std::future::pending().await
}
