//! Checks of a NATS bucket.

use super::context::CheckContext;
use super::report::Report;
use super::server::{self, ServerSamples};
use super::{bucket, choria, disk, fanout, permissions};
use crate::error::{CliError, Code};
use crate::lock::nats::Session;
use incumbent::lock_url::NatsBucket;

/// Checks the server and the bucket.
pub async fn check(
    bucket: &NatsBucket,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    match Session::connect(&bucket.connection).await {
        Ok(session) => of_session(bucket, &session, context, report).await?,
        Err(CliError::Message { code: Code::Unreachable | Code::Denied, message }) => {
            report.error("server", message);
        }
        Err(failure) => return Err(failure),
    }
    if let Some(address) = context.monitor {
        disk::sync_interval(address, context.timeout, report).await;
    }
    Ok(())
}

async fn of_session(
    bucket: &NatsBucket,
    session: &Session,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let asked = ServerSamples::take(session, &bucket.bucket).await?;
    let stated = asked.info.as_ref();
    let stated = stated.and_then(|info| info.pointer("/config/metadata/incumbent.with-choria"));
    let with_choria = context.with_choria || stated.is_some_and(|stated| stated == "true");
    server::version(session, &asked, report).await;
    asked.jetstream(report);
    asked.clock(report);
    asked.round_trip(context.lease, with_choria, report);
    permissions::check(session, bucket, context, &asked, report).await?;
    if let Some(info) = &asked.info {
        bucket::health(session, bucket, report).await;
        bucket::identities(session, &bucket.bucket, info, report).await;
        choria::check(session, bucket, info, with_choria, report).await;
        fanout::check(session, &bucket.bucket, info, report).await;
        disk::persistence(info, context.monitor.is_some(), report);
    }
    Ok(())
}
