//! The leader's pod, marked as such.

use serde_json::{Map, Value, json};

use super::{Edit, Mode, OwnPod, TOKEN, change, check_token, misconfigured, token_of, within};
use crate::backends::kubernetes::api::{EVERY, REQUEST_TIMEOUT};
use crate::backends::kubernetes::cluster::Cluster;
use crate::backends::kubernetes::record::{RecordLocation, annotation};
use crate::backends::kubernetes::resource::check_object_name;
use crate::lock::{LockError, Token};
use crate::time::clock::{BootClock, Clock, Instant};
use crate::time::timer::deadline_after;

/// A ReplicaSet that becomes smaller deletes the pods with the lowest cost first; 0 without one.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The longest part of a label's name, and the longest value.
const MAX_LABEL_LEN: usize = 63;

/// Marks the leader's pod: by a label, and by what its deletion costs.
///
/// The label is for selectors (`kubectl get pods -l role=leader`, a Service with a selector, a
/// NetworkPolicy). Prefer [`ServiceFollowsLeader`](super::ServiceFollowsLeader) for requests: a
/// label stays on the pod of a leader that crashed, until its container starts again or the next
/// leader removes it. One election has a label in a namespace, and one marks a pod.
///
/// ```no_run
/// use incumbent::kubernetes::{Cluster, LeaderPod};
///
/// # async fn example(election: incumbent::Election) -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::infer().await?;
/// let mut pod = LeaderPod::new(&cluster).label("role", "leader")?.deletion_cost(100);
/// pod.clean().await?; // what an earlier process of this pod has left
/// pod.check().await?;
/// let leadership = election.won().await?;
/// pod.direct(leadership.token(), leadership.deadline()).await?;
/// let _ = leadership.run(async { /* the work of a leader */ }).await;
/// pod.withdraw().await?; // before the leadership is dropped
/// # Ok(())
/// # }
/// ```
///
/// # Permissions
/// `get` and `patch` of pods, and `list` with a label.
#[derive(Debug)]
pub struct LeaderPod {
    own: OwnPod,
    label: Option<(String, String)>,
    deletion_cost: Option<i32>,
    /// The term whose marks this process may have written and has not removed.
    directed: Option<Directed>,
}

#[derive(Debug, Clone, Copy)]
struct Directed {
    token: Token,
    /// Whether the write was answered.
    is_certain: bool,
}

impl LeaderPod {
    /// Describes the pod of this process in the cluster's namespace, `POD_NAME` or else the host's
    /// name, without a mark yet. Sends no request.
    pub fn new(cluster: &Cluster) -> Self {
        Self { own: OwnPod::new(cluster), label: None, deletion_cost: None, directed: None }
    }

    /// Sets the name of this process's pod, if it is neither in `POD_NAME` nor the host's name.
    #[must_use]
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.own = self.own.named(name.into());
        self
    }

    /// Sets the label of the leader's pod. The next leader removes it from all other pods of the
    /// namespace.
    ///
    /// # Errors
    /// If they cannot be a label.
    pub fn label(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Self, LockError> {
        let (key, value) = (key.into(), value.into());
        let name = key.rsplit_once('/').map_or(&*key, |(_, name)| name);
        let fits = |text: &str| {
            let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
            let inside = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            text.len() <= MAX_LABEL_LEN
                && text.bytes().all(inside)
                && ends(text.chars().next())
                && ends(text.chars().next_back())
        };
        let prefix = key.strip_suffix(name).unwrap_or_default();
        let prefix_fits = prefix.is_empty()
            || prefix.strip_suffix('/').is_some_and(|domain| check_object_name(domain).is_ok());
        if name.is_empty() || value.is_empty() || !fits(name) || !fits(&value) || !prefix_fits {
            return Err(misconfigured(format!(
                "{key:?}={value:?} cannot be a label: name and value are 1 to {MAX_LABEL_LEN} letters, digits, '-', '_' and '.' that begin and end with a letter or digit, as in role=leader or example.com/role=leader"
            )));
        }
        self.label = Some((key, value));
        Ok(self)
    }

    /// Sets what the deletion of the leader's pod costs: a ReplicaSet that becomes smaller deletes
    /// pods with a lower cost first, and pods that state none have the cost 0. The annotation is
    /// written twice in a term.
    #[must_use]
    pub fn deletion_cost(mut self, cost: i32) -> Self {
        self.deletion_cost = Some(cost);
        self
    }

    /// Refuses what cannot work, before the first term: a missing pod, a missing permission, a mark
    /// that somebody else has set on the pod. The API server checks the write, and writes nothing.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::lock::LockErrorKind::Misconfigured) and
    /// [`Denied`](crate::lock::LockErrorKind::Denied) in one line that says what to do; others if
    /// the API server did not answer.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn check(&self) -> Result<(), LockError> {
        self.own.check_name()?;
        self.others(BootClock.now() + REQUEST_TIMEOUT).await?;
        self.change_own(Mode::DryRun, |pod| {
            let pod = pod.ok_or_else(|| self.own.missing())?;
            self.check_marks(pod)?;
            Ok(Edit::Merge(self.marks(Some(Token(0)))))
        })
        .await
    }

    /// Removes the marks that an earlier process of this pod has left.
    ///
    /// # Errors
    /// If the API server did not answer, or refused.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn clean(&mut self) -> Result<(), LockError> {
        self.own.check_name()?;
        let withdrawn = self.withdraw().await;
        let cleaned = self.change_own(Mode::Withdraw, |pod| {
            Ok(match pod {
                None => Edit::Nothing,
                Some(pod) if annotation(pod, TOKEN).is_some() => Edit::Settle(self.marks(None)),
                Some(_) => Edit::Settle(json!({})),
            })
        });
        cleaned.await.and(withdrawn)
    }

    /// Removes the label from all other pods, and marks this one, for the term with this token.
    /// Sends nothing after `until`, the term's deadline on the [`BootClock`].
    ///
    /// # Errors
    /// After an error part of it may have been written: call it again, or
    /// [`withdraw`](Self::withdraw).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn direct(&mut self, token: Token, until: Instant) -> Result<(), LockError> {
        self.own.check_name()?;
        let write = async {
            for other in self.others(until).await? {
                change(&self.own.pods, &other, Mode::Until(until), |pod| {
                    let left = pod.filter(|pod| self.is_left(pod));
                    Ok(left.map_or(Edit::Nothing, |_| Edit::Merge(self.no_label())))
                })
                .await?;
            }
            self.directed = Some(Directed { token, is_certain: false });
            self.change_own(Mode::Until(until), |pod| {
                let pod = pod.ok_or_else(|| self.own.missing())?;
                check_token(
                    &self.own.pods.describe(&self.own.name),
                    pod,
                    token,
                    "remove its annotation incumbent/token",
                )?;
                Ok(Edit::Merge(self.marks(Some(token))))
            })
            .await?;
            self.directed = Some(Directed { token, is_certain: true });
            Ok(())
        };
        within(until, write).await
    }

    /// Whether nothing is left to withdraw.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.directed.is_none()
    }

    /// Removes the marks of this pod. Also right after a [`direct`](Self::direct) that failed or
    /// was cut off: its write is then either undone or can no longer be applied.
    ///
    /// # Errors
    /// If the API server did not answer, or refused: call it again.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn withdraw(&mut self) -> Result<(), LockError> {
        let Some(Directed { token, is_certain }) = self.directed else { return Ok(()) };
        self.change_own(Mode::Withdraw, |pod| {
            Ok(match pod {
                Some(pod) if token_of(pod).is_some_and(|found| found <= token) => {
                    match is_certain {
                        true if annotation(pod, TOKEN).is_none() => Edit::Nothing,
                        true => Edit::Merge(self.marks(None)),
                        false => Edit::Settle(self.marks(None)),
                    }
                }
                _ => Edit::Nothing, // the pod is gone, or marked by a later process
            })
        })
        .await?;
        self.directed = None;
        Ok(())
    }

    /// Changes the pod of this process; `None` if it is gone.
    async fn change_own(
        &self,
        mode: Mode,
        mut edit: impl FnMut(Option<&Value>) -> Result<Edit, LockError>,
    ) -> Result<(), LockError> {
        let own = &self.own;
        change(&own.pods, &own.name, mode, |pod| edit(pod.filter(|pod| own.is(pod)))).await
    }

    /// The fields that mark a pod for a term, or remove the marks.
    fn marks(&self, token: Option<Token>) -> Value {
        let value = |value: String| token.map(|_| value);
        let labels: Map<_, _> =
            self.label.iter().map(|(key, of)| (key.clone(), json!(value(of.clone())))).collect();
        let costs = self.deletion_cost.map(|cost| json!(value(cost.to_string())));
        let mut annotations = json!({ TOKEN: token.map(|token| token.to_string()) });
        if let Some(cost) = costs {
            annotations[DELETION_COST] = cost;
        }
        json!({ "metadata": { "labels": labels, "annotations": annotations } })
    }

    fn no_label(&self) -> Value {
        json!({ "metadata": { "labels": self.marks(None)["metadata"]["labels"] } })
    }

    /// Refuses to overwrite what somebody else has set.
    fn check_marks(&self, pod: &Value) -> Result<(), LockError> {
        if annotation(pod, TOKEN).is_some() {
            return Ok(());
        }
        let described = self.own.pods.describe(&self.own.name);
        let labels = pod.pointer("/metadata/labels");
        if let Some((key, value)) = &self.label
            && let Some(found) = labels.and_then(|labels| labels.get(key)?.as_str())
            && found != value
        {
            return Err(misconfigured(format!(
                "the {described} has the label {key}={found} already: use another key"
            )));
        }
        if self.deletion_cost.is_some() && annotation(pod, DELETION_COST).is_some() {
            return Err(misconfigured(format!(
                "the {described} has the annotation {DELETION_COST} already: remove it, or set no deletion cost here"
            )));
        }
        Ok(())
    }

    fn has_label(&self, pod: &Value) -> bool {
        self.label.as_ref().is_some_and(|(key, value)| {
            let labels = pod.pointer("/metadata/labels");
            labels.and_then(|labels| labels.get(key)?.as_str()) == Some(value)
        })
    }

    /// Whether a leader has left its label.
    fn is_left(&self, pod: &Value) -> bool {
        annotation(pod, TOKEN).is_some() && self.has_label(pod)
    }

    /// The names of the other pods with the label of a leader.
    async fn others(&self, until: Instant) -> Result<Vec<String>, LockError> {
        let Some((key, value)) = &self.label else { return Ok(vec![]) };
        let label = Some((&**key, &**value));
        let deadline = deadline_after(until.saturating_since(BootClock.now()));
        let listed = self.own.pods.list(RecordLocation::Annotation, label, deadline).await;
        let listed = listed
            .map_err(|failure| self.own.pods.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        let left = items.filter(|pod| self.is_left(pod));
        let names = left.filter_map(|pod| pod.pointer("/metadata/name")?.as_str());
        Ok(names.filter(|name| *name != self.own.name).map(str::to_owned).collect())
    }
}
