//! A Service whose requests go to the leader.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::{join, try_join};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource;
use serde_json::{Value, json};
use tracing::warn;

use super::slice::{self, Destination, Family};
use super::{Edit, Mode, OwnPod, change, check_token, misconfigured, read_error, token_of, within};
use crate::backends::kubernetes::api::{EVERY, Objects, REQUEST_TIMEOUT};
use crate::backends::kubernetes::cluster::Cluster;
use crate::backends::kubernetes::record::RecordLocation;
use crate::backends::kubernetes::resource::check_object_name;
use crate::election::Leadership;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::time::clock::{BootClock, Clock, Instant};
use crate::time::timer::deadline_after;

/// The longest name of a Service.
const MAX_SERVICE_NAME_LEN: usize = 63;
/// How often a leader looks whether its slices are as it wrote them.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long after a failure the request is sent again.
const RETRY: Duration = Duration::from_millis(250);
/// How long a withdrawal may take after the term's deadline.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// Directs the requests of a Service to the leader's pod, in an election on any lock.
///
/// The Service has no selector. The leader writes its EndpointSlices, `NAME-leader-ipv4` and
/// `NAME-leader-ipv6`, with its own pod as the only endpoint, and empties them before its term
/// ends. The next leader overwrites them.
///
/// ```no_run
/// use incumbent::kubernetes::{Cluster, ServiceFollowsLeader};
/// use incumbent::{new_election, memory::MemoryLock};
///
/// # async fn example(lock: MemoryLock) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn serve() {}
/// let mut service = ServiceFollowsLeader::new(&Cluster::infer().await?, "my-app")?;
/// service.clean().await?; // what an earlier process of this pod has left
/// service.check().await?; // before it campaigns
/// let election = new_election("my_app", lock).start()?; // a lock of any kind
/// loop {
///     let leadership = election.won().await?;
///     // Directs requests here while this leads. Withdraws when `serve()` is done or the term ends.
///     service.while_leading(&leadership, serve()).await?;
/// }
/// # }
/// ```
///
/// # Exclusion
/// Each slice carries the token of the term that wrote it last, in the annotation
/// `incumbent/token`. A write reads it first, never replaces a greater one, and is refused by the
/// API server if anybody wrote the slice in between. So a write that was sent in time and arrives
/// late never undoes what a successor wrote. A slice whose writer was killed keeps its address
/// until the container has started again and called [`clean`](Self::clean), or until the next
/// leader writes: the process behind that address checks its own term, or fences what it writes.
///
/// # Permissions
/// `get` of the Service, `get` of the pod, and `get`, `create` and `patch` of the slices;
/// `docs/kubernetes-service.md` in the repository has the Role.
#[derive(Debug)]
pub struct ServiceFollowsLeader {
    services: Objects,
    slices: Objects,
    service: String,
    own: OwnPod,
    addresses: Vec<IpAddr>,
    /// What this process may have written and has not withdrawn.
    directed: Option<Directed>,
}

fn check_service_name(name: &str) -> Result<(), LockError> {
    let is_object = check_object_name(name).is_ok() && !name.contains('.');
    if is_object && name.len() <= MAX_SERVICE_NAME_LEN {
        return Ok(());
    }
    Err(misconfigured(format!(
        "{name:?} cannot be the name of a Service: up to {MAX_SERVICE_NAME_LEN} of the letters a-z, 0-9 and '-', with no '-' at either end"
    )))
}

fn slices(cluster: &Cluster) -> Objects {
    let path = EndpointSlice::url_path(&(), Some(cluster.namespace()));
    Objects::new(cluster.access().clone(), path, "EndpointSlice", cluster.namespace()).hedged()
}

#[cfg(feature = "peer")]
impl Cluster {
    /// Lists the EndpointSlices of a Service.
    pub(crate) async fn slices_of(&self, service: &str) -> Result<Value, LockError> {
        check_service_name(service)?;
        let (slices, deadline) = (slices(self), deadline_after(REQUEST_TIMEOUT));
        let label = Some((slice::SERVICE_LABEL, service));
        let listed = slices.list(RecordLocation::Spec, label, deadline).await;
        listed.map_err(|failure| slices.lock_error(failure, EVERY, "list", "list", false))
    }
}

#[derive(Debug, Clone)]
struct Directed {
    token: Token,
    destination: Destination,
    /// Whether each write was answered.
    is_certain: bool,
    looked: Instant,
}

impl ServiceFollowsLeader {
    /// Describes a Service of the cluster's namespace that follows the leader. Sends no request.
    ///
    /// The leader's pod is `POD_NAME`, else the host's name, in the same namespace.
    ///
    /// # Errors
    /// If `service` cannot be the name of a Service.
    pub fn new(cluster: &Cluster, service: impl Into<String>) -> Result<Self, LockError> {
        let (service, namespace) = (service.into(), cluster.namespace());
        check_service_name(&service)?;
        let services = Service::url_path(&(), Some(namespace));
        Ok(Self {
            services: Objects::new(cluster.access().clone(), services, "Service", namespace)
                .hedged(),
            slices: slices(cluster),
            service,
            own: OwnPod::new(cluster),
            addresses: Vec::new(),
            directed: None,
        })
    }

    /// Sets the name of this process's pod, if it is neither in `POD_NAME` nor the host's name.
    #[must_use]
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.own = self.own.named(name.into());
        self
    }

    /// Sets the addresses that requests go to. Default: those of the pod (`status.podIPs`).
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// Refuses what cannot work, before the first term: a missing Service or pod, a Service with a
    /// selector, other slices that send its requests elsewhere, a missing permission. The API
    /// server checks the write, and writes nothing.
    ///
    /// # Errors
    /// [`Misconfigured`](LockErrorKind::Misconfigured) and [`Denied`](LockErrorKind::Denied) in one
    /// line that says what to do; others if the API server did not answer.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn check(&self) -> Result<(), LockError> {
        let destination = self.destination(BootClock.now() + REQUEST_TIMEOUT).await?;
        for family in &destination.families {
            let (name, deadline) = (family.slice(&self.service), deadline_after(REQUEST_TIMEOUT));
            let slice = self.slices.get(&name, deadline).await;
            let slice = slice.map_err(read_error(&self.slices, &name))?;
            let token = slice.as_ref().and_then(token_of).unwrap_or(Token(0));
            self.directing(slice.as_ref(), *family, token, &destination)?;
            // Both are needed sooner or later. The server looks at the permissions first, and then
            // whether there is a slice.
            let wanted = destination.slice(*family, token);
            let created = self.slices.create_unless(true, &wanted, deadline).await;
            let merged = self.slices.merge(true, &name, wanted, deadline).await;
            for (done, operation, verb) in
                [(created, "creation", "create"), (merged, "write", "patch")]
            {
                match done {
                    Err(failure) if !failure.is_change_of(&name) => {
                        return Err(self.slices.lock_error(failure, &name, operation, verb, false));
                    }
                    _ => {}
                }
            }
        }
        self.check_other_slices().await
    }

    /// Empties the slices if an earlier process of this pod has left its address there. A write of
    /// that process that is still under way can no longer be applied to slices that exist.
    ///
    /// # Errors
    /// If the API server did not answer, or refused.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn clean(&mut self) -> Result<(), LockError> {
        let withdrawn = self.withdraw().await;
        let clean = async |family: Family| {
            change(&self.slices, &family.slice(&self.service), Mode::Withdraw, |slice| {
                let own = slice.filter(|slice| slice::is_ours(slice, &self.service, family));
                Ok(own.map_or(Edit::Nothing, |slice| {
                    let is_here = slice::names_pod(slice, &self.own.name);
                    Edit::Settle(if is_here { json!({ "endpoints": [] }) } else { json!({}) })
                }))
            })
            .await
        };
        let (four, six) = join(clean(Family::V4), clean(Family::V6)).await;
        withdrawn.and(four).and(six)
    }

    /// Directs requests to this pod, for the term with this token. Sends nothing after `until`, the
    /// term's deadline on the [`BootClock`].
    ///
    /// # Errors
    /// [`Conflict`](LockErrorKind::Conflict) if a later leader has written the slice. After another
    /// error part of it may have been written: call it again, or [`withdraw`](Self::withdraw).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn direct(&mut self, token: Token, until: Instant) -> Result<(), LockError> {
        within(until, self.direct_now(token, until)).await
    }

    async fn direct_now(&mut self, token: Token, until: Instant) -> Result<(), LockError> {
        let destination = self.destination(until).await?;
        if !destination.is_reachable() {
            let message = format!(
                "the {} has no address of a family of the {}: wait until status.podIPs has one, or set spec.ipFamilies of the Service",
                self.own.pods.describe(&self.own.name),
                self.services.describe(&self.service)
            );
            return Err(LockError::new(LockErrorKind::Unavailable, message));
        }
        let looked = BootClock.now();
        let directed = Directed { token, destination, is_certain: false, looked };
        let Directed { destination, .. } = self.directed.insert(directed);
        let destination = destination.clone();
        let (this, destination) = (&*self, &destination);
        let write = async |family: Family| {
            change(&this.slices, &family.slice(&this.service), Mode::Until(until), |slice| {
                this.directing(slice, family, token, destination)
            })
            .await
        };
        let (four, six) = join(write(Family::V4), write(Family::V6)).await;
        four.and(six)?;
        if let Some(directed) = &mut self.directed {
            directed.is_certain = true;
        }
        Ok(())
    }

    /// Keeps the slices as they are to be, after a renewal of the term: looks at them at most every
    /// 30 s, and writes them again if somebody else has changed or deleted them.
    ///
    /// # Errors
    /// As [`direct`](Self::direct).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn extend(&mut self, until: Instant) -> Result<(), LockError> {
        let now = BootClock.now();
        let Some(directed) = &mut self.directed else { return Ok(()) };
        if now.saturating_since(directed.looked) < LOOK_AGAIN {
            return Ok(());
        }
        directed.looked = now;
        let token = directed.token;
        self.direct(token, until).await
    }

    /// Whether nothing is left to withdraw.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.directed.is_none()
    }

    /// Empties the slices, unless a later leader has written them. Also right after a
    /// [`direct`](Self::direct) that failed or was cut off: its write is then either undone or can
    /// no longer be applied.
    ///
    /// # Errors
    /// If the API server did not answer, or refused: call it again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn withdraw(&mut self) -> Result<(), LockError> {
        let Some(directed) = &self.directed else { return Ok(()) };
        let write = async |family: Family| {
            change(&self.slices, &family.slice(&self.service), Mode::Withdraw, |slice| {
                Ok(self.withdrawing(slice, family, directed))
            })
            .await
        };
        let (four, six) = join(write(Family::V4), write(Family::V6)).await;
        four.and(six)?;
        self.directed = None;
        Ok(())
    }

    /// Directs requests here while `work` is done and the term lasts, and withdraws before it
    /// returns. Keep the [`Leadership`] until then: others may lead once it is dropped.
    ///
    /// `None` if the term ended before the work was done, which is then dropped. A failure to
    /// direct is logged, and retried while the term lasts; every 30 s if somebody has to mend
    /// something first.
    ///
    /// # Errors
    /// Of [`withdraw`](Self::withdraw), which is tried until the term's deadline, or for a second
    /// if that has passed.
    ///
    /// # Cancel safety
    /// If the future is dropped, requests are directed here until [`withdraw`](Self::withdraw).
    pub async fn while_leading<F: Future>(
        &mut self,
        leadership: &Leadership,
        work: F,
    ) -> Result<Option<F::Output>, LockError> {
        let follow = async {
            let mut until = leadership.deadline();
            let mut done = self.direct(leadership.token(), until).await;
            let mut logged = String::new();
            loop {
                if let Err(error) = &done {
                    let text = error.to_string();
                    if text != logged {
                        warn!(service = %self.service, %error, "requests are not directed here");
                        logged = text;
                    }
                    let may_pass = [LockErrorKind::Unavailable, LockErrorKind::OutcomeUnknown]
                        .contains(&error.kind());
                    tokio::time::sleep(if may_pass { RETRY } else { LOOK_AGAIN }).await;
                    until = leadership.deadline();
                    done = self.direct(leadership.token(), until).await;
                    continue;
                }
                logged.clear();
                let Ok(later) = leadership.renewed(until).await else { return };
                until = later;
                done = self.extend(until).await;
            }
        };
        let done = leadership
            .run(async {
                tokio::select! {
                    done = work => Some(done),
                    () = follow => None,
                }
            })
            .await;
        let until = match (leadership.deadline(), BootClock.now()) {
            (deadline, now) if now < deadline => deadline,
            (_, now) => now + LAST_ATTEMPT,
        };
        loop {
            match within(until, self.withdraw()).await {
                Err(_) if BootClock.now() < until => tokio::time::sleep(RETRY).await,
                withdrawn => return withdrawn.map(|()| done.ok().flatten()),
            }
        }
    }

    async fn destination(&self, until: Instant) -> Result<Destination, LockError> {
        self.own.check_name()?;
        let deadline = deadline_after(until.saturating_since(BootClock.now()));
        let service = async {
            let got = self.services.get(&self.service, deadline).await;
            got.map_err(read_error(&self.services, &self.service))
        };
        let pod = async {
            let got = self.own.pods.get(&self.own.name, deadline).await;
            got.map_err(read_error(&self.own.pods, &self.own.name))
        };
        let (service, pod) = try_join(service, pod).await?;
        let described = self.services.describe(&self.service);
        let service = service.ok_or_else(|| {
            misconfigured(format!("no {described}: create it, without a selector"))
        })?;
        slice::check_service(&described, &service)?;
        let pod = pod.filter(|pod| self.own.is(pod)).ok_or_else(|| self.own.missing())?;
        Destination::of(&service, &pod, &self.addresses)
    }

    /// What directs the requests of one family here, or empties the slice of a family that the
    /// Service no longer has. A slice with the endpoint of this pod is its own, also if somebody
    /// has changed its label or made its token unreadable.
    fn directing(
        &self,
        slice: Option<&Value>,
        family: Family,
        token: Token,
        destination: &Destination,
    ) -> Result<Edit, LockError> {
        let wanted = destination.slice(family, token);
        let is_own = slice.is_some_and(|slice| destination.is_in(slice, family));
        let is_ours =
            is_own || slice.is_some_and(|slice| slice::is_ours(slice, &self.service, family));
        let described = self.slices.describe(&family.slice(&self.service));
        match slice {
            _ if !is_ours && !destination.families.contains(&family) => Ok(Edit::Nothing),
            None => Ok(Edit::Create(wanted)),
            Some(_) if !is_ours => Err(misconfigured(format!(
                "the {described} is not one of this Service that incumbent manages: delete it"
            ))),
            Some(slice) => {
                if is_own && token_of(slice).is_none() {
                    return Ok(Edit::Merge(wanted));
                }
                let found = check_token(&described, slice, token, "delete the slice")?;
                let is_done = found == token && slice::says(slice, &wanted);
                Ok(if is_done { Edit::Nothing } else { Edit::Merge(wanted) })
            }
        }
    }

    /// What takes back the requests of one family. Unless it is certain that the slice has been
    /// written, it is written here, so that a write that is still under way is refused.
    fn withdrawing(&self, slice: Option<&Value>, family: Family, directed: &Directed) -> Edit {
        let Directed { token, destination, is_certain, .. } = directed;
        let empty = destination.empty_slice(family, *token);
        let Some(slice) = slice else {
            let is_absent = *is_certain || !destination.families.contains(&family);
            return if is_absent { Edit::Nothing } else { Edit::Create(empty) };
        };
        let (found, is_own) = (token_of(slice), destination.is_in(slice, family));
        let is_ours = is_own || slice::is_ours(slice, &self.service, family);
        if !is_ours || found.map_or(!is_own, |found| found > *token) {
            Edit::Nothing
        } else if !is_certain {
            Edit::Settle(empty)
        } else if found == Some(*token) && slice::is_empty(slice) {
            Edit::Nothing
        } else {
            Edit::Merge(empty)
        }
    }

    /// Refuses slices of others that send requests of the Service elsewhere. Without the permission
    /// to list them, nothing is refused.
    async fn check_other_slices(&self) -> Result<(), LockError> {
        let own = Family::ALL.map(|family| family.slice(&self.service));
        let deadline = deadline_after(REQUEST_TIMEOUT);
        let label = Some((slice::SERVICE_LABEL, &*self.service));
        let listed = self.slices.list(RecordLocation::Annotation, label, deadline).await;
        let listed = match listed {
            Ok(listed) => listed,
            Err(failure) if failure.code() == 403 => return Ok(()),
            Err(failure) => {
                return Err(self.slices.lock_error(failure, EVERY, "list", "list", false));
            }
        };
        let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        let mut names = items.filter_map(|slice| slice.pointer("/metadata/name")?.as_str());
        match names.find(|name| !own.iter().any(|own| own == name)) {
            None => Ok(()),
            Some(other) => Err(misconfigured(format!(
                "the {} sends requests of the {} to others: delete it, and Endpoints of that name",
                self.slices.describe(other),
                self.services.describe(&self.service)
            ))),
        }
    }
}
