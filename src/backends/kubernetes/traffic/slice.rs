//! The content of a leader's EndpointSlice.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{TOKEN, misconfigured};
use crate::backends::kubernetes::life;
use crate::lock::{LockError, Token};
use crate::util::text::escape_line;

pub(super) const API_VERSION: &str = "discovery.k8s.io/v1";
/// The label that says which Service a slice belongs to.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "incumbent";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A family of IP addresses: a slice has addresses of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// As Kubernetes writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The name of the slice of a Service.
    pub(super) fn slice(self, service: &str) -> String {
        let suffix = match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        };
        format!("{service}-leader-{suffix}")
    }

    fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

/// Where the requests of a Service are to go.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Destination {
    service: String,
    /// A reference to the Service, with which its slices are deleted.
    owner: Value,
    pub(super) families: Vec<Family>,
    ports: Value,
    addresses: Vec<IpAddr>,
    /// An endpoint without addresses.
    endpoint: Value,
}

impl Destination {
    /// From a Service, a pod and, if they are known better, the addresses of that pod.
    pub(super) fn of(
        service: &Value,
        pod: &Value,
        addresses: &[IpAddr],
    ) -> Result<Self, LockError> {
        let name = text(service, "/metadata/name");
        let owner = json!({
            "apiVersion": "v1", "kind": "Service", "name": name, "uid": life::uid(service),
        });
        let mut endpoint = json!({
            "conditions": { "ready": true },
            "targetRef": {
                "kind": "Pod",
                "namespace": text(pod, "/metadata/namespace"),
                "name": text(pod, "/metadata/name"),
                "uid": life::uid(pod),
            },
        });
        if let Some(node) = life::node(pod) {
            endpoint["nodeName"] = node.into();
        }
        if let Some(zone) =
            pod.pointer("/metadata/labels").and_then(|labels| labels.get(ZONE_LABEL))
        {
            endpoint["zone"] = zone.clone();
        }
        let families = items(service, "/spec/ipFamilies").filter_map(Value::as_str);
        let families = families
            .filter_map(|name| Family::ALL.into_iter().find(|family| family.name() == name))
            .collect();
        let addresses = match addresses {
            [] => items(pod, "/status/podIPs")
                .filter_map(|entry| entry.get("ip")?.as_str()?.parse().ok())
                .collect(),
            given => given.to_vec(),
        };
        let ports = ports(service, pod)?;
        Ok(Self { service: name.to_owned(), owner, families, ports, addresses, endpoint })
    }

    /// Whether the pod has an address that the Service can use.
    pub(super) fn is_reachable(&self) -> bool {
        self.families.iter().any(|family| !self.endpoints(*family).is_empty())
    }

    /// The slice that directs requests to the leader of this term.
    pub(super) fn slice(&self, family: Family, token: Token) -> Value {
        self.with(family, token, self.endpoints(family))
    }

    /// The slice that directs requests to nobody.
    pub(super) fn empty_slice(&self, family: Family, token: Token) -> Value {
        self.with(family, token, vec![])
    }

    /// Whether a slice directs requests to this very pod, and not to a later one of its name.
    pub(super) fn is_in(&self, slice: &Value, family: Family) -> bool {
        let uid = text(&self.endpoint, "/targetRef/uid");
        text(slice, "/addressType") == family.name()
            && items(slice, "/endpoints").any(|endpoint| text(endpoint, "/targetRef/uid") == uid)
    }

    fn endpoints(&self, family: Family) -> Vec<Value> {
        let addresses: Vec<_> =
            self.addresses.iter().filter(|address| family.has(**address)).collect();
        if addresses.is_empty() || !self.families.contains(&family) {
            return vec![];
        }
        let mut endpoint = self.endpoint.clone();
        endpoint["addresses"] = json!(addresses);
        vec![endpoint]
    }

    fn with(&self, family: Family, token: Token, endpoints: Vec<Value>) -> Value {
        json!({
            "apiVersion": API_VERSION,
            "kind": "EndpointSlice",
            "metadata": {
                "name": family.slice(&self.service),
                "labels": { SERVICE_LABEL: self.service, MANAGER_LABEL: MANAGER },
                "annotations": { TOKEN: token.to_string() },
                "ownerReferences": [self.owner],
            },
            "addressType": family.name(),
            "endpoints": endpoints,
            "ports": self.ports,
        })
    }
}

/// Why a Service cannot follow a leader, if it cannot.
pub(super) fn check_service(described: &str, service: &Value) -> Result<(), LockError> {
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    if selector.is_some_and(|selector| !selector.is_empty()) {
        return Err(misconfigured(format!(
            "the {described} has a selector, so Kubernetes sends its requests to all of those pods: remove the selector"
        )));
    }
    if text(service, "/spec/type") == "ExternalName" {
        return Err(misconfigured(format!(
            "the {described} is of type ExternalName, which has no endpoints: use another type"
        )));
    }
    Ok(())
}

/// Whether a slice is one that this library writes for the Service.
pub(super) fn is_ours(slice: &Value, service: &str, family: Family) -> bool {
    let label = |key| slice.pointer("/metadata/labels").and_then(|labels| labels.get(key));
    label(MANAGER_LABEL).and_then(Value::as_str) == Some(MANAGER)
        && label(SERVICE_LABEL).and_then(Value::as_str) == Some(service)
        && text(slice, "/addressType") == family.name()
}

/// Whether a slice directs requests to anybody.
pub(super) fn is_empty(slice: &Value) -> bool {
    items(slice, "/endpoints").next().is_none()
}

/// Whether a slice directs requests to this pod.
pub(super) fn names_pod(slice: &Value, pod: &str) -> bool {
    items(slice, "/endpoints").any(|endpoint| text(endpoint, "/targetRef/name") == pod)
}

/// Whether a slice says what is to be written; the server adds fields of its own.
pub(super) fn says(slice: &Value, wanted: &Value) -> bool {
    contains(slice.get("endpoints"), wanted.get("endpoints"))
        && contains(slice.get("ports"), wanted.get("ports"))
        && contains(slice.pointer("/metadata/labels"), wanted.pointer("/metadata/labels"))
}

fn contains(whole: Option<&Value>, part: Option<&Value>) -> bool {
    match (whole, part) {
        (Some(Value::Object(whole)), Some(Value::Object(part))) => {
            part.iter().all(|(key, value)| contains(whole.get(key), Some(value)))
        }
        (Some(Value::Array(whole)), Some(Value::Array(part))) => {
            whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| contains(Some(whole), Some(part)))
        }
        (None | Some(Value::Null), Some(Value::Array(part))) => part.is_empty(),
        (whole, part) => whole == part,
    }
}

/// The ports of a Service, as a pod has them.
fn ports(service: &Value, pod: &Value) -> Result<Value, LockError> {
    let ports = items(service, "/spec/ports").map(|port| {
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        let number = match port.get("targetPort") {
            None | Some(Value::Null) => port.get("port").cloned().unwrap_or_default(),
            Some(Value::String(name)) => container_port(pod, name, protocol).ok_or_else(|| {
                misconfigured(format!(
                    "no container of the pod {} has a port named {} ({protocol}), which the Service {} directs to: name it, or use a number as targetPort",
                    escape_line(text(pod, "/metadata/name"), 253),
                    escape_line(name, 63),
                    escape_line(text(service, "/metadata/name"), 63),
                ))
            })?,
            Some(number) => number.clone(),
        };
        let mut made = json!({
            "name": port.get("name").and_then(Value::as_str).unwrap_or_default(),
            "protocol": protocol,
            "port": number,
        });
        if let Some(app) = port.get("appProtocol").filter(|app| app.is_string()) {
            made["appProtocol"] = app.clone();
        }
        Ok(made)
    });
    ports.collect::<Result<Vec<_>, LockError>>().map(Value::Array)
}

/// The port of this name, among the containers that run beside each other.
fn container_port(pod: &Value, name: &str, protocol: &str) -> Option<Value> {
    let sidecar = |container: &&Value| text(container, "/restartPolicy") == "Always";
    let containers =
        items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers").filter(sidecar));
    let mut ports = containers.flat_map(|container| items(container, "/ports"));
    let port = ports.find(|port| {
        let of = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        text(port, "/name") == name && of == protocol
    })?;
    port.get("containerPort").cloned()
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
