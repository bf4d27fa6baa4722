//! `election evict`.

use std::time::Duration;

use async_nats::jetstream::kv::UpdateErrorKind;
use clap::Args;
use tokio::time::{Instant, timeout_at};

use super::feed::Feed;
use super::office::{Holder, Holding, Office, Offices, check_name, shown};
use crate::connection::{Bounded, Place};
use crate::failure::{Code, Failure, one_line};
use crate::{output, prompt, when};

/// How often a leader may renew between our look and our deletion.
const ATTEMPTS: usize = 50;

/// How long to wait for a successor where the bucket has no TTL.
const PATIENCE: Duration = Duration::from_secs(60);

/// Take the office from whoever leads, and tell who took over and how long it took.
///
/// Only the leader that was asked about is evicted: not one that has taken over meanwhile.
#[derive(Args)]
pub struct Evict {
    /// The election.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    force: bool,
    /// How long to wait for a successor [default: twice the bucket's TTL].
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
}

impl Evict {
    pub async fn run(self, place: &Place) -> Result<(), Failure> {
        let name = self.name.as_str();
        check_name(name)?;
        let session = place.session().await?;
        let offices = Offices::open(place, &session).await?;
        let nobody = || Failure::new(Code::NotFound, format!("election {name}: nobody leads"));
        let office = offices.read(name).await?.ok_or_else(nobody)?;
        let holder = office.holder().cloned().ok_or_else(nobody)?;
        let question = format!("Evict {}, who leads {name}", shown(&holder));
        prompt::confirm(&question, self.force)?;
        let mut feed = Feed::open(&offices, Some(name)).await?;
        let doing = format!("eviction from {name}");
        let evicted =
            session.wait(&doing, Bounded::No, delete(&offices, office, &holder, &doing)).await?;
        output::line(format!("evicted {} from {name}", shown(&holder)))?;

        let wait = self.wait.or_else(|| offices.ttl().map(|ttl| ttl * 2)).unwrap_or(PATIENCE);
        let start = Instant::now();
        while let Ok(event) = timeout_at(start + wait, feed.next()).await {
            let event = event?;
            if let Holding::Held(next) = &event.now
                && event.revision > evicted
            {
                let took = when::span(start.elapsed());
                let token = next.token.map(|token| format!(" with token {token}"));
                let token = token.unwrap_or_default();
                return output::line(format!("{} leads after {took}{token}", shown(next)));
            }
        }
        output::line(format!("nobody took over in {}", when::span(wait)))
    }
}

/// Deletes the entry of this holder, however often it is renewed meanwhile, and answers the last revision that it had.
async fn delete(
    offices: &Offices<'_>,
    mut office: Office,
    holder: &Holder,
    doing: &str,
) -> Result<u64, Failure> {
    for _ in 0..ATTEMPTS {
        let revision = office.revision;
        let error =
            match offices.store.delete_expect_revision(&office.election, Some(revision)).await {
                Ok(()) => return Ok(revision),
                Err(error) => error,
            };
        // A cluster has a second way to say that somebody else wrote, which the client does not know.
        let renewed = error.kind() == UpdateErrorKind::WrongLastRevision
            || one_line(&error).contains("error code 10164");
        if !renewed {
            return Err(Failure::of_request(doing, &error));
        }
        office = match offices.read(&office.election).await? {
            Some(now) if now.holder().is_some_and(|now| now.is_same_term(holder)) => now,
            Some(Office { holding: Holding::Held(now), .. }) => {
                let message = format!("{doing}: {} has taken over meanwhile", now.leader);
                return Err(Failure::new(Code::Failed, message));
            }
            _ => {
                let message = format!("{doing}: {} has left by itself", holder.leader);
                return Err(Failure::new(Code::NotFound, message));
            }
        };
    }
    Err(Failure::new(Code::Failed, format!("{doing}: the entry changes all the time; try again")))
}
