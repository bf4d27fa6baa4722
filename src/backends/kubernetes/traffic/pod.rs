//! The leader's pod, marked as such.

use serde_json::{Map, Value, json};

use super::{
    Edit, Mode, TOKEN, change, check_pod_name, misconfigured, no_pod, pods, token_of, within,
};
use crate::backends::kubernetes::api::{EVERY, Objects, REQUEST_TIMEOUT};
use crate::backends::kubernetes::cluster::Cluster;
use crate::backends::kubernetes::record::annotation;
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
/// leader removes it. One election marks a pod.
///
/// ```no_run
/// use incumbent::kubernetes::{Cluster, LeaderPod};
///
/// # async fn example(election: incumbent::Election) -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::infer().await?;
/// let mut pod = LeaderPod::new(&cluster).label("role", "leader")?.deletion_cost(100);
/// pod.check().await?;
/// let leadership = election.won().await?;
/// pod.direct(leadership.token(), leadership.deadline()).await?;
/// let _ = leadership.run(async { /* the work of a leader */ }).await;
/// pod.withdraw().await?; // before the leadership is dropped
/// # Ok(())
/// # }
/// ```
///
/// # Rights
/// `get` and `patch` of pods, and `list` with a label.
#[derive(Debug)]
pub struct LeaderPod {
    pods: Objects,
    pod: String,
    label: Option<(String, String)>,
    deletion_cost: Option<i32>,
    /// The term whose marks this process may have written and has not removed.
    directed: Option<Token>,
}

impl LeaderPod {
    /// Describes the pod of this process in the cluster's namespace, `POD_NAME` or else the host's
    /// name, without a mark yet. Sends no request.
    pub fn new(cluster: &Cluster) -> Self {
        let pod = cluster.pod_name();
        Self { pods: pods(cluster), pod, label: None, deletion_cost: None, directed: None }
    }

    /// Sets the name of this process's pod, if it is neither in `POD_NAME` nor the host's name.
    #[must_use]
    pub fn pod(mut self, name: impl Into<String>) -> Self {
        self.pod = name.into();
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

    /// Refuses what cannot work, before the first term: a missing pod, a missing right. The API
    /// server checks the write, and writes nothing.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::lock::LockErrorKind::Misconfigured) and
    /// [`Denied`](crate::lock::LockErrorKind::Denied) in one line that says what to do; others if
    /// the API server did not answer.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn check(&self) -> Result<(), LockError> {
        check_pod_name(&self.pod)?;
        self.others(BootClock.now() + REQUEST_TIMEOUT).await?;
        change(&self.pods, &self.pod, Mode::DryRun, |pod| self.marking(pod, Token(0))).await
    }

    /// Removes the marks that an earlier process of this pod has left.
    ///
    /// # Errors
    /// If the API server did not answer, or refused.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, and the method called again.
    pub async fn clean(&mut self) -> Result<(), LockError> {
        self.withdraw().await?;
        change(&self.pods, &self.pod, Mode::Withdraw, |pod| {
            let left = pod.filter(|pod| annotation(pod, TOKEN).is_some() && self.is_marked(pod));
            Ok(left.map_or(Edit::Nothing, |_| Edit::Merge(self.marks(false, None))))
        })
        .await
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
        let write = async {
            for other in self.others(until).await? {
                change(&self.pods, &other, Mode::Until(until), |pod| {
                    let marked = pod.filter(|pod| self.has_label(pod));
                    Ok(marked.map_or(Edit::Nothing, |_| Edit::Merge(self.marks(false, None))))
                })
                .await?;
            }
            self.directed = Some(token);
            change(&self.pods, &self.pod, Mode::Until(until), |pod| self.marking(pod, token)).await
        };
        within(until, write).await
    }

    /// Does nothing: marks need no renewal.
    ///
    /// # Errors
    /// None.
    pub async fn extend(&mut self, _until: Instant) -> Result<(), LockError> {
        Ok(())
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
        let Some(token) = self.directed else { return Ok(()) };
        change(&self.pods, &self.pod, Mode::Withdraw, |pod| {
            let Some(pod) = pod else { return Ok(Edit::Nothing) };
            let is_done = token_of(pod) == Some(token) && !self.is_marked(pod);
            Ok(if is_done { Edit::Nothing } else { Edit::Merge(self.marks(false, Some(token))) })
        })
        .await?;
        self.directed = None;
        Ok(())
    }

    fn marking(&self, pod: Option<&Value>, token: Token) -> Result<Edit, LockError> {
        match pod {
            None => Err(no_pod(&self.pods, &self.pod)),
            Some(_) => Ok(Edit::Merge(self.marks(true, Some(token)))),
        }
    }

    /// The fields that mark a pod, or remove the marks.
    fn marks(&self, set: bool, token: Option<Token>) -> Value {
        let (mut labels, mut annotations) = (Map::new(), Map::new());
        let value = |value: String| if set { Value::String(value) } else { Value::Null };
        if let Some((key, of)) = &self.label {
            labels.insert(key.clone(), value(of.clone()));
        }
        if let Some(cost) = self.deletion_cost {
            annotations.insert(DELETION_COST.to_owned(), value(cost.to_string()));
        }
        if let Some(token) = token {
            annotations.insert(TOKEN.to_owned(), Value::String(token.to_string()));
        }
        json!({ "metadata": { "labels": labels, "annotations": annotations } })
    }

    fn has_label(&self, pod: &Value) -> bool {
        self.label.as_ref().is_some_and(|(key, value)| {
            let labels = pod.pointer("/metadata/labels");
            labels.and_then(|labels| labels.get(key)?.as_str()) == Some(value)
        })
    }

    fn is_marked(&self, pod: &Value) -> bool {
        let costs = self.deletion_cost.is_some() && annotation(pod, DELETION_COST).is_some();
        costs || self.has_label(pod)
    }

    /// The names of the other pods with the label.
    async fn others(&self, until: Instant) -> Result<Vec<String>, LockError> {
        let Some((key, value)) = &self.label else { return Ok(vec![]) };
        let by = deadline_after(until.saturating_since(BootClock.now()));
        let listed = self.pods.list_labelled(key, value, by).await;
        let listed = listed
            .map_err(|failure| self.pods.lock_error(failure, EVERY, "list", "list", false))?;
        let items = listed.get("items").and_then(Value::as_array).into_iter().flatten();
        let names = items.filter_map(|pod| pod.pointer("/metadata/name")?.as_str());
        Ok(names.filter(|name| *name != self.pod).map(str::to_owned).collect())
    }
}
