//! Elections in a bucket of NATS.

use super::context::Exam;
use super::report::Report;
use super::server::{self, Asked};
use super::{bucket, choria, disk, rights};
use crate::error::{CliError, Code};
use crate::nats::{BucketArgs, Session};

/// Examines the server and the bucket.
pub async fn examine(
    bucket: &BucketArgs,
    exam: Exam<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    match bucket.session().await {
        Ok(session) => of_session(bucket, &session, exam, report).await?,
        Err(CliError::Message { code: Code::Unreachable | Code::Denied, message }) => {
            report.error("server", message);
        }
        Err(failure) => return Err(failure),
    }
    if let Some(address) = exam.monitor {
        disk::sync_interval(address, exam.patience, report).await;
    }
    Ok(())
}

async fn of_session(
    bucket: &BucketArgs,
    session: &Session,
    exam: Exam<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let asked = Asked::ask(session, bucket.bucket()).await?;
    server::version(session, &asked, report).await;
    asked.jetstream(report);
    asked.clock(report);
    asked.round_trip(exam.lease, exam.with_choria, report);
    rights::examine(session, bucket, exam.name, exam.role, &asked, report).await?;
    if let Some(info) = &asked.info {
        bucket::health(session, bucket, report).await;
        bucket::identities(session, bucket.bucket(), info, report).await;
        choria::examine(session, bucket, info, exam.with_choria, report).await;
        disk::persistence(info, exam.monitor.is_some(), report);
    }
    Ok(())
}
