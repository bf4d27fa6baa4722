//! One number for all states that differ in names and dates only.
//!
//! Everything that a state consists of is taken down as words. Revisions and tokens are then
//! replaced by their rank among those that still stand somewhere, the numbers of writes by theirs
//! among those of the same process, and processes by their rank among those of the same candidate:
//! nothing compares them otherwise. Candidates that are set up alike may change places.

use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use incumbent::lock::{
    CheckpointVersion, Content, Hint, Nonce, Record, Request, Revision, StoredCheckpoint, Tombstone,
};
use incumbent::protocol::{CheckpointRequest, CheckpointResponse, FingerprintSink, Response};
use incumbent_sim::Shelf;

#[derive(Debug, Clone, Copy)]
enum Word {
    Plain(u64),
    Revision(u64),
    Nonce(u64),
    Write(u64, u64),
    /// Of the checkpoint.
    Version(u64),
}

/// The nonce of a candidate's `life`th process.
pub fn nonce(who: usize, life: u8) -> Nonce {
    Nonce((who as u64 + 1) << 8 | u64::from(life))
}

/// The words of a state, in parts: the first is the lock's, then one for each candidate, then one
/// for each message.
#[derive(Debug, Default)]
pub struct Key {
    words: Vec<Word>,
    ends: Vec<usize>,
    /// Whose writes are being numbered.
    writer: u64,
}

impl Key {
    /// Whose machine is taken down next.
    pub fn write_for(&mut self, writer: Nonce) {
        self.writer = writer.0;
    }

    pub fn plain(&mut self, word: u64) {
        self.words.push(Word::Plain(word));
    }

    pub fn token(&mut self, token: u64) {
        self.words.push(Word::Revision(token));
    }

    /// Whose a message is.
    pub fn campaign(&mut self, nonce: Nonce) {
        self.words.push(Word::Nonce(nonce.0));
    }

    pub fn hint(&mut self, hint: &Hint) {
        match hint {
            Hint::Stored { record, previous, age: _ } => {
                self.record(record);
                self.maybe_revision(previous.flatten());
            }
            Hint::SteppedDown(notice) => {
                self.campaign(notice.by);
                self.request(&Request::NotifyStepDown(*notice));
            }
            Hint::Recheck => self.plain(1),
            Hint::Coverage(coverage) => self.plain(2 + *coverage as u64),
            Hint::RollCall(_) => {} // no machine hears of it
        }
    }

    pub fn duration(&mut self, duration: Duration) {
        self.plain(duration.as_nanos() as u64);
    }

    pub fn part(&mut self) {
        self.ends.push(self.words.len());
    }

    pub fn maybe_revision(&mut self, revision: Option<Revision>) {
        match revision {
            Some(revision) => self.revision(revision),
            None => self.plain(0),
        }
    }

    fn successor(&mut self, to: Option<Nonce>) {
        if let Some(to) = to {
            self.campaign(to);
        }
    }

    pub fn record(&mut self, record: &Record) {
        self.revision(record.revision);
        match &record.content {
            Content::Held(entry) => {
                self.duration(entry.ttl);
                if let Some(mark) = &entry.mark {
                    self.words.push(Word::Nonce(mark.write.nonce.0));
                    self.words.push(Word::Write(mark.write.nonce.0, mark.write.number));
                    self.duration(mark.lease);
                    self.maybe_revision(mark.token.map(|token| Revision(token.0)));
                }
            }
            Content::Vacant(Tombstone::Released { by: _, left, cause: _, to, pause: _ }) => {
                self.duration(*left);
                self.successor(*to);
            }
            Content::Vacant(Tombstone::Expired) => self.plain(u64::MAX),
            Content::Vacant(Tombstone::Deleted) => self.plain(u64::MAX - 1),
        }
    }

    pub fn request(&mut self, request: &Request) {
        match request {
            Request::Read { .. } => self.plain(0),
            Request::Write(write) => {
                self.plain(1);
                self.maybe_revision(write.expected);
                self.words.push(Word::Write(write.mark.write.nonce.0, write.mark.write.number));
                self.duration(write.mark.lease);
                self.maybe_revision(write.mark.token.map(|token| Revision(token.0)));
            }
            Request::Release(release) => {
                self.plain(2);
                self.revision(release.expected);
                self.duration(release.left);
                self.successor(release.to);
            }
            Request::NotifyStepDown(notice) => {
                self.plain(3);
                self.revision(Revision(notice.token.0));
                self.revision(notice.revision);
                self.duration(notice.left);
            }
        }
    }

    pub fn answer(&mut self, answer: &Response) {
        use incumbent::lock::Reading;
        let failure = match answer {
            Response::Read(Ok(Reading::Found(record))) => return self.record(record),
            Response::Read(Ok(Reading::Empty { proof })) => return self.plain(u64::from(*proof)),
            Response::Written(Ok(revision)) => return self.revision(*revision),
            Response::Released(Ok(())) | Response::Notified(Ok(())) => return self.plain(2),
            Response::Read(Err(f))
            | Response::Written(Err(f))
            | Response::Released(Err(f))
            | Response::Notified(Err(f)) => f,
        };
        self.plain(10 + failure.kind as u64);
    }

    pub fn shelf(&mut self, shelf: &Shelf) {
        let Shelf { version, stored, acknowledged, claimed, last } = shelf;
        let Some(stored) = stored else { return };
        self.words.push(Word::Version(*version));
        self.checkpoint(stored);
        self.data(acknowledged);
        self.maybe_revision(claimed.map(|token| Revision(token.0)));
        self.plain(u64::from(*last));
    }

    pub fn data(&mut self, data: &[u8]) {
        self.plain(data.len() as u64);
        data.iter().for_each(|byte| self.plain(u64::from(*byte)));
    }

    fn version(&mut self, version: Option<&CheckpointVersion>) {
        match version.and_then(CheckpointVersion::as_number) {
            Some(version) => self.words.push(Word::Version(version)),
            None => self.plain(0),
        }
    }

    fn checkpoint(&mut self, checkpoint: &StoredCheckpoint) {
        let StoredCheckpoint { token, write, data, .. } = checkpoint;
        self.token(token.0);
        self.plain(*write);
        self.data(data);
    }

    pub fn checkpoint_request(&mut self, request: &CheckpointRequest) {
        match request {
            CheckpointRequest::Load => self.plain(0),
            CheckpointRequest::Store { checkpoint, expected } => {
                self.plain(1);
                self.checkpoint(checkpoint);
                self.version(expected.as_ref());
            }
        }
    }

    pub fn checkpoint_response(&mut self, response: &CheckpointResponse) {
        match response {
            CheckpointResponse::Loaded { version, checkpoint } => {
                self.plain(0);
                self.version(version.as_ref());
                checkpoint.iter().for_each(|checkpoint| self.checkpoint(checkpoint));
            }
            CheckpointResponse::Stored(version) => {
                self.plain(1);
                self.version(Some(version));
            }
            CheckpointResponse::Failed(kind) => self.plain(10 + *kind as u64),
        }
    }

    /// The least of what the state comes to with its candidates in any of these orders: each names
    /// the candidate that stands first, second and so on.
    pub fn finish(&self, orders: &[Vec<usize>]) -> u64 {
        let names = Names::of(&self.words);
        orders.iter().map(|order| self.hash(&names, order)).min().unwrap_or_default()
    }

    fn hash(&self, names: &Names, order: &[usize]) -> u64 {
        let mut place = vec![0; order.len()];
        for (at, who) in order.iter().enumerate() {
            place[*who] = at as u64;
        }
        let part = |index: usize| {
            let begin = if index == 0 { 0 } else { self.ends[index - 1] };
            let mut hasher = DefaultHasher::new();
            for word in &self.words[begin..self.ends[index]] {
                names.write(*word, &place, &mut hasher);
            }
            hasher.finish()
        };
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(part(0));
        for who in order {
            hasher.write_u64(part(1 + who));
        }
        let mut messages: Vec<_> = (1 + order.len()..self.ends.len()).map(part).collect();
        messages.sort_unstable();
        for message in messages {
            hasher.write_u64(message);
        }
        hasher.finish()
    }
}

impl FingerprintSink for Key {
    fn word(&mut self, word: u64) {
        self.plain(word);
    }

    fn revision(&mut self, revision: Revision) {
        self.words.push(Word::Revision(revision.0));
    }

    fn nonce(&mut self, nonce: Nonce) {
        self.words.push(Word::Nonce(nonce.0));
    }

    fn write(&mut self, number: u64) {
        self.words.push(Word::Write(self.writer, number));
    }
}

/// The names in use, each kind in its order.
#[derive(Debug, Default)]
struct Names {
    revisions: Vec<u64>,
    nonces: Vec<u64>,
    writes: Vec<(u64, u64)>,
    versions: Vec<u64>,
}

impl Names {
    fn of(words: &[Word]) -> Self {
        let mut names = Self::default();
        for word in words {
            match *word {
                Word::Plain(_) => {}
                Word::Revision(revision) => names.revisions.push(revision),
                Word::Nonce(nonce) => names.nonces.push(nonce),
                Word::Write(nonce, number) => names.writes.push((nonce, number)),
                Word::Version(version) => names.versions.push(version),
            }
        }
        names.revisions.sort_unstable();
        names.revisions.dedup();
        names.nonces.sort_unstable();
        names.nonces.dedup();
        names.writes.sort_unstable();
        names.writes.dedup();
        names.versions.sort_unstable();
        names.versions.dedup();
        names
    }

    fn write(&self, word: Word, place: &[u64], hasher: &mut impl Hasher) {
        let rank = |found: Result<usize, usize>| found.unwrap_or_else(|at| at) as u64;
        let (kind, value) = match word {
            Word::Plain(value) => (0, value),
            Word::Revision(revision) => (1, rank(self.revisions.binary_search(&revision))),
            Word::Nonce(nonce) => {
                let first = self.nonces.partition_point(|other| other >> 8 < nonce >> 8) as u64;
                let rank = rank(self.nonces.binary_search(&nonce)) - first;
                let candidate = (nonce >> 8).checked_sub(1);
                let known = candidate.and_then(|at| place.get(usize::try_from(at).ok()?));
                // One that was drawn since, as its candidate took an entry for a twin's, has no
                // place: such states are told apart, though some may be alike.
                let place = known.copied().unwrap_or(1 << 40 | first);
                (2, place << 8 | rank)
            }
            Word::Write(nonce, number) => {
                let first = self.writes.partition_point(|(other, _)| *other < nonce) as u64;
                (3, rank(self.writes.binary_search(&(nonce, number))) - first)
            }
            Word::Version(version) => (4, rank(self.versions.binary_search(&version))),
        };
        hasher.write_u8(kind);
        hasher.write_u64(value);
    }
}
