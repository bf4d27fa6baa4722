//! Checks on Kubernetes: the API server, the permissions, and the object of an election.

use std::time::Duration;

use incumbent::kubernetes::{Cluster, Permission, ServerFacts};
use incumbent::lock::{Finding, LockAdmin, LockError, LockErrorKind};

use super::context::CheckContext;
use super::context::Role::{self, Administrator, Candidate, Observer};
use super::permissions::{self, Need, ROLES, report_missing};
use super::report::{Level, Report};
use super::server::{self, Samples};
use crate::error::CliError;
use crate::error::one_line;
use crate::lock::{ElectionObjects, Kind, LifeObjects, timing};
use crate::output::text::printable;
use crate::output::time_format;

const SERVER: &str = "server";
const OBJECT: &str = "object";

/// Checks elections with leases.
pub async fn elections(
    objects: &ElectionObjects,
    name: Option<&str>,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let CheckContext { role, lease, .. } = context;
    name.map_or(Ok(()), |name| objects.check_name(name))?;
    let (cluster, timeout) = (objects.cluster(), objects.timeout);
    let timing = timing(lease)?;
    let Some(spans) = server(cluster, timeout, report).await else { return Ok(()) };
    let lock = objects.lock_with(timing);
    server::round_trip(&spans, lock.capabilities().timing(lock.timing()), report);
    namespace(cluster, timeout, report).await;
    let mut found = match lock.admin() {
        Some(admin) => admin.diagnose(name, timeout).await.transpose(),
        None => None,
    };
    if let (Some(Ok(found)), None) = (&mut found, lease) {
        // The other candidates' lease is not known to be wrong.
        found.retain(|finding| finding.code() != "other-lease");
    }
    let absent =
        matches!(&found, Some(Ok(found)) if found.iter().any(|finding| finding.code() == "absent"));
    let answers = name.map(|name| format!("{name}-roll-call"));
    let mut needs = needs_of_elections(objects.kind(), name, absent);
    if objects.kind() == Kind::Lease {
        roll_calls(&mut needs, name, answers.as_deref());
    }
    let checkpoint = name.filter(|_| context.checkpoint).map(|name| format!("{name}-checkpoint"));
    if let Some(checkpoint) = &checkpoint {
        let (group, resource) = objects.kind().resource();
        needs.extend(["get", "update"].map(|verb| Need {
            permission: Permission::new(verb, group, resource).of(Some(checkpoint)),
            needed_by: &[Candidate],
            useful_to: &[],
        }));
    }
    check_permissions(cluster, needs, name, (role, timeout), report).await;
    object(found, objects.kind().name(), report);
    Ok(())
}

/// Checks leaders for life.
pub async fn for_life(
    locks: &LifeObjects,
    name: Option<&str>,
    role: Role,
    report: &mut Report,
) -> Result<(), CliError> {
    name.map_or(Ok(()), |name| locks.check_name(name))?;
    let (cluster, timeout) = (&locks.cluster, locks.timeout);
    if server(cluster, timeout, report).await.is_none() {
        return Ok(());
    }
    namespace(cluster, timeout, report).await;
    let (group, resource) = locks.kind.resource();
    let needs = needs_for_life(group, resource, name);
    check_permissions(cluster, needs, name, (role, timeout), report).await;
    let found = locks.locks.diagnose(name, timeout).await.transpose();
    object(found, locks.kind.name(), report);
    Ok(())
}

/// Checks the server's version and clock. Returns the sorted durations of requests; `None` if there
/// is no response.
async fn server(
    cluster: &Cluster,
    timeout: Duration,
    report: &mut Report,
) -> Option<Vec<Duration>> {
    // The header has whole seconds: assume the middle of the second, plus or minus a half.
    const HALF: time::Duration = time::Duration::milliseconds(500);
    let clock = |facts: &ServerFacts| {
        let date = facts.date.and_then(time_format::from_system)?;
        Some((date.saturating_add(HALF), HALF))
    };
    let (asked, ended) = Samples::take(async || cluster.server(timeout).await, clock).await;
    if let Err(error) = ended {
        report.error(SERVER, one_line(&error));
        return None;
    }
    match asked.last.and_then(|facts| facts.version) {
        Some(version) => report.ok(SERVER, format!("Kubernetes {}", printable(&version))),
        None => report.unknown(SERVER, "reachable, version unknown"),
    }
    let what = "times of records, and which leader is overdue, do";
    server::clock(asked.offset, what, report);
    Some(asked.spans)
}

async fn namespace(cluster: &Cluster, timeout: Duration, report: &mut Report) {
    const CHECK: &str = "namespace";
    let name = cluster.namespace();
    match cluster.has_namespace(timeout).await {
        Ok(true) => report.ok(CHECK, format!("{name} exists")),
        Ok(false) => {
            report.error(CHECK, format!("no namespace {name}: create it, or choose another"));
        }
        Err(error) if error.kind() == LockErrorKind::Denied => {
            report.unknown(CHECK, format!("{name}: cannot be checked without the right to get it"));
        }
        Err(error) => report.error(CHECK, one_line(&error)),
    }
}

/// `absent`: the object does not exist yet.
fn needs_of_elections(kind: Kind, name: Option<&str>, absent: bool) -> Vec<Need<Permission<'_>>> {
    let (group, resource) = kind.resource();
    let unnamed = |verb| Permission::new(verb, group, resource);
    let permission = |verb| unnamed(verb).of(name);
    let need = |permission, needed_by, useful_to| Need { permission, needed_by, useful_to };
    let (creates, may_create): (&[Role], &[Role]) =
        if absent { (&[Candidate], &[]) } else { (&[], &[Candidate]) };
    let mut needs = vec![
        need(permission("get"), &[Observer, Candidate, Administrator], &[]),
        need(permission("update"), &[Candidate, Administrator], &[]),
        need(permission("watch"), &[], &[Observer, Candidate, Administrator]),
        need(unnamed("create"), creates, may_create),
        need(events(), &[], &[Candidate, Administrator]),
    ];
    if name.is_none() {
        read_all(&mut needs, unnamed("list"));
    }
    needs
}

fn needs_for_life<'a>(
    group: &'static str,
    resource: &'static str,
    name: Option<&'a str>,
) -> Vec<Need<Permission<'a>>> {
    let unnamed = |verb| Permission::new(verb, group, resource);
    let permission = |verb| unnamed(verb).of(name);
    let core = |verb, resource| Permission::new(verb, "", resource);
    let need = |permission, needed_by, useful_to| Need { permission, needed_by, useful_to };
    let mut needs = vec![
        need(permission("get"), &[Observer, Candidate, Administrator], &[]),
        need(unnamed("create"), &[Candidate], &[]),
        need(permission("delete"), &[Administrator], &[Candidate]),
        need(permission("watch"), &[], &[Observer, Candidate, Administrator]),
        need(core("get", "pods"), &[Candidate], &[Observer, Administrator]),
        need(core("watch", "pods"), &[], &[Candidate]),
        need(core("get", "nodes").cluster_wide(), &[], &[Candidate]),
        need(core("watch", "nodes").cluster_wide(), &[], &[Candidate]),
        need(events(), &[], &[Candidate, Administrator]),
    ];
    if name.is_none() {
        read_all(&mut needs, unnamed("list"));
    }
    needs
}

/// What roll calls and handovers need. `answers`: the Lease with the answers of this election.
fn roll_calls<'a>(
    needs: &mut Vec<Need<Permission<'a>>>,
    name: Option<&'a str>,
    answers: Option<&'a str>,
) {
    let (group, resource) = Kind::Lease.resource();
    let permission = |verb, name| Permission::new(verb, group, resource).of(name);
    let mut useful = |permission| needs.push(Need { permission, needed_by: &[], useful_to: BOTH });
    const BOTH: &[Role] = &[Candidate, Administrator];
    useful(permission("patch", name));
    if answers.is_some() {
        ["get", "watch", "patch"].into_iter().for_each(|verb| useful(permission(verb, answers)));
    }
    // The first call of an election creates the Lease with the answers.
    let create = permission("create", None);
    for need in needs.iter_mut().filter(|need| need.permission == create) {
        need.useful_to = if need.needed_by.is_empty() { BOTH } else { &[Administrator] };
    }
}

/// A role that reads all elections lists them, and need not get one.
fn read_all<'a>(needs: &mut Vec<Need<Permission<'a>>>, list: Permission<'a>) {
    for need in needs
        .iter_mut()
        .filter(|need| need.permission.verb == "get" && need.needed_by.contains(&Observer))
    {
        (need.needed_by, need.useful_to) = (&[Candidate, Administrator], &[Observer]);
    }
    needs.push(Need { permission: list, needed_by: &[Observer], useful_to: &[Administrator] });
}

fn events() -> Permission<'static> {
    Permission::new("create", "", "events")
}

/// Checks each permission, and reports the missing permissions of each role.
async fn check_permissions(
    cluster: &Cluster,
    needs: Vec<Need<Permission<'_>>>,
    name: Option<&str>,
    (role, timeout): (Role, Duration),
    report: &mut Report,
) {
    let mut missing = Vec::new();
    for need in needs {
        match cluster.may(&need.permission, timeout).await {
            Ok(true) => {}
            Ok(false) => missing.push(need),
            Err(error) if error.kind() == LockErrorKind::Denied => {
                return report.unknown(permissions::CHECK, one_line(&error));
            }
            Err(error) => return report.error(permissions::CHECK, one_line(&error)),
        }
    }
    let fix = |permissions: &[&Permission<'_>]| fix(permissions, name);
    report_missing(&missing, (&ROLES, role), named, fix, report);
}

/// As in `update of leases my-app`.
fn named(permission: &Permission<'_>) -> String {
    let name = permission.name.map(|name| format!(" {name}")).unwrap_or_default();
    format!("{} of {}{name}", permission.verb, permission.resource)
}

/// The rules to add to a Role.
fn fix(permissions: &[&Permission<'_>], name: Option<&str>) -> String {
    let mut rules: Vec<(Permission<'_>, Vec<&str>)> = Vec::new();
    for permission in permissions {
        let same = |(rule, _): &&mut (Permission<'_>, Vec<&str>)| {
            let mut rule = *rule;
            rule.verb = permission.verb;
            rule == **permission
        };
        match rules.iter_mut().find(same) {
            Some((_, verbs)) => verbs.push(permission.verb),
            None => rules.push((**permission, vec![permission.verb])),
        }
    }
    let of = |cluster_wide: bool| {
        let rules = rules.iter().filter(|(permission, _)| permission.cluster_wide == cluster_wide);
        let rules = rules.map(|(permission, verbs)| {
            let group = if permission.group.is_empty() { "\"\"" } else { permission.group };
            let names = permission.name.map(|name| format!(", resourceNames: [{name}]"));
            format!(
                "{{apiGroups: [{group}], resources: [{}]{}, verbs: [{}]}}",
                permission.resource,
                names.unwrap_or_default(),
                verbs.join(", ")
            )
        });
        rules.collect::<Vec<_>>().join(", ")
    };
    let (role, cluster_role) = (of(false), of(true));
    let mut parts = Vec::new();
    if !role.is_empty() {
        parts.push(format!("add to its Role {role}"));
    }
    if !cluster_role.is_empty() {
        parts.push(format!("add to its ClusterRole {cluster_role}"));
    }
    if name.is_none() {
        parts.push("or name the election, if a Role has resourceNames".to_owned());
    }
    parts.join("; ")
}

/// Reports what is known of the object of the election; `None`: none is named.
fn object(found: Option<Result<Vec<Finding>, LockError>>, kind: &str, report: &mut Report) {
    match found {
        None => report.unknown(OBJECT, format!("name an election to check its {kind}")),
        Some(Err(error)) => unread(&error, report),
        Some(Ok(found)) if found.is_empty() => report.ok(OBJECT, "its record fits elections"),
        Some(Ok(found)) => {
            found.iter().for_each(|finding| report.diagnosed(OBJECT, finding, Level::Ok));
        }
    }
}

fn unread(error: &LockError, report: &mut Report) {
    match error.kind() {
        LockErrorKind::Denied => {
            report.unknown(OBJECT, "cannot be checked without the right to get it");
        }
        _ => report.error(OBJECT, one_line(error)),
    }
}
