//! The records of all jobs of an election, as its checkpoint holds them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::job::{Job, Slot};
use super::log::{RecordedRun, RunLog};
use super::plan::JobRecord;
use super::{ScheduleError, ScheduleErrorKind};
use crate::lock::{MAX_CHECKPOINT_LEN, StoredCheckpoint};

/// The latest runs of a schedule in the checkpoint of its election, the latest one last: up to 32,
/// and fewer where the records of the jobs leave little room. `None`: it has no records of jobs.
pub fn recorded_runs(checkpoint: &StoredCheckpoint) -> Option<Vec<RecordedRun>> {
    if checkpoint.data.is_empty() {
        return None;
    }
    let records = Records::decode("", &checkpoint.data).ok()?;
    Some(records.log.runs(checkpoint.token))
}

/// One JSON object: `{"jobs":{"nightly":{"slot":1790000000}}}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    jobs: BTreeMap<String, JobRecord>,
    /// The latest runs, as far as there is room.
    #[serde(default, skip_serializing_if = "RunLog::is_empty")]
    pub(super) log: RunLog,
}

impl Records {
    /// Reads the data of a checkpoint, which is empty at first.
    pub fn decode(election: &str, data: &[u8]) -> Result<Self, ScheduleError> {
        if data.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(data).map_err(|error| {
            let what = format!(
                "the checkpoint of {election} holds no records of jobs: give the schedule an election of its own"
            );
            ScheduleError::with_source(ScheduleErrorKind::NoRecords, what, error)
        })
    }

    /// The data of a checkpoint. What other members recorded of jobs that this one does not have
    /// is kept, as far as it fits.
    pub fn encode(&mut self, own: &[Job]) -> Vec<u8> {
        loop {
            let data = serde_json::to_vec(self).unwrap_or_default(); // has string keys only
            if data.len() <= MAX_CHECKPOINT_LEN {
                return data;
            }
            if self.log.shorten() {
                continue;
            }
            let others = self.jobs.iter().filter(|(name, _)| own.iter().all(|j| j.name() != *name));
            let oldest = others.min_by_key(|(_, record)| record.last());
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return data };
            self.jobs.remove(&oldest);
        }
    }

    /// Refuses more jobs than a checkpoint has room for.
    pub fn check(jobs: &[Job]) -> Result<(), ScheduleError> {
        let longest = |job: &Job| (job.name().to_owned(), JobRecord::longest());
        let mut fullest = Self { jobs: jobs.iter().map(longest).collect(), ..Self::default() };
        if fullest.encode(jobs).len() <= MAX_CHECKPOINT_LEN {
            return Ok(());
        }
        Err(ScheduleError::invalid(format!(
            "{} jobs are too many for the checkpoint of one election: divide them among several",
            jobs.len()
        )))
    }

    /// Adds records of jobs that have none. Returns whether there were any.
    pub fn add_missing(&mut self, jobs: &[Job], now: Timestamp) -> bool {
        let before = self.jobs.len();
        for job in jobs {
            self.jobs.entry(job.name().to_owned()).or_insert_with(|| JobRecord::new(now));
        }
        self.jobs.len() > before
    }

    /// Jobs whose last slot is more than an hour ahead, as by a clock that was wrong.
    pub fn of_the_future<'j>(
        &self,
        jobs: &'j [Job],
        now: Timestamp,
    ) -> impl Iterator<Item = (&'j str, Slot)> {
        let last = |job: &'j Job| Some((job.name(), self.get(job.name())?.last()));
        let ahead = move |slot: Slot| slot.unix_seconds() > now.as_second().saturating_add(3600);
        jobs.iter().filter_map(last).filter(move |(_, slot)| ahead(*slot))
    }

    /// Whether they are of other jobs than this one.
    pub fn are_of_others(&self, job: &str) -> bool {
        self.jobs.keys().any(|name| name != job)
    }

    pub fn set(&mut self, job: &str, record: JobRecord) {
        self.jobs.insert(job.to_owned(), record);
    }

    pub fn get_mut(&mut self, job: &str) -> Option<&mut JobRecord> {
        self.jobs.get_mut(job)
    }

    pub fn get(&self, job: &str) -> Option<&JobRecord> {
        self.jobs.get(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    fn jobs(count: usize) -> Vec<Job> {
        (0..count).map(|n| Job::new(format!("job-{n}"), "@daily").unwrap()).collect()
    }

    #[test]
    fn records_of_other_members_are_kept_as_far_as_they_fit() {
        let mut records = Records::default();
        assert!(records.add_missing(&jobs(200), Timestamp::now()));
        let own = jobs(20);
        let data = records.encode(&own);
        let read = Records::decode("e", &data).unwrap();
        assert!(data.len() <= MAX_CHECKPOINT_LEN && read.jobs.len() > 20);
        assert!(own.iter().all(|job| read.get(job.name()).is_some()));
        assert!(!records.add_missing(&own, Timestamp::now()));
    }

    #[test]
    fn more_jobs_than_fit_are_refused() {
        assert!(Records::check(&jobs(25)).is_ok());
        let error = Records::check(&jobs(100)).unwrap_err();
        assert!(error.to_string().starts_with("100 jobs are too many"), "{error}");
    }

    #[test]
    fn runs_give_way_to_the_records_of_jobs() {
        let all = jobs(25);
        let mut records = Records { jobs: BTreeMap::new(), ..Records::default() };
        all.iter().for_each(|job| records.set(job.name(), JobRecord::longest()));
        let begin = |records: &mut Records, slot| {
            records.log.begin("job-1", Slot(slot), Token(u64::MAX));
            let read = Records::decode("e", &records.encode(&all)).unwrap();
            assert_eq!(read.jobs.len(), all.len());
            read.log
        };
        let before = begin(&mut records, 0);
        assert!(!before.is_empty());
        let after = (1..100).map(|slot| begin(&mut records, slot)).last();
        assert!(after.is_some_and(|log| !log.is_empty() && log != before));
    }

    #[test]
    fn other_content_is_refused() {
        assert_eq!(Records::decode("e", b"").unwrap(), Records::default());
        let error = Records::decode("e", b"order 4711").unwrap_err();
        assert_eq!(error.kind(), ScheduleErrorKind::NoRecords);
    }

    #[test]
    fn other_checkpoints_have_no_runs() {
        let runs = |data: &[u8]| {
            let (token, data) = (Token(7), data.into());
            recorded_runs(&StoredCheckpoint { token, write: 1, saved_unix_ms: 1, data })
        };
        assert_eq!(runs(b""), None);
        assert_eq!(runs(b"{\"offset\":4711}"), None);
        // Of a leader that keeps none.
        assert_eq!(runs(b"{\"jobs\":{\"a\":{\"slot\":5}}}"), Some(Vec::new()));
    }
}
