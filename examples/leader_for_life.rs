//! A leader for life, in a pod: `cargo run --example leader_for_life --features kubernetes-latest`.
//!
//! It reaches the API server as `kubectl` does (`KUBECONFIG`, `~/.kube/config`), or by the service
//! account of its pod. The pod's name comes from `POD_NAME`: outside of a pod, name one that is
//! there, to see what happens when it is deleted. `docs/leader-for-life.md` has the permissions
//! that it needs. Look at `kubectl get configmap my-app -o yaml`.

use std::error::Error;
use std::time::Duration;

use incumbent::kubernetes::{Cluster, leader_for_life};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::stderr).init();
    let cluster = Cluster::infer().await?;
    println!("standing for life in {}/my-app", cluster.namespace());
    let leadership = leader_for_life("my-app", &cluster).await?;
    if leadership.resumed() {
        println!("an earlier container of this pod has led: what it began may be half done");
    }
    println!("leads, with token {}", leadership.token());
    let work = async {
        loop {
            println!("works");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = leadership.lost() => return Err("the lock was taken away".into()),
        _ = tokio::signal::ctrl_c() => {}
    }
    // The work has stopped. Without this the lock stays this pod's until the pod is gone.
    leadership.release().await?;
    Ok(())
}
