//! A service that refuses the requests of former leaders.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response, StatusCode};
use incumbent::fence::{
    ELECTION_HEADER, FenceError, FenceErrorKind, FenceLayer, FenceStore, MemoryFence, TOKEN_HEADER,
};
use incumbent::lock::Token;
use incumbent::memory::MemoryLock;
use incumbent::new_election;
use tokio::sync::{Semaphore, oneshot};
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::log::Log;

const NO_OTHER: [(&str, &str); 0] = [];

/// A service that responds with the token among the extensions.
fn service() -> impl Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone {
    FenceLayer::new(MemoryFence::new("my_app")).layer(service_fn(async |request: Request<()>| {
        let token = request.extensions().get::<Token>().expect("a token");
        Ok(Response::new(token.to_string()))
    }))
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let request = headers
        .iter()
        .fold(Request::post("/"), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap()
}

#[tokio::test]
async fn requests_of_former_leaders_are_refused() {
    let service = service();
    let send =
        async |headers: &[(&str, &str)]| service.clone().oneshot(request(headers)).await.unwrap();
    for token in ["7", "7", "9", "9"] {
        let response = send(&[("incumbent-token", token)]).await;
        assert_eq!((response.status(), &**response.body()), (StatusCode::OK, token));
    }
    let late = send(&[("incumbent-token", "7")]).await;
    assert_eq!(late.status(), StatusCode::CONFLICT);
    assert_eq!(late.headers()[TOKEN_HEADER], "9");
    assert_eq!(send(&NO_OTHER).await.status(), StatusCode::PRECONDITION_REQUIRED);
    for wrong in ["", "0", "-1", "+10", " 10", "1e3", "18446744073709551616", "ten"] {
        let status = send(&[("incumbent-token", wrong)]).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong:?}");
    }
    let twice = send(&[("incumbent-token", "9"), ("incumbent-token", "10")]).await;
    assert_eq!(twice.status(), StatusCode::BAD_REQUEST);
    // Another election's great token would keep all of this one's leaders out.
    let other = send(&[("incumbent-token", "4711"), ("incumbent-election", "another")]).await;
    assert_eq!(other.status(), StatusCode::BAD_REQUEST);
    let own = send(&[("incumbent-token", "9"), ("incumbent-election", "my_app")]).await;
    assert_eq!(own.status(), StatusCode::OK);
}

/// None of them is still at work when the first request of the next term passes.
#[tokio::test(start_paused = true)]
async fn requests_of_a_term_are_waited_for_by_the_next() {
    let store = MemoryFence::new("my_app");
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let handler = service_fn(move |request: Request<()>| {
        begun.send(*request.extensions().get::<Token>().unwrap()).unwrap();
        let held = Arc::clone(&held);
        async move {
            held.acquire_owned().await.unwrap().forget();
            Ok::<_, Infallible>(Response::new(()))
        }
    });
    let service = FenceLayer::new(store.clone()).layer(handler);
    let send = |token| {
        let sent = service.clone().oneshot(request(&[("incumbent-token", token)]));
        tokio::spawn(async move { sent.await.unwrap().status() })
    };
    let first = send("7");
    assert_eq!(begins.recv().await, Some(Token(7)));
    // It hangs: the successor is told to try again.
    assert_eq!(send("9").await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    // From then on those of the earlier term are refused, or they could keep it out without end.
    assert_eq!(send("7").await.unwrap(), StatusCode::CONFLICT);
    let second = send("9");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(send("7").await.unwrap(), StatusCode::CONFLICT);
    assert!(begins.try_recv().is_err() && !second.is_finished());
    gate.add_permits(10);
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(begins.recv().await, Some(Token(9)));
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    let greatest = Token(9);
    let refused = store.enter(Token(8)).await.unwrap_err();
    assert_eq!(refused.kind(), FenceErrorKind::Stale { greatest });
}

/// A store that does not tell.
struct Broken(FenceErrorKind);

#[async_trait]
impl FenceStore for Broken {
    type Pass = ();

    fn election(&self) -> &str {
        "my_app"
    }

    async fn enter(&self, _token: Token) -> Result<(), FenceError> {
        Err(FenceError::new(self.0, "the database has no fence"))
    }
}

/// An operator sees why a service lets nothing pass.
#[tokio::test]
async fn errors_of_the_store_are_told_apart_and_logged() {
    let log = Log::of("incumbent=warn");
    for (kind, status, grpc) in [
        (FenceErrorKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "14"),
        (FenceErrorKind::Misconfigured, StatusCode::INTERNAL_SERVER_ERROR, "13"),
    ] {
        let handler = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
        let service = FenceLayer::new(Broken(kind)).layer(handler);
        let send = async |headers: &[(&str, &str)]| {
            service.clone().oneshot(request(headers)).await.unwrap()
        };
        assert_eq!(send(&[("incumbent-token", "7")]).await.status(), status);
        let grpc_request = [("incumbent-token", "7"), ("content-type", "application/grpc")];
        assert_eq!(send(&grpc_request).await.headers()["grpc-status"], grpc);
    }
    let lines = log.lines(&["WARN", "election=my_app", "the database has no fence"]);
    assert_eq!(lines.len(), 4, "{lines:?}");
}

/// What clients of tonic see, and how they add the token.
#[tokio::test]
async fn calls_of_former_leaders_fail_their_precondition() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let store = MemoryFence::new("my_app");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder()
        .layer(FenceLayer::new(store.clone()))
        .add_service(health)
        .serve_with_incoming_shutdown(TcpIncoming::from(socket), async {
            let _ = stopped.await;
        });
    let server = tokio::spawn(server);
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let call = || tonic::Request::new(HealthCheckRequest::default());

    let election = new_election("my_app", MemoryLock::new()).start().unwrap();
    let leadership = election.won().await.unwrap();
    let mut fenced = call();
    leadership.fence_request(fenced.metadata_mut().as_mut()).unwrap();
    assert_eq!(fenced.metadata().get(ELECTION_HEADER.as_str()).unwrap(), "my_app");
    client.check(fenced).await.unwrap();
    assert_eq!(client.check(call()).await.unwrap_err().code(), Code::Unauthenticated);

    let mut late = call();
    leadership.fence_request(late.metadata_mut().as_mut()).unwrap();
    let greatest = Token(leadership.token().0 + 1);
    drop(store.enter(greatest).await.unwrap());
    let refused = client.check(late).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.metadata().get(TOKEN_HEADER.as_str()).unwrap(), &*greatest.to_string());

    leadership.resign();
    leadership.ended().await;
    let refused = leadership.fence_request(call().metadata_mut().as_mut()).unwrap_err();
    assert_eq!(refused.kind(), FenceErrorKind::TermOver);
    drop(client);
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
