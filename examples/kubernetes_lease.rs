//! A candidate on a Kubernetes Lease, beside client-go's: `cargo run --example kubernetes_lease
//! --features kubernetes-latest`.
//!
//! It reaches the API server as `kubectl` does (`KUBECONFIG`, `~/.kube/config`), or by the service
//! account of its pod. `docs/kubernetes.md` has the Role that it needs. Run it twice, and look at
//! `kubectl get lease my-app`.

use std::error::Error;
use std::time::Duration;

use incumbent::kubernetes::Cluster;
use incumbent::new_election;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    let cluster = Cluster::infer().await?;
    println!("standing in the Lease {}/my-app", cluster.namespace());
    let election = new_election("my-app", cluster.lease_lock())
        .on_won(|leadership| async move {
            println!("leads, with token {}", leadership.token());
            let work = async {
                loop {
                    println!("works");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            // Dropped when the term ends, before a successor may lead.
            let ended: Result<(), _> = leadership.run(work).await;
            if let Err(loss) = ended {
                println!("leads no more: {}", loss.cause);
            }
        })
        .start()?;
    tokio::signal::ctrl_c().await?;
    election.stop().await; // the work stops, the Lease is released
    Ok(())
}
