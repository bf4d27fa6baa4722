//! Requests to the members of a cluster, each with a deadline.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::warn;

use super::cluster::{Cluster, Seen};
use super::codec::Origin;
use super::errors;
use super::messages::{
    Answer, AuthenticateRequest, Authenticated, Header, Range, RangeRequest, Txn, TxnRequest,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::tls::{Tls, over_tls};
use crate::lock::{Effect, LockError, LockErrorKind};
use crate::util::locked;

/// The most bytes of a response: a page of keys, which anybody may have written.
const MAX_RESPONSE_LEN: usize = 64 << 20;

/// For how long a cluster that requires no user is not asked again. A refusal shows it as well.
const NOT_NEEDED_FOR: Duration = Duration::from_secs(60);

/// A client of one cluster.
///
/// One member is used until a request to it fails; the next request goes to the next member. A
/// write is sent to another member only if it certainly did not leave this process.
pub(super) struct Client {
    members: Vec<Member>,
    /// The member in use.
    current: AtomicUsize,
    user: Option<(String, String)>,
    session: tokio::sync::Mutex<Session>,
    cluster: Mutex<Cluster>,
    /// The addresses of the members, for people.
    place: String,
}

struct Member {
    /// How to connect, with the certificates that were read last.
    endpoint: Arc<Mutex<Endpoint>>,
    tls: Option<Tls>,
    /// Whether the certificates are being read.
    reads: Arc<AtomicBool>,
    /// For people, as in `etcd-1:2379`.
    address: String,
    /// The connection, which belongs to the runtime that opened it. It is replaced after a failure.
    channel: Mutex<Option<Arc<Channel>>>,
}

impl Member {
    /// Whether it is reached without TLS.
    fn is_plain(&self) -> bool {
        locked(&self.endpoint).uri().scheme_str() == Some("http")
    }

    fn is_of_this_machine(&self) -> bool {
        let endpoint = locked(&self.endpoint);
        let host = endpoint.uri().host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback())
    }

    /// The connection in use. `index`: of this member.
    fn connection(&self, index: usize) -> Connection {
        let mut channel = locked(&self.channel);
        let channel =
            channel.get_or_insert_with(|| Arc::new(locked(&self.endpoint).connect_lazy()));
        Connection { index, channel: Arc::clone(channel) }
    }

    /// Closes a connection that failed. Returns whether it was in use.
    fn close(&self, failed: &Arc<Channel>) -> bool {
        let was_used = locked(&self.channel).take_if(|used| Arc::ptr_eq(used, failed)).is_some();
        if was_used {
            self.read_certificates();
        }
        was_used
    }

    /// Has the next connection use the certificates that are in their files now: they are replaced
    /// before they expire. Beside the requests, as a disk may not respond.
    fn read_certificates(&self) {
        let Some(tls) = self.tls.clone() else { return };
        if self.reads.swap(true, Ordering::Relaxed) {
            return; // already
        }
        let (endpoint, reads) = (Arc::clone(&self.endpoint), Arc::clone(&self.reads));
        let address = self.address.clone();
        drop(tokio::task::spawn_blocking(move || {
            if tls.is_in_files() {
                let current = locked(&endpoint).clone();
                match tls.config().and_then(|config| over_tls(current, config)) {
                    Ok(fresh) => *locked(&endpoint) = fresh,
                    Err(error) => warn!(
                        member = address, %error,
                        "the certificates for etcd cannot be read again: those read before are used"
                    ),
                }
            }
            reads.store(false, Ordering::Relaxed);
        }));
    }
}

/// A connection to a member, as a request or a watch uses it.
struct Connection {
    index: usize,
    channel: Arc<Channel>,
}

/// A watch, and what it was begun with.
pub(super) struct Watch {
    pub responses: Streaming<WatchResponse>,
    used: Connection,
    token: Option<Token>,
}

/// A token of a user, as a header has it.
type Token = MetadataValue<Ascii>;

/// What is known of the user.
#[derive(Default)]
enum Session {
    #[default]
    None,
    Token(Token),
    /// The cluster requires no user, which is not asked again before.
    NotNeeded {
        until: Instant,
    },
}

/// The methods of etcd that are called.
pub(super) mod methods {
    pub const RANGE: &str = "/etcdserverpb.KV/Range";
    pub const TXN: &str = "/etcdserverpb.KV/Txn";
    pub const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    pub const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    pub const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";
}

/// Why an attempt failed.
enum Failure {
    /// No response in time.
    Silence,
    Refused(Status),
}

impl Client {
    /// `lease`: how long a leader of another cluster, at the same addresses, may lead.
    pub fn new(
        endpoints: Vec<(Endpoint, String)>,
        tls: Option<Tls>,
        user: Option<(String, String)>,
        lease: Duration,
    ) -> Self {
        let members = endpoints.into_iter().map(|(endpoint, address)| Member {
            endpoint: Arc::new(Mutex::new(endpoint)),
            tls: tls.clone(),
            reads: Arc::default(),
            address,
            channel: Mutex::default(),
        });
        let members: Vec<_> = members.collect();
        let addresses: Vec<_> = members.iter().map(|one| one.address.as_str()).collect();
        let place = addresses.join(",");
        Self {
            current: fastrand::usize(..members.len().max(1)).into(),
            members,
            user,
            session: tokio::sync::Mutex::default(),
            cluster: Mutex::new(Cluster::new(lease)),
            place,
        }
    }

    /// Whether the password of a user leaves this machine without TLS.
    pub fn sends_password_in_clear(&self) -> bool {
        let is_far = |member: &Member| member.is_plain() && !member.is_of_this_machine();
        self.user.is_some() && self.members.iter().any(is_far)
    }

    /// The addresses of the members, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The greatest revision of the cluster that a response has shown.
    pub fn revision(&self) -> u64 {
        locked(&self.cluster).revision()
    }

    /// The origin of the last response.
    pub fn origin(&self) -> Origin {
        locked(&self.cluster).origin()
    }

    /// The origin of a response.
    pub fn origin_of(&self, header: Option<Header>) -> Origin {
        locked(&self.cluster).origin_of(header.unwrap_or_default())
    }

    /// Reads keys, linearizably: the response is never stale.
    /// The era of the cluster is returned too.
    pub async fn range(
        &self,
        request: RangeRequest,
        deadline: Instant,
    ) -> Result<(Range, u64), LockError> {
        self.call(methods::RANGE, &request, Effect::Read, deadline).await
    }

    /// Runs a transaction that writes. The era of the cluster is returned too.
    pub async fn txn(
        &self,
        request: TxnRequest,
        deadline: Instant,
    ) -> Result<(Txn, u64), LockError> {
        self.call(methods::TXN, &request, Effect::Write, deadline).await
    }

    /// Sends a request to the member in use, and to others as far as that may not repeat a write.
    /// Its response must be linearizable: it shows whether the cluster was set back.
    pub async fn call<Q, A>(
        &self,
        method: &'static str,
        request: &Q,
        effect: Effect,
        deadline: Instant,
    ) -> Result<(A, u64), LockError>
    where
        Q: Message + Clone + 'static,
        A: Answer,
    {
        let (mut renewed_token, mut doubted) = (false, false);
        let mut left = self.members.len();
        loop {
            let Some((member, used)) = self.current() else {
                let what = "the configuration names no member of a cluster";
                return Err(LockError::new(LockErrorKind::Misconfigured, what));
            };
            left = left.saturating_sub(1);
            // A read has time for the next member, if this one is silent.
            let until = match effect {
                Effect::Read if left > 0 => {
                    Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2
                }
                _ => deadline,
            };
            let token = self.token(member, &used, until).await?;
            let sent = self.seen();
            match unary::<Q, A>(&used.channel, method, request.clone(), token.clone(), until).await
            {
                Ok(answer) => {
                    // Where a snapshot was restored, it does so again. In some versions of etcd, a
                    // member that hung reads an earlier state once.
                    let header = answer.header().copied().unwrap_or_default();
                    if effect == Effect::Read && !doubted && sent.is_later_than(header) {
                        doubted = true;
                        left += 1;
                        continue;
                    }
                    let checked = self.check(&member.address, answer.header(), Some(sent));
                    // Another one may be of the cluster in use.
                    let era = checked.inspect_err(|_| self.leave(&used))?;
                    return Ok((answer, era));
                }
                Err(Failure::Silence) => {
                    self.leave(&used);
                    if effect == Effect::Read && left > 0 && Instant::now() < deadline {
                        continue;
                    }
                    return Err(errors::silence(&member.address, effect));
                }
                Err(Failure::Refused(status)) => {
                    // A member that has restarted does not know the token of before.
                    if errors::is_old_token(&status) && self.user.is_some() && !renewed_token {
                        renewed_token = true;
                        left += 1;
                        self.forget_token(token.as_ref()).await;
                        continue;
                    }
                    if errors::is_of_member(&status) {
                        self.leave(&used);
                    }
                    let repeats = match effect {
                        Effect::Read => errors::may_pass(&status),
                        Effect::Write => errors::was_not_sent(&status),
                    };
                    if repeats && left > 0 && Instant::now() < deadline {
                        continue;
                    }
                    return Err(self.refused(&status, member, effect));
                }
            }
        }
    }

    /// Sends a request to each member, in their order.
    pub async fn call_each<Q, A>(
        &self,
        method: &'static str,
        request: &Q,
        deadline: Instant,
    ) -> Vec<(&str, Result<A, LockError>)>
    where
        Q: Message + Clone + 'static,
        A: Answer,
    {
        let one = |(index, member)| async move {
            let used = Member::connection(member, index);
            let token = match self.token(member, &used, deadline).await {
                Ok(token) => token,
                Err(error) => return (member.address.as_str(), Err(error)),
            };
            let answer = unary(&used.channel, method, request.clone(), token, deadline).await;
            let answer = answer.map_err(|failure| match failure {
                Failure::Silence => errors::silence(&member.address, Effect::Read),
                Failure::Refused(status) => self.refused(&status, member, Effect::Read),
            });
            (member.address.as_str(), answer)
        };
        futures_util::future::join_all(self.members.iter().enumerate().map(one)).await
    }

    /// Watches keys from now on. The first response says that the watch has begun.
    ///
    /// The member ends the watch when it has no leader, as one that is cut off from the others.
    pub async fn watch(
        &self,
        request: WatchCreateRequest,
        deadline: Instant,
    ) -> Result<Watch, LockError> {
        let Some((member, used)) = self.current() else {
            return Err(errors::silence("no member", Effect::Read));
        };
        let token = self.token(member, &used, deadline).await?;
        // The stream of requests stays open, as its end is the end of the watch.
        let requests =
            stream::iter([WatchRequest { create: Some(request) }]).chain(stream::pending());
        let begun = streaming(&used.channel, methods::WATCH, requests, token.clone());
        match timeout_at(deadline, begun).await {
            Ok(Ok(responses)) => Ok(Watch { responses, used, token }),
            Ok(Err(status)) => {
                if errors::is_of_member(&status) {
                    self.leave(&used);
                }
                if errors::is_old_token(&status) {
                    self.forget_token(token.as_ref()).await;
                }
                Err(self.refused(&status, member, Effect::Read))
            }
            Err(_) => {
                self.leave(&used);
                Err(errors::silence(&member.address, Effect::Read))
            }
        }
    }

    /// Leaves the member of a watch that has failed.
    pub fn leave_member_of(&self, watch: &Watch) {
        self.leave(&watch.used);
    }

    /// Forgets the token of a watch that was refused.
    pub async fn forget_token_of(&self, watch: &Watch) {
        self.forget_token(watch.token.as_ref()).await;
    }

    /// Forgets the token of the user, which is too old, unless there is another one already.
    /// `None`: a user may be required by now.
    async fn forget_token(&self, used: Option<&Token>) {
        let mut session = self.session.lock().await;
        let is_used = match &*session {
            Session::Token(token) => Some(token) == used,
            Session::NotNeeded { .. } => used.is_none(),
            Session::None => false,
        };
        if is_used {
            *session = Session::None;
        }
    }

    /// The member in use, and the connection to it.
    fn current(&self) -> Option<(&Member, Connection)> {
        let index = self.current.load(Ordering::Relaxed);
        let member = self.members.get(index)?;
        Some((member, member.connection(index)))
    }

    /// Closes a connection, and uses the next member. Of many requests on one that fail together,
    /// the first does: the others, and a watch, may fail when its successor is in use.
    fn leave(&self, failed: &Connection) {
        let Connection { index, channel } = failed;
        if self.members.get(*index).is_some_and(|member| member.close(channel)) {
            let next = (index + 1) % self.members.len();
            let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.current.compare_exchange(*index, next, set, fetch);
        }
    }

    /// The token of the user; `None` if there is no user, or the cluster requires none.
    ///
    /// One request at a time authenticates, and the others wait for its token: the cluster checks a
    /// password slowly on purpose. `until`: when to give up.
    async fn token(
        &self,
        member: &Member,
        used: &Connection,
        until: Instant,
    ) -> Result<Option<Token>, LockError> {
        let Some(user) = &self.user else { return Ok(None) };
        let late = |_| errors::silence(&member.address, Effect::Read);
        let mut session = timeout_at(until, self.session.lock()).await.map_err(late)?;
        match &*session {
            Session::Token(token) => return Ok(Some(token.clone())),
            Session::NotNeeded { until } if Instant::now() < *until => return Ok(None),
            Session::NotNeeded { .. } | Session::None => {}
        }
        let (name, password) = user.clone();
        let request = AuthenticateRequest { name, password };
        let answer =
            unary::<_, Authenticated>(&used.channel, methods::AUTHENTICATE, request, None, until);
        let token = match answer.await {
            Ok(answer) => answer.token,
            Err(Failure::Refused(status)) if errors::needs_no_user(&status) => {
                *session = Session::NotNeeded { until: Instant::now() + NOT_NEEDED_FOR };
                return Ok(None);
            }
            Err(Failure::Silence) => {
                self.leave(used);
                return Err(errors::silence(&member.address, Effect::Read));
            }
            Err(Failure::Refused(status)) => {
                if errors::is_of_member(&status) {
                    self.leave(used);
                }
                return Err(self.refused(&status, member, Effect::Read));
            }
        };
        let Ok(token) = token.parse::<Token>() else {
            let what = format!("{} returned a token that no header can have", member.address);
            return Err(LockError::new(LockErrorKind::Unavailable, what));
        };
        *session = Session::Token(token.clone());
        Ok(Some(token))
    }

    /// The error of a refusal. A server that requires TLS closes other connections, with no word of
    /// why.
    fn refused(&self, status: &Status, member: &Member, effect: Effect) -> LockError {
        let hint = match member.is_plain() && !locked(&self.cluster).is_known() {
            true => "; if it requires TLS, use etcds://",
            false => "",
        };
        errors::refused(status, &member.address, effect, hint)
    }

    /// What has been seen of the cluster.
    pub fn seen(&self) -> Seen {
        locked(&self.cluster).seen()
    }

    /// Checks that a response is of the cluster of the earlier ones, and records what it shows.
    /// Returns its era. `sent`: what had been seen before, if the response is linearizable.
    pub fn check(
        &self,
        address: &str,
        header: Option<&Header>,
        sent: Option<Seen>,
    ) -> Result<u64, LockError> {
        let header = header.copied().unwrap_or_default();
        let answered = locked(&self.cluster).answered(header, sent, Instant::now());
        answered.map_err(|known| {
            let what = format!(
                "{address} belongs to cluster {:x}, and cluster {known:x} was used before: name the members of one cluster",
                header.cluster_id
            );
            LockError::new(LockErrorKind::Unavailable, what)
        })
    }
}

async fn unary<Q, A>(
    channel: &Channel,
    method: &'static str,
    message: Q,
    token: Option<Token>,
    deadline: Instant,
) -> Result<A, Failure>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut request = Request::new(message);
    // The server gives up with the client.
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    let codec = ProstCodec::<Q, A>::default();
    let answer = async {
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_RESPONSE_LEN);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        grpc.unary(request, PathAndQuery::from_static(method), codec).await
    };
    match timeout_at(deadline, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        // The channel has a timer for the same deadline.
        Ok(Err(_)) if Instant::now() >= deadline => Err(Failure::Silence),
        Ok(Err(status)) => Err(Failure::Refused(status)),
        Err(_) => Err(Failure::Silence),
    }
}

async fn streaming(
    channel: &Channel,
    method: &'static str,
    requests: impl Stream<Item = WatchRequest> + Send + 'static,
    token: Option<Token>,
) -> Result<Streaming<WatchResponse>, Status> {
    let mut request = Request::new(requests);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_RESPONSE_LEN);
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    Ok(grpc.streaming(request, PathAndQuery::from_static(method), codec).await?.into_inner())
}

partial_debug!(Client, self, at: self.place());

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests on one connection, and a watch, fail together, and some of them late.
    #[tokio::test]
    async fn a_connection_that_failed_is_left_once() {
        let member = |name: &str| (Endpoint::from_static("http://127.0.0.1:9"), name.to_owned());
        let members = ["m0", "m1"].map(member).to_vec();
        let client = Client::new(members, None, None, Duration::from_secs(5));
        let current = || client.current().expect("a member").1;
        let first = current();
        client.leave(&first);
        let second = current();
        assert_ne!(second.index, first.index);
        client.leave(&first);
        assert_eq!(current().index, second.index);
        client.leave(&second);
        assert_eq!(current().index, first.index);
        client.leave(&first); // that of before
        assert_eq!(current().index, first.index);
    }
}
