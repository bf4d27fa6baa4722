//! Fences in HTTP and gRPC services, for tower.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tower::{Layer, Service};

use super::{FenceError, FenceErrorKind, stale};
use crate::lock::Token;

/// The header with the token of the leader that sends a request: `HeaderValue::from(token.0)`.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("incumbent-token");

/// How long a request waits for those of the term before.
const WAIT: Duration = Duration::from_secs(5);

/// The greatest token that a service has seen.
///
/// [`MemoryFence`] keeps it in the process. A service that must remember it across restarts, or
/// of which several replicas run, keeps it where it writes: in a transaction of
/// [`fence::transaction`](crate::fence), or by its own implementation.
#[async_trait]
pub trait FenceStore: Send + Sync + 'static {
    /// What is held while the request is handled: the first request of a later term waits for it.
    type Pass: Send + 'static;

    /// Lets a request with this token pass, unless a greater one has passed.
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`], or the store cannot tell.
    async fn enter(&self, token: Token) -> Result<Self::Pass, FenceError>;
}

/// The greatest token, in the memory of this process: for a service of one process that has no
/// earlier requests in flight when it starts.
#[derive(Debug, Clone)]
pub struct MemoryFence {
    election: Arc<str>,
    greatest: Arc<RwLock<Token>>,
}

impl MemoryFence {
    /// The fence of an election that has let no request pass.
    pub fn new(election: impl Into<Arc<str>>) -> Self {
        Self { election: election.into(), greatest: Arc::new(RwLock::new(Token(0))) }
    }
}

#[async_trait]
impl FenceStore for MemoryFence {
    type Pass = OwnedRwLockReadGuard<Token>;

    async fn enter(&self, token: Token) -> Result<Self::Pass, FenceError> {
        let mut pass = Arc::clone(&self.greatest).read_owned().await;
        if *pass < token {
            drop(pass);
            // Waits for the requests of earlier terms.
            let mut greatest = Arc::clone(&self.greatest).write_owned().await;
            *greatest = token.max(*greatest);
            pass = greatest.downgrade();
        }
        match *pass == token {
            true => Ok(pass),
            false => Err(stale(&self.election, token, *pass)),
        }
    }
}

/// Refuses requests of former leaders: those whose [`TOKEN_HEADER`] has a smaller token than the
/// greatest that has passed.
///
/// The first request of a later term waits until the requests of earlier terms have their
/// responses, at most five seconds, so that none of these is still at work when it passes.
///
/// | request | response |
/// |---|---|
/// | a smaller token | 409 with the greatest one in [`TOKEN_HEADER`]; to gRPC `FAILED_PRECONDITION` |
/// | no token | 428; to gRPC `UNAUTHENTICATED` |
/// | several tokens, or none that is a number | 400; to gRPC `INVALID_ARGUMENT` |
/// | the store cannot tell, or earlier requests take too long | 503; to gRPC `UNAVAILABLE` |
///
/// ```
/// use incumbent::fence::{FenceLayer, MemoryFence};
/// use tower::ServiceBuilder;
///
/// # let handler = tower::service_fn(|_: http::Request<String>| async {
/// #     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
/// # });
/// let service =
///     ServiceBuilder::new().layer(FenceLayer::new(MemoryFence::new("my_app"))).service(handler);
/// # let _ = service;
/// ```
#[derive(Debug)]
pub struct FenceLayer<S> {
    store: Arc<S>,
}

impl<S: FenceStore> FenceLayer<S> {
    /// A layer that asks this store.
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store) }
    }
}

impl<S> Clone for FenceLayer<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<S, I> Layer<I> for FenceLayer<S> {
    type Service = FenceService<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        FenceService { store: Arc::clone(&self.store), inner }
    }
}

/// The service that [`FenceLayer`] makes.
#[derive(Debug)]
pub struct FenceService<S, I> {
    store: Arc<S>,
    inner: I,
}

impl<S, I: Clone> Clone for FenceService<S, I> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), inner: self.inner.clone() }
    }
}

impl<S, I, B, R> Service<Request<B>> for FenceService<S, I>
where
    S: FenceStore,
    I: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, I::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone is not ready; the one that is takes this request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            match pass(&*store, request.headers()).await {
                Ok(_pass) => inner.call(request).await,
                Err(refusal) => Ok(refusal.response(request.headers())),
            }
        })
    }
}

/// Lets a request pass by its headers.
async fn pass<S: FenceStore>(store: &S, headers: &HeaderMap) -> Result<S::Pass, Refusal> {
    let token = token_of(headers)?;
    match tokio::time::timeout(WAIT, store.enter(token)).await {
        Ok(Ok(pass)) => Ok(pass),
        Ok(Err(error)) => Err(match error.kind() {
            FenceErrorKind::Stale { greatest } => Refusal::Stale(greatest),
            _ => Refusal::Unknown,
        }),
        Err(_) => Err(Refusal::Unknown),
    }
}

fn token_of(headers: &HeaderMap) -> Result<Token, Refusal> {
    let mut values = headers.get_all(TOKEN_HEADER).iter();
    let value = values.next().ok_or(Refusal::NoToken)?;
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match (digits.and_then(|digits| digits.parse().ok()), values.next()) {
        (Some(token), None) if token > 0 => Ok(Token(token)),
        _ => Err(Refusal::Invalid),
    }
}

/// Why a request does not pass.
enum Refusal {
    NoToken,
    Invalid,
    Stale(Token),
    Unknown,
}

impl Refusal {
    fn response<R: Default>(self, request: &HeaderMap) -> Response<R> {
        let (status, grpc) = match self {
            Self::Invalid => (StatusCode::BAD_REQUEST, 3),
            Self::Stale(_) => (StatusCode::CONFLICT, 9),
            Self::NoToken => (StatusCode::PRECONDITION_REQUIRED, 16),
            Self::Unknown => (StatusCode::SERVICE_UNAVAILABLE, 14),
        };
        let mut response = Response::new(R::default());
        let content_type = request.get(http::header::CONTENT_TYPE);
        match content_type.filter(|value| value.as_bytes().starts_with(b"application/grpc")) {
            Some(content_type) => {
                let headers = response.headers_mut();
                headers.insert(http::header::CONTENT_TYPE, content_type.clone());
                headers.insert("grpc-status", HeaderValue::from(grpc));
            }
            None => *response.status_mut() = status,
        }
        if let Self::Stale(greatest) = self {
            response.headers_mut().insert(TOKEN_HEADER, HeaderValue::from(greatest.0));
        }
        response
    }
}
