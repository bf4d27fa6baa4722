//! `kv backup` and `restore`: a snapshot of the bucket's stream, in the directory layout of the
//! `nats` program.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::bucket::check_absent;
use crate::error::{CliError, Code};
use crate::nats::{Bounded, Session};
use crate::output::unwritten;
use crate::text::one_line;
use crate::{output, time_format};

/// The size of messages in both directions.
const CHUNK: usize = 128 * 1024;

const SETTINGS: &str = "backup.json";
const CONTENT: &str = "stream.tar.s2";

/// Save a bucket into a directory, with its revisions.
///
/// The `nats` program can restore it too.
#[derive(Args)]
pub struct Backup {
    /// The bucket.
    bucket: String,
    /// The directory, which is created; one that already contains a backup is refused.
    directory: PathBuf,
}

/// Restore a bucket from a directory that `kv backup` or the `nats` program wrote.
#[derive(Args)]
pub struct Restore {
    /// The directory.
    directory: PathBuf,
}

impl Backup {
    pub async fn run(self, session: &Session) -> Result<(), CliError> {
        let Self { bucket, directory } = &self;
        let doing = format!("backup of bucket {bucket}");
        let info = session.info(bucket).await?;
        if info.pointer("/config/storage").and_then(Value::as_str) == Some("memory") {
            let message = format!("{doing}: servers do not back up buckets in memory");
            return Err(CliError::new(Code::Failed, message));
        }
        let at = |file: &'static str| move |e| unwritten(&directory.join(file), e);
        fs::create_dir_all(directory).map_err(at(""))?;
        if directory.join(SETTINGS).exists() || directory.join(CONTENT).exists() {
            let message = format!(
                "{} already contains a backup; choose another directory",
                directory.display()
            );
            return Err(CliError::new(Code::Failed, message));
        }
        // Both files get their names once they are complete.
        let mut content = tempfile::NamedTempFile::new_in(directory).map_err(at(CONTENT))?;
        let size = session.wait(&doing, Bounded::No, async {
            receive(session, bucket, &doing, content.as_file_mut(), directory).await
        });
        let (size, settings) = size.await?;
        content.as_file().sync_all().map_err(at(CONTENT))?;
        content.persist(directory.join(CONTENT)).map_err(|e| unwritten(directory, e.error))?;
        let text = serde_json::to_vec_pretty(&settings).map_err(std::io::Error::from)?;
        let written = output::replace_file(&directory.join(SETTINGS), |file| file.write_all(&text));
        written.map_err(at(SETTINGS))?;
        output::note(format!(
            "saved bucket {bucket} in {}: {}",
            directory.display(),
            time_format::size(size)
        ));
        Ok(())
    }
}

/// Receives a snapshot. Returns its size and the settings of the stream.
async fn receive(
    session: &Session,
    bucket: &str,
    doing: &str,
    file: &mut File,
    directory: &Path,
) -> Result<(u64, Value), CliError> {
    let client = session.client();
    let inbox = client.new_inbox();
    let mut chunks = client
        .subscribe(inbox.clone())
        .await
        .map_err(|e| CliError::new(Code::Failed, format!("{doing}: {}", one_line(&e))))?;
    let request = json!({"deliver_subject": inbox, "no_consumers": true, "chunk_size": CHUNK});
    let subject = format!("STREAM.SNAPSHOT.KV_{bucket}");
    let answer: Value = session.api(doing, &subject, &request).await?;
    let expected = answer.pointer("/state/bytes").and_then(Value::as_u64).unwrap_or_default();
    let bar = progress(expected);
    let mut size: u64 = 0;
    loop {
        let chunk = tokio::time::timeout(session.timeout(), chunks.next());
        let Some(chunk) = chunk.await.map_err(|_| CliError::timed_out(doing))? else {
            return Err(CliError::new(
                Code::Unreachable,
                format!("{doing}: the connection was closed"),
            ));
        };
        if let Some(reply) = chunk.reply.clone() {
            let sent = client.publish(reply, Vec::new().into()).await;
            sent.map_err(|e| CliError::new(Code::Failed, format!("{doing}: {}", one_line(&e))))?;
        }
        if chunk.payload.is_empty() {
            let status = chunk.status.map_or(204, |status| status.as_u16());
            if status != 204 {
                let why = chunk.description.unwrap_or_default();
                let message = format!("{doing}: aborted by the server: {status} {why}");
                return Err(CliError::new(Code::Failed, message));
            }
            break;
        }
        file.write_all(&chunk.payload).map_err(|e| unwritten(directory, e))?;
        size += chunk.payload.len() as u64;
        bar.set_length(expected.max(size));
        bar.set_position(size);
    }
    bar.finish_and_clear();
    let part = |name: &str| answer.get(name).cloned().unwrap_or_default();
    Ok((size, json!({"config": part("config"), "state": part("state")})))
}

impl Restore {
    pub async fn run(self, session: &Session) -> Result<(), CliError> {
        let directory = &self.directory;
        let unread = |file: &str, why: &dyn std::fmt::Display| {
            let file = directory.join(file);
            CliError::new(Code::Failed, format!("no backup in {}: {why}", file.display()))
        };
        let text = fs::read(directory.join(SETTINGS)).map_err(|e| unread(SETTINGS, &e))?;
        let settings: Value = serde_json::from_slice(&text).map_err(|e| unread(SETTINGS, &e))?;
        let stream = settings.pointer("/config/name").and_then(Value::as_str).unwrap_or_default();
        let Some(bucket) = stream.strip_prefix("KV_") else {
            return Err(unread(SETTINGS, &"not the backup of a bucket"));
        };
        let mut content = File::open(directory.join(CONTENT)).map_err(|e| unread(CONTENT, &e))?;
        let size = content.metadata().map_err(|e| unread(CONTENT, &e))?.len();
        let hint = format!("delete it first: `incumbent kv del {bucket}`");
        check_absent(session, bucket, &hint).await?;
        let doing = format!("restoration of bucket {bucket}");
        let send = send(session, stream, &doing, &settings, &mut content, size);
        session.wait(&doing, Bounded::No, send).await?;
        output::note(format!("restored bucket {bucket}: {}", time_format::size(size)));
        Ok(())
    }
}

async fn send(
    session: &Session,
    stream: &str,
    doing: &str,
    settings: &Value,
    content: &mut File,
    size: u64,
) -> Result<(), CliError> {
    let answer: Value = session.api(doing, &format!("STREAM.RESTORE.{stream}"), settings).await?;
    let Some(to) = answer.get("deliver_subject").and_then(Value::as_str) else {
        return Err(CliError::new(
            Code::Failed,
            format!("{doing}: the response has no deliver_subject"),
        ));
    };
    let bar = progress(size);
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = content.read(&mut buffer)?;
        let chunk = buffer.get(..length).unwrap_or_default().to_vec();
        // An empty message ends the transfer; its response is the result.
        let request = session.client().request(to.to_owned(), chunk.into());
        let answer = request
            .await
            .map_err(|e| CliError::new(Code::Failed, format!("{doing}: {}", one_line(&e))))?;
        let verdict: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        if let Some(why) = verdict.pointer("/error/description").and_then(Value::as_str) {
            return Err(CliError::new(Code::Failed, format!("{doing}: {why}")));
        }
        if length == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        bar.inc(length as u64);
    }
}

/// A progress bar on a terminal, unless `--quiet` is given.
fn progress(length: u64) -> ProgressBar {
    let target = match output::is_quiet() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}
