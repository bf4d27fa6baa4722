//! One object of a bucket: opaque versions, and writes on condition of one.

use std::sync::Arc;
use std::time::Duration;

use incumbent::Advertisement;
use incumbent::lock::{Content, Entry, Mark, Nonce, Pause, Revision, Token, Tombstone};
use incumbent::vimeo_timing::VimeoTiming;

use crate::server::Time;
/// What the wall clocks show when the world begins.
const EPOCH: Duration = Duration::from_secs(1000);

/// A generation, or an ETag: it can be compared with another one, and that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(pub u64);

impl Version {
    /// That of no object.
    pub const NONE: Self = Self(u64::MAX);
}

/// The content of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    pub number: u64,
    /// When the term ends, for those who compare wall clocks.
    pub expiry: Duration,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// By a candidate of this library.
    Held(Arc<str>, Mark, Option<Arc<Advertisement>>),
    /// What such a one leaves behind.
    Released {
        by: Nonce,
        left: Duration,
        cause: &'static str,
        to: Option<Nonce>,
        pause: Option<Pause>,
    },
    /// By a candidate of vimeo's, or by hand.
    Named(Arc<str>),
    /// Nobody holds it.
    Nobody,
    /// Nothing that can be read.
    Junk,
}

impl Body {
    /// What it means; `None`: nothing. `wall`: the reader's wall clock.
    pub(super) fn content(&self, terms: VimeoTiming, wall: Duration) -> Option<Content> {
        Some(match &self.said {
            Said::Held(identity, mark, advertisement) => Content::Held(Entry {
                identity: Arc::clone(identity),
                mark: Some(mark.clone()),
                ttl: mark.lease,
                advertisement: advertisement.clone(),
            }),
            Said::Released { by, left, cause, to, pause } => Content::Vacant(Tombstone::Released {
                by: *by,
                left: *left,
                cause: Some((*cause).into()),
                to: *to,
                pause: *pause,
            }),
            Said::Named(identity) => Content::Held(Entry {
                identity: Arc::clone(identity),
                mark: None,
                ttl: terms.wait_for_go(self.expiry.saturating_sub(wall)),
                advertisement: None,
            }),
            Said::Nobody => Content::Vacant(Tombstone::Deleted),
            Said::Junk => return None,
        })
    }

    /// The revision that a reader gives it who knows nothing else.
    fn revision(&self) -> Revision {
        Revision(self.number + 1)
    }
}

#[derive(Debug, Clone)]
pub struct Object {
    pub version: Version,
    pub body: Body,
}

/// A content put back in the place of later ones.
#[derive(Debug, Clone)]
struct SetBack {
    at: Time,
    /// Those to whom it looks as if nothing had happened: they know of nothing newer, or take it
    /// by its version, which has come back, for the last.
    unaware: Vec<usize>,
}

#[derive(Debug, Clone)]
pub struct Store {
    /// Versions are hashes of the content, as ETags of S3 are: they come back if it does.
    pub hashed: bool,
    pub(super) terms: VimeoTiming,
    pub object: Option<Object>,
    /// All that was ever written, each content once.
    written: Vec<Body>,
    /// The last one that can be read, whatever has become of it.
    last: Option<Body>,
    versions: u64,
    set_backs: Vec<SetBack>,
    /// The greatest token that can have been given out.
    greatest: Revision,
    /// Whether the object was ever deleted or overwritten unconditionally.
    pub disturbed: bool,
    /// When another program last changed the object.
    pub touched: Time,
    /// Until when it responds so, and whether it states when to retry.
    pub busy: (Time, u16, Option<Duration>),
}

impl Store {
    pub fn new(hashed: bool, longest: Duration) -> Self {
        Self {
            hashed,
            // Go requires a term of at least twice the skew.
            terms: VimeoTiming { longest, skew: longest / 4 },
            object: None,
            written: Vec::new(),
            last: None,
            versions: 0,
            set_backs: Vec::new(),
            greatest: Revision(0),
            disturbed: false,
            touched: Time::ZERO,
            busy: (Time::ZERO, 0, None),
        }
    }

    /// What a wall clock shows that is `ahead` by this many milliseconds.
    pub fn wall(now: Time, ahead: i16) -> Duration {
        let by = Duration::from_millis(u64::from(ahead.unsigned_abs()));
        if ahead < 0 { EPOCH + now - by } else { EPOCH + now + by }
    }

    fn version(&self) -> Option<Version> {
        self.object.as_ref().map(|object| object.version)
    }

    /// Replaces `over` if that is the current version; `None`: refused.
    pub fn put(&mut self, over: Option<Version>, body: &Body) -> Option<Version> {
        (over == self.version()).then(|| self.store(body.clone()))
    }

    fn store(&mut self, body: Body) -> Version {
        let known = self.written.iter().position(|known| *known == body);
        let place = known.unwrap_or(self.written.len());
        if known.is_none() {
            self.written.push(body.clone());
        }
        self.versions += 1;
        let version = Version(if self.hashed { place as u64 } else { self.versions });
        self.greatest = self.greatest.max(body.revision());
        if body.said != Said::Junk {
            self.last = Some(body.clone());
        }
        self.object = Some(Object { version, body });
        version
    }

    /// Writes unconditionally.
    pub fn overwrite(&mut self, body: Body) {
        self.disturbed = true;
        self.store(body);
    }

    pub fn delete(&mut self) {
        self.disturbed = true;
        self.object = None;
    }

    pub fn is_junk(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.body.said == Said::Junk)
    }

    /// A number that an administrator's own write may have.
    pub fn last_number(&self) -> u64 {
        self.greatest.0
    }

    /// Puts an earlier content back: the last one, or that of this many writes before. Answers
    /// whether there is one. `unaware`: to whom it is no older than what they know.
    pub fn set_back(
        &mut self,
        now: Time,
        by: usize,
        unaware: impl Fn(Version, Revision) -> Vec<usize>,
    ) -> bool {
        let mut sound = self.written.iter().rev().filter(|body| body.said != Said::Junk);
        let Some(body) = sound.nth(by).cloned() else { return false };
        let (to, loses) = (body.revision(), self.last.as_ref() != Some(&body));
        self.overwrite(body);
        if let Some(Object { version, .. }) = self.object
            && loses
        {
            self.set_backs.push(SetBack { at: now, unaware: unaware(version, to) });
        }
        true
    }

    /// A candidate starts that knows nothing.
    pub fn newcomer(&mut self, who: usize) {
        self.set_backs.iter_mut().for_each(|it| it.unaware.push(who));
    }

    /// Until when no promise holds, where a write is applied that was `sent` then.
    ///
    /// A candidate that has seen none of the lost writes cannot know of them: it takes the restored
    /// content for current, and acquires the entry, or releases it, beside an earlier leader,
    /// until that one's last renewal has run out. The same follows where a version has come
    /// back with its content, and a write over it that was under way since before is applied.
    pub fn excuses(&self, now: Time, who: usize, sent: Time) -> Option<Time> {
        let lasts = self.terms.longest.mul_f64(1.01);
        let fooled = |it: &&SetBack| it.unaware.contains(&who) || sent <= it.at;
        let ends = self.set_backs.iter().filter(fooled).map(|it| it.at + lasts);
        ends.max().filter(|ends| now < *ends)
    }

    /// Whether a token may be no greater than `last`: where it was lost, the candidate never saw
    /// it, and its clock is another, or its create was under way (`sent` then) before the
    /// object was touched.
    pub fn excuses_token(
        &self,
        last: Token,
        newest: Option<Revision>,
        sent: Time,
        clocks_agree: bool,
    ) -> bool {
        let unaware = newest.is_none_or(|newest| newest.0 < last.0);
        self.disturbed && unaware && (!clocks_agree || sent <= self.touched)
    }
}
