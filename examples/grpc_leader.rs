//! A gRPC client whose calls reach the leader, through failovers.
//!
//! Three servers take part in one election, and the leader advertises its address. The client does
//! not campaign: it observes the election, and its channel connects to the leader. A connection
//! ends with the term of its leader. Calls made without a leader wait for the next leader; a call
//! that fails under way is the caller's to repeat, as with any channel. The service is gRPC's own
//! health check: a server reports `jobs` as serving while it leads.
//!
//! ```text
//! cargo run --features tower --example grpc_leader
//! nats-server --jetstream &
//! cargo run --features tower --example grpc_leader -- nats://127.0.0.1:4222
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use incumbent::discovery::LeaderConnector;
use incumbent::lock::Lock;
use incumbent::memory::MemoryLock;
use incumbent::nats::{self, Bucket, BucketConfig};
use incumbent::{Election, new_election, observe};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Health;
use tonic_health::pb::health_client::HealthClient;

const ELECTION: &str = "jobs";
const LEASE: Duration = Duration::from_secs(2);
/// How many times leaders are ended by the operator of this example.
const FAILOVERS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let lock: Arc<dyn Lock> = match std::env::args().nth(1) {
        Some(url) => {
            let client = nats::connect(&url, nats::connect_options()).await?;
            let config = BucketConfig::new("GRPC_LEADER").ttl(LEASE);
            Arc::new(Bucket::create_or_open(client, config).await?.lock())
        }
        None => Arc::new(MemoryLock::with_ttl(LEASE)),
    };
    let mut servers = Vec::new();
    for _ in 0..=FAILOVERS {
        servers.push(Candidate::start(lock.clone()).await?);
    }
    let connector = LeaderConnector::new(observe(ELECTION, lock)?);
    let channel = Endpoint::from_static("http://leader").connect_with_connector_lazy(connector);
    let mut client = HealthClient::new(channel);

    for _ in 0..FAILOVERS {
        println!("asked the leader: {}", ask(&mut client).await?);
        let leads = servers.iter().position(|server| server.election.is_leader());
        if let Some(leads) = leads {
            let server = servers.remove(leads);
            println!("{} goes away", server.election.identity());
            server.stop().await;
        }
    }
    println!("asked the leader: {}", ask(&mut client).await?);
    for server in servers {
        server.stop().await;
    }
    Ok(())
}

/// Calls, and repeats a call that a stopped server left without a response: it may be executed
/// twice.
async fn ask(client: &mut HealthClient<Channel>) -> Result<String, tonic::Status> {
    let mut failed = None;
    for _ in 0..20 {
        let asked = HealthCheckRequest { service: ELECTION.to_owned() };
        match client.check(asked).await {
            Ok(answer) => match answer.get_ref().status() {
                Health::Serving => return Ok("it serves".to_owned()),
                other => {
                    println!("  {other:?}: it leads no more, or does not know yet that it does")
                }
            },
            Err(status) => {
                println!("  {:?}: {}", status.code(), status.message());
                failed = Some(status);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(failed.unwrap_or_else(|| tonic::Status::unavailable("no server responds")))
}

/// A server that takes part in the election.
struct Candidate {
    election: Election,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Candidate {
    async fn start(lock: Arc<dyn Lock>) -> Result<Self, Box<dyn Error>> {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?.to_string();
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status(ELECTION, ServingStatus::NotServing).await;
        let incoming = TcpIncoming::from(socket);
        let serving =
            tokio::spawn(Server::builder().add_service(health).serve_with_incoming(incoming));
        let told = address.clone();
        let work = move |leadership: incumbent::Leadership| {
            let (reporter, address) = (reporter.clone(), told.clone());
            async move {
                println!("{address} leads, with token {}", leadership.token());
                reporter.set_service_status(ELECTION, ServingStatus::Serving).await;
                leadership.ended().await;
                reporter.set_service_status(ELECTION, ServingStatus::NotServing).await;
            }
        };
        let builder = new_election(ELECTION, lock).identity(&address).advertise(&address);
        let election = builder.lease(LEASE).on_won(work).start()?;
        Ok(Self { election, serving })
    }

    async fn stop(self) {
        self.election.stop().await;
        self.serving.abort();
    }
}
