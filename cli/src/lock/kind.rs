//! The kinds of Kubernetes objects that hold elections.

use clap::ValueEnum;
use incumbent::kubernetes::LifeResource;
use incumbent::lock_url::ObjectKind;

/// The kind of object that holds an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Kind {
    /// A Lease.
    #[default]
    Lease,
    /// The annotation of a ConfigMap, as older versions of client-go write it.
    #[value(name = "configmap")]
    ConfigMap,
    /// The annotation of an Endpoints object, as older versions of client-go write it.
    Endpoints,
    /// An object owned by the leader's pod for as long as the pod exists, as `incumbent life`
    /// creates it.
    ForLife,
}

/// The kind of the lock object of a leader for life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LifeKind {
    /// A ConfigMap without data, as operator-sdk creates it.
    #[default]
    #[value(name = "configmap")]
    ConfigMap,
    /// A Lease without a holder.
    Lease,
}

impl From<ObjectKind> for Kind {
    fn from(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::Lease => Self::Lease,
            ObjectKind::ConfigMap => Self::ConfigMap,
            ObjectKind::Endpoints => Self::Endpoints,
        }
    }
}

impl Kind {
    /// The objects of elections with leases; `None` for leaders for life.
    pub fn of_elections(self) -> Option<ObjectKind> {
        match self {
            Self::Lease => Some(ObjectKind::Lease),
            Self::ConfigMap => Some(ObjectKind::ConfigMap),
            Self::Endpoints => Some(ObjectKind::Endpoints),
            Self::ForLife => None,
        }
    }

    /// The API group and the resource, as in the rule of a Role.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Lease => LifeKind::Lease.resource(),
            Self::ConfigMap | Self::ForLife => LifeKind::ConfigMap.resource(),
            Self::Endpoints => ("", "endpoints"),
        }
    }

    /// As in `the Lease my-app`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lease => "Lease",
            Self::ConfigMap => "ConfigMap",
            Self::Endpoints => "Endpoints",
            Self::ForLife => "lock of a leader for life",
        }
    }
}

impl LifeKind {
    /// The API group and the resource, as in the rule of a Role.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "configmaps"),
            Self::Lease => ("coordination.k8s.io", "leases"),
        }
    }

    /// As in `the ConfigMap my-app`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Lease => "Lease",
        }
    }

    pub fn life_resource(self) -> LifeResource {
        match self {
            Self::ConfigMap => LifeResource::config_map(),
            Self::Lease => LifeResource::lease(),
        }
    }
}
