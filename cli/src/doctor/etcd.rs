//! Checks of a cluster of etcd.

use incumbent::etcd::{Etcd, EtcdProbe, MemberFacts};
use incumbent::lock::{Lock, LockAdmin, LockError};
use incumbent::protocol::TimingOptions;

use super::context::CheckContext;
use super::context::Role::{Administrator, Candidate, Observer};
use super::permissions::{self, Need, ROLES, is_denied, report_missing};
use super::report::Report;
use super::server::{self, Samples};
use crate::error::one_line;
use crate::error::{CliError, Code};
use crate::lock::UNUSED_NAME;
use crate::output::text::printable;

const MEMBERS: &str = "members";
const FOREIGN: &str = "foreign";

/// The oldest supported version.
const OLDEST: (u64, u64) = (3, 4);

/// Checks the members, then the keys.
pub async fn check(
    etcd: &Etcd,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let probe = match etcd.probe() {
        Ok(probe) => probe,
        Err(error) => {
            report.error("settings", one_line(&error));
            return Ok(());
        }
    };
    let lock = probe.lock();
    if probe.sends_password_in_clear() {
        report.warning(
            "password",
            "it is sent without TLS, and who reads it on the way may write the keys: use etcds://",
        );
    }
    let wrong = |rule| CliError::new(Code::Usage, rule);
    context.name.map_or(Ok(()), |name| lock.check_name(name)).map_err(wrong)?;
    if !members(&probe, context, report).await {
        return Ok(());
    }
    let name = context.name.unwrap_or(UNUSED_NAME);
    let ask = async || lock.read(name, context.timeout).await;
    let (asked, read) = Samples::take(ask, |_| None).await;
    match &read {
        Ok(()) => report.ok("quorum", "reads are answered by a majority"),
        Err(error) if is_denied(error) => {}
        Err(error) => {
            report.error("quorum", one_line(error));
            return Ok(());
        }
    }
    let options = TimingOptions { lease: context.lease, ..Default::default() };
    server::round_trip(&asked.spans, lock.capabilities().timing(options), report);
    permissions(&lock, name, read, context, report).await;
    foreign(&probe, context, report).await;
    Ok(())
}

/// Returns whether a member responds.
async fn members(probe: &EtcdProbe, context: CheckContext<'_>, report: &mut Report) -> bool {
    let mut found: Vec<(&str, MemberFacts)> = Vec::new();
    let mut silent = Vec::new();
    for (address, facts) in probe.members(context.timeout).await {
        match facts {
            Ok(facts) => found.push((address, facts)),
            Err(error) => silent.push(one_line(&error)),
        }
    }
    let Some((_, first)) = found.first() else {
        silent.iter().for_each(|why| report.error(MEMBERS, why));
        return false;
    };
    // The other members serve meanwhile.
    silent.iter().for_each(|why| report.warning(MEMBERS, why));
    if found.iter().any(|(_, facts)| facts.cluster_id != first.cluster_id) {
        report.error(
            MEMBERS,
            "they belong to different clusters, each of which would elect a leader: name the members of one",
        );
    }
    for (address, facts) in &found {
        member(address, facts, report);
    }
    match probe.voters(context.timeout).await {
        Ok(1) => report.warning(
            "cluster",
            "one voting member: no term outlives its restart by more than the lease; run three",
        ),
        Ok(voters) if voters % 2 == 0 => report.warning(
            "cluster",
            format!(
                "{voters} voting members bear no more failures than {0}; run {0}",
                voters.saturating_sub(1)
            ),
        ),
        Ok(voters) => report.ok("cluster", format!("{voters} voting members")),
        Err(error) => report.unknown("cluster", one_line(&error)),
    }
    true
}

fn member(address: &str, facts: &MemberFacts, report: &mut Report) {
    let named = format!("{address}: etcd {}", printable(&facts.version));
    let mut numbers = facts.version.split('.').map(|part| part.parse::<u64>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if version < OLDEST {
        report.error(MEMBERS, format!("{named} is not supported; upgrade to 3.4 or later"));
    } else if facts.is_learner {
        let fix = "it answers no request of an election; name a voting member, or promote it";
        report.warning(MEMBERS, format!("{named}, a learner: {fix}"));
    } else if !facts.has_leader {
        report.error(MEMBERS, format!("{named} knows of no leader: a majority must be reachable"));
    } else {
        report.ok(MEMBERS, named);
    }
    for alarm in &facts.alarms {
        let fix = "see `etcdctl alarm list`";
        report.error(MEMBERS, format!("{address}: {}; {fix}", printable(alarm)));
    }
}

async fn permissions(
    lock: &(impl Lock + LockAdmin),
    name: &str,
    read: Result<(), LockError>,
    context: CheckContext<'_>,
    report: &mut Report,
) {
    let listed = lock.names(context.timeout).await.map(drop);
    let written = match context.role {
        Observer => Ok(()),
        _ => lock.check_release(name, context.timeout).await,
    };
    let checks = [
        ("reading keys", read, &ROLES[..], &[][..]),
        ("listing and watching keys", listed, &[Administrator], &[Observer, Candidate]),
        ("writing keys", written, &[Candidate, Administrator], &[]),
    ];
    let mut missing = Vec::new();
    for (verb, result, needed_by, useful_to) in checks {
        match result {
            Err(error) if is_denied(&error) => {
                let permission = format!("{verb} ({})", one_line(&error));
                missing.push(Need { permission, needed_by, useful_to });
            }
            Err(error) => return report.error(permissions::CHECK, one_line(&error)),
            Ok(()) => {}
        }
    }
    let roles = if context.role == Observer { &[Observer][..] } else { &ROLES };
    let fix = |_: &[&String]| "grant the role readwrite on the prefix; see docs/etcd.md".to_owned();
    report_missing(&missing, (roles, context.role), String::clone, fix, report);
}

async fn foreign(probe: &EtcdProbe, context: CheckContext<'_>, report: &mut Report) {
    match probe.foreign_candidate(context.name, context.timeout).await {
        Ok(None) => {
            report.ok(FOREIGN, format!("no other program's candidates below {}", probe.prefix()))
        }
        Ok(Some(found)) if found.waits => report.warning(FOREIGN, found.message),
        Ok(Some(found)) => report.error(FOREIGN, found.message),
        Err(error) => report.unknown(FOREIGN, one_line(&error)),
    }
}
