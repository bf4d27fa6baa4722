//! The flags of Kubernetes, and the objects that they select.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use incumbent::kubernetes::{Cluster, LeaseTiming, LifeLocks};
use incumbent::lock::{Lock, LockError, Reading};
use incumbent::lock_url::{KubernetesObjects, ObjectKind};

use super::kind::{Kind, LifeKind};
use crate::error::one_line;
use crate::error::{CliError, Code};

/// A lock that is open, for a candidate.
pub struct OpenedLock {
    pub lock: Arc<dyn Lock>,
    /// How long each write entitles the leader to lead.
    pub lease: Duration,
    /// The lease to set on the election; `None` if the lock sets it.
    pub lease_override: Option<Duration>,
}

/// The longest name of an object.
const MAX_OBJECT_NAME_LEN: usize = 253;

/// A namespace, and the credentials for it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lock")]
pub struct NamespaceArgs {
    /// With Kubernetes: the namespace of the objects [env: POD_NAMESPACE] [default: that of the
    /// kubeconfig's context or of the pod].
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// With Kubernetes: the file with the API server's address and credentials [env: KUBECONFIG]
    /// [default: ~/.kube/config, else the pod's service account].
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// The objects of the elections.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lock")]
pub struct KubernetesArgs {
    /// With Kubernetes: the kind of the objects [default: lease].
    #[arg(long, global = true, value_enum)]
    kind: Option<Kind>,
    /// With --kind for-life: the kind of the lock object [default: configmap].
    #[arg(long, global = true, value_enum)]
    life_kind: Option<LifeKind>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
}

/// The locks of leaders for life in a namespace.
pub struct LifeObjects {
    pub cluster: Cluster,
    pub kind: LifeKind,
    pub locks: Arc<LifeLocks>,
    pub timeout: Duration,
}

/// The objects of a namespace.
pub struct ElectionObjects {
    named: KubernetesObjects,
    cluster: Cluster,
    /// The lock, which has no object yet.
    pub lock: Arc<dyn Lock>,
    pub timeout: Duration,
}

impl NamespaceArgs {
    /// The objects of the namespace, without a request. `context`: of the kubeconfig.
    fn objects(&self, context: Option<&str>) -> Result<KubernetesObjects, CliError> {
        let mut objects = KubernetesObjects::new(self.namespace.as_deref())?;
        objects.kubeconfig.clone_from(&self.kubeconfig);
        objects.context = context.map(str::to_owned);
        Ok(objects)
    }

    /// Reads the configuration of the API server, without a request to it. `context`: of the
    /// kubeconfig.
    pub async fn open(&self, context: Option<&str>) -> Result<Cluster, CliError> {
        let cluster = self.objects(context)?.cluster().await;
        cluster.map_err(|error| CliError::new(Code::Usage, one_line(&error)))
    }
}

impl KubernetesArgs {
    /// The objects that the flags select; `None` for those of leaders for life.
    pub fn objects(&self, context: Option<&str>) -> Result<Option<KubernetesObjects>, CliError> {
        let Some(kind) = self.kind.unwrap_or_default().of_elections() else { return Ok(None) };
        if self.life_kind.is_some() {
            let message = "--life-kind requires --kind for-life";
            return Err(CliError::new(Code::Usage, message));
        }
        let mut objects = self.namespace.objects(context)?;
        objects.kind = kind;
        Ok(Some(objects))
    }

    /// Reads the configuration of the API server, without a request to it.
    pub async fn for_life(
        &self,
        context: Option<&str>,
        timeout: Duration,
    ) -> Result<LifeObjects, CliError> {
        let cluster = self.namespace.open(context).await?;
        let kind = self.life_kind.unwrap_or_default();
        let locks = Arc::new(cluster.life_locks(&kind.life_resource()));
        Ok(LifeObjects { cluster, kind, locks, timeout })
    }
}

impl LifeObjects {
    pub fn namespace(&self) -> &str {
        self.cluster.namespace()
    }

    /// Refuses an invalid object name.
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        check_life_name(&self.cluster, self.kind, name)
    }
}

/// Refuses an invalid lock name.
pub fn check_life_name(cluster: &Cluster, kind: LifeKind, name: &str) -> Result<(), CliError> {
    if cluster.lease_lock().check_name(name).is_ok() {
        return Ok(());
    }
    let message = format!(
        "{name:?} is not a valid name of a {}, which is the lock: choose another election name{}",
        kind.name(),
        example(name)
    );
    Err(CliError::new(Code::Usage, message))
}

impl ElectionObjects {
    pub fn new(named: KubernetesObjects, cluster: Cluster, timeout: Duration) -> Self {
        let lock = named.lock(&cluster);
        Self { named, cluster, lock, timeout }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The lock with this timing.
    pub fn lock_with(&self, timing: LeaseTiming) -> Arc<dyn Lock> {
        let mut named = self.named.clone();
        named.timing = Some(timing);
        named.lock(&self.cluster)
    }

    /// Creates the object of a new election.
    pub async fn create(&self, name: &str) -> Result<u64, LockError> {
        let (cluster, timeout) = (&self.cluster, self.timeout);
        match self.named.kind {
            ObjectKind::Lease => cluster.lease_lock().create(name, timeout).await,
            ObjectKind::ConfigMap => cluster.config_map_lock().create(name, timeout).await,
            ObjectKind::Endpoints => cluster.endpoints_lock().create(name, timeout).await,
        }
    }

    pub fn kind(&self) -> Kind {
        self.named.kind.into()
    }

    pub fn namespace(&self) -> &str {
        self.cluster.namespace()
    }

    /// Refuses an invalid object name.
    pub fn check_name(&self, name: &str) -> Result<(), CliError> {
        if self.cluster.lease_lock().check_name(name).is_ok() {
            return Ok(());
        }
        let kind = self.kind().name();
        let hint = format!(
            "candidates of {name:?} set the {kind} with --object: use that name{}",
            example(name)
        );
        Err(CliError::new(Code::Usage, format!("{name:?} is not a valid name of a {kind}: {hint}")))
    }

    /// Refuses a missing namespace, after nothing else was found.
    pub async fn check_namespace(&self) -> Result<(), CliError> {
        match self.lock.admin() {
            Some(admin) => Ok(admin.check_exists(self.timeout).await?),
            None => Ok(()),
        }
    }

    /// Opens the lock of one election, and reads it once. `many`: of others too, each of which has
    /// an object of its own.
    pub async fn open_lock(
        &self,
        name: &str,
        object: Option<&str>,
        lease: Option<Duration>,
        many: bool,
    ) -> Result<OpenedLock, CliError> {
        let timing = timing(lease)?;
        let (cluster, object) = (&self.cluster, object.unwrap_or(name));
        let mut named = self.named.clone();
        named.object = (!many).then(|| object.to_owned());
        named.timing = Some(timing);
        let lock = named.lock(cluster);
        if lock.check_name(name).is_err() {
            let kind = self.kind().name();
            let message = match name.rsplit_once('.').filter(|_| many) {
                // Each shard has an object of its own, and its name is that of its election.
                Some((set, _)) => format!(
                    "{set:?} cannot be the name, as {name:?} is not a valid name of a {kind}: choose another one{}",
                    example(set)
                ),
                None => format!(
                    "{object:?} is not a valid name of a {kind}: set one with --object{}, or choose another election name",
                    example(object)
                ),
            };
            return Err(CliError::new(Code::Usage, message));
        }
        if let Reading::Empty { .. } = lock.read(name, self.timeout).await? {
            self.check_namespace().await?;
        }
        Ok(OpenedLock { lock, lease: timing.lease(), lease_override: None })
    }
}

/// The timing of a candidate with this lease.
pub fn timing(lease: Option<Duration>) -> Result<LeaseTiming, CliError> {
    let Some(lease) = lease else { return Ok(LeaseTiming::default()) };
    LeaseTiming::of_lease(lease).map_err(|error| CliError::new(Code::Usage, one_line(&error)))
}

/// A valid object name that resembles the election's name; nothing if that is too long.
fn example(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    if name.len() > MAX_OBJECT_NAME_LEN {
        return String::new();
    }
    let name: String = name.chars().map(|c| fit(c.to_ascii_lowercase())).collect();
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| part.trim_matches('-'))
        .filter(|part| !part.is_empty())
        .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(", as in {}", parts.join(".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_object_name_gets_a_valid_example() {
        assert_eq!(example("my_app"), ", as in my-app");
        assert_eq!(example("_My.App/2_"), ", as in my.app-2");
        assert_eq!(example("___"), "");
        assert_eq!(example(&"a".repeat(254)), "", "too long");
    }
}
