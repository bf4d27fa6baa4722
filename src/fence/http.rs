//! Fences in HTTP and gRPC services, for tower.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tower::{Layer, Service};
use tracing::warn;

use super::{FenceError, FenceErrorKind, check_valid, stale};
use crate::election::Leadership;
use crate::lock::Token;
use crate::util::text::error_chain;

/// The header with the token of the leader that sends a request, in decimal.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("incumbent-token");

/// The header with the name of the election that the token is of.
pub const ELECTION_HEADER: HeaderName = HeaderName::from_static("incumbent-election");

/// How long a request waits for those of the term before.
const WAIT: Duration = Duration::from_secs(5);

impl Leadership {
    /// Adds the token of this term to the headers of a request, and the name of the election: for a
    /// service behind a [`FenceLayer`], or one that checks them by itself.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let lock = incumbent::memory::MemoryLock::new();
    /// # let election = incumbent::new_election("my_app", lock).start()?;
    /// # let leadership = election.won().await?;
    /// let mut request = http::Request::post("http://billing/runs").body("")?;
    /// leadership.fence_request(request.headers_mut())?;
    /// assert_eq!(request.headers()["incumbent-token"], leadership.token().to_string());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of a request of tonic the headers are `request.metadata_mut().as_mut()`.
    ///
    /// # Errors
    /// [`FenceErrorKind::TermOver`]: send nothing. [`FenceErrorKind::Misconfigured`]: the name of
    /// the election cannot be in a header.
    pub fn fence_request(&self, headers: &mut HeaderMap) -> Result<(), FenceError> {
        check_valid(self.election(), self.term(), "send nothing")?;
        let election = HeaderValue::from_bytes(self.election().as_bytes()).map_err(|error| {
            let what = "the name of the election cannot be in a header";
            FenceError::with_source(FenceErrorKind::Misconfigured, what, error)
        })?;
        headers.insert(ELECTION_HEADER, election);
        headers.insert(TOKEN_HEADER, HeaderValue::from(self.token().0));
        Ok(())
    }
}

/// The greatest token of an election that a service has seen: [`MemoryFence`] keeps it in the
/// process, `SqlFence` in a database.
#[async_trait]
pub trait FenceStore: Send + Sync + 'static {
    /// What is held while the request is handled: the first request of a later term waits for it.
    type Pass: Send + 'static;

    /// The name of the election.
    fn election(&self) -> &str;

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
    /// The greatest token that has come, also of a request that still waits, or gave up.
    greatest: Arc<AtomicU64>,
    /// The token of the requests that are handled.
    passing: Arc<RwLock<Token>>,
}

impl MemoryFence {
    /// The fence of an election that has let no request pass.
    pub fn new(election: impl Into<Arc<str>>) -> Self {
        let passing = Arc::new(RwLock::new(Token(0)));
        Self { election: election.into(), greatest: Arc::default(), passing }
    }

    /// Refuses a token that is not the greatest one.
    fn check(&self, token: Token, greatest: u64) -> Result<(), FenceError> {
        match token.0 < greatest {
            true => Err(stale(&self.election, token, Token(greatest))),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl FenceStore for MemoryFence {
    type Pass = OwnedRwLockReadGuard<Token>;

    fn election(&self) -> &str {
        &self.election
    }

    async fn enter(&self, token: Token) -> Result<Self::Pass, FenceError> {
        self.check(token, self.greatest.fetch_max(token.0, Ordering::SeqCst))?;
        let mut pass = Arc::clone(&self.passing).read_owned().await;
        if *pass < token {
            drop(pass);
            // Waits for the requests of earlier terms.
            let mut passing = Arc::clone(&self.passing).write_owned().await;
            *passing = token.max(*passing);
            pass = passing.downgrade();
        }
        // Again: a greater one may have come meanwhile.
        self.check(token, self.greatest.load(Ordering::SeqCst))?;
        Ok(pass)
    }
}

/// Refuses requests of former leaders: those whose [`TOKEN_HEADER`] has a smaller token than the
/// greatest that has passed. The leader adds it by [`Leadership::fence_request`].
///
/// The first request of a later term waits until the requests of earlier terms have their
/// responses, at most five seconds, so that none of these is still at work when it passes. What a
/// handler leaves behind, as a task that it spawned or the body of a response that is still sent,
/// is not waited for. Limit how long a handler takes by a layer within this one.
///
/// The [`Token`] is among the extensions of a request that passes. A service of several elections
/// has a layer for each, around the routes that its leader calls.
///
/// | request | response |
/// |---|---|
/// | a smaller token | 409 with the greatest one in [`TOKEN_HEADER`]; to gRPC `FAILED_PRECONDITION` |
/// | no token | 428; to gRPC `UNAUTHENTICATED` |
/// | no number, several tokens, or another [`ELECTION_HEADER`] | 400; to gRPC `INVALID_ARGUMENT` |
/// | the store cannot tell, or earlier requests take too long | 503; to gRPC `UNAVAILABLE` |
/// | the store is not set up | 500; to gRPC `INTERNAL` |
///
/// The last two are logged, with the error of the store.
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The clone is not ready; the one that is takes this request.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            match pass(&*store, request.headers()).await {
                Ok((token, _pass)) => {
                    request.extensions_mut().insert(token);
                    inner.call(request).await
                }
                Err(refusal) => Ok(refusal.response(request.headers())),
            }
        })
    }
}

/// Lets a request pass by its headers.
async fn pass<S: FenceStore>(store: &S, headers: &HeaderMap) -> Result<(Token, S::Pass), Refusal> {
    let token = token_of(headers)?;
    // Of another election: its tokens mean nothing here, and a great one would keep all others out.
    if headers
        .get(ELECTION_HEADER)
        .is_some_and(|name| name.as_bytes() != store.election().as_bytes())
    {
        return Err(Refusal::Invalid);
    }
    match tokio::time::timeout(WAIT, store.enter(token)).await {
        Ok(Ok(pass)) => Ok((token, pass)),
        Ok(Err(error)) => Err(match error.kind() {
            FenceErrorKind::Stale { greatest } => Refusal::Stale(greatest),
            kind => {
                let (election, error) = (store.election(), error_chain(&error));
                warn!(%election, %error, "a request did not pass: the fence cannot be checked");
                match kind {
                    FenceErrorKind::Misconfigured => Refusal::Misconfigured,
                    _ => Refusal::Unknown,
                }
            }
        }),
        Err(_) => {
            warn!(
                election = %store.election(),
                token = token.0,
                "a request did not pass: those of earlier terms, or the store of the fence, take longer than {WAIT:?}",
            );
            Err(Refusal::Unknown)
        }
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
    Misconfigured,
    Unknown,
}

impl Refusal {
    fn response<R: Default>(self, request: &HeaderMap) -> Response<R> {
        let (status, grpc) = match self {
            Self::Invalid => (StatusCode::BAD_REQUEST, 3),
            Self::Stale(_) => (StatusCode::CONFLICT, 9),
            Self::NoToken => (StatusCode::PRECONDITION_REQUIRED, 16),
            Self::Misconfigured => (StatusCode::INTERNAL_SERVER_ERROR, 13),
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
