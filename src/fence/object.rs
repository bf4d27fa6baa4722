//! Fences in objects of object storage.

use std::time::Duration;

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;
use tokio::time::Instant;

use super::term::FencedTerm;
use super::{FenceError, FenceErrorKind, misconfigured, retry};
use crate::backends::object_storage::{Bucket, Store};
use crate::election::Leadership;
use crate::lock::{LockError, LockErrorKind, Token};
use crate::time::timer::deadline_after;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a claim may take with all its attempts.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause between attempts.
const MAX_PAUSE_MS: u64 = 200;
/// The maximum size of an object in bytes.
const MAX_LEN: usize = 4 << 20;
/// How the head begins.
const HEAD: &str = "incumbent-fence";
const MAX_HEAD_LEN: usize = 2_048;

/// An object that no former leader can write.
///
/// As the term begins, [`claim`](Self::claim) rewrites the object with the term's token, and
/// refuses if a greater one is there. Each write is then conditional on the version before it,
/// which the claim of a later term has replaced: so from that claim on, no write of an earlier term
/// is stored, however late it arrives.
///
/// The object begins with a line such as `incumbent-fence 9 3 5f2ac01b my_app`: the token, the
/// number of the write, the handle that wrote it, and the election. The contents follow. The line
/// is in the object, and not in its metadata, since S3 derives the version that a write can be
/// conditional on from the content alone. [`read`](Self::read) returns the contents without it.
///
/// An object has up to 4 MiB. Write what is larger to objects whose names contain the token, and
/// have the fenced object name the current one. Google Cloud Storage accepts one write per second
/// of one object. Who deletes the object removes the fence.
///
/// ```no_run
/// # async fn work(leadership: incumbent::Leadership)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent::fence::FencedObject;
/// use incumbent::object_storage::Bucket;
///
/// let bucket = Bucket::from_url("s3://my-bucket/state")?;
/// let (mut object, before) = FencedObject::claim(&leadership, &bucket, "position").await?;
/// println!("the term before left {} bytes", before.len());
/// object.write("42").await?;
/// # Ok(())
/// # }
/// ```
pub struct FencedObject {
    term: FencedTerm,
    store: Store,
    path: Path,
    /// What tells its writes from those of other handles.
    handle: u32,
    /// The version that the next write replaces.
    version: UpdateVersion,
    /// The number of the last write that was attempted.
    attempted: u64,
}

/// An object as found.
struct StoredObject {
    version: UpdateVersion,
    head: Head,
    contents: Bytes,
}

/// The first line of an object.
#[derive(Debug, PartialEq)]
struct Head {
    token: Token,
    number: u64,
    handle: u32,
    election: String,
}

impl FencedObject {
    /// Claims an object of the bucket's prefix for the term, and returns its contents, which are
    /// empty if nothing was ever written. Excludes all earlier terms.
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`] and [`TermOver`](FenceErrorKind::TermOver): the term is over.
    /// [`Misconfigured`](FenceErrorKind::Misconfigured): the object is not a fenced one, or the
    /// store ignores conditions.
    ///
    /// # Cancel safety
    /// The object may have been claimed.
    pub async fn claim(
        leadership: &Leadership,
        bucket: &Bucket,
        name: &str,
    ) -> Result<(Self, Bytes), FenceError> {
        Self::claimed(FencedTerm::of(leadership), bucket, name).await
    }

    /// Claims an object with a token, as [`claim`](Self::claim) does: for a process that receives
    /// the token from the leader.
    ///
    /// # Errors
    /// Those of [`claim`](Self::claim).
    ///
    /// # Cancel safety
    /// The object may have been claimed.
    pub async fn claim_with_token(
        election: &str,
        token: Token,
        bucket: &Bucket,
        name: &str,
    ) -> Result<(Self, Bytes), FenceError> {
        Self::claimed(FencedTerm::with_token(election, token), bucket, name).await
    }

    /// Returns the contents of an object and the token of the term that has claimed it last; `None`
    /// if no term has.
    ///
    /// # Errors
    /// [`Unavailable`](FenceErrorKind::Unavailable), or
    /// [`Misconfigured`](FenceErrorKind::Misconfigured): it is not a fenced object.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn read(bucket: &Bucket, name: &str) -> Result<Option<(Token, Bytes)>, FenceError> {
        let (store, path) = bucket.object(name).map_err(failed)?;
        let found = find(&store, &path).await?;
        Ok(found.map(|found| (found.head.token, found.contents)))
    }

    /// Replaces the contents.
    ///
    /// # Errors
    /// [`FenceErrorKind::Stale`] and [`TermOver`](FenceErrorKind::TermOver): the term is over, and
    /// the contents were not stored. [`OutcomeUnknown`](FenceErrorKind::OutcomeUnknown): they may
    /// have been; write again. After any other error they were not.
    ///
    /// # Cancel safety
    /// The contents may have been stored. The next write finds out.
    pub async fn write(&mut self, contents: impl Into<Bytes>) -> Result<(), FenceError> {
        let contents = contents.into();
        if contents.len() > MAX_LEN - MAX_HEAD_LEN {
            return Err(misconfigured(format!(
                "{}: contents of {} bytes are too large: the limit is {}",
                self.store.describe(&self.path),
                contents.len(),
                MAX_LEN - MAX_HEAD_LEN
            )));
        }
        self.term.check()?;
        match self.put(&contents).await {
            Err(error) if error.kind() == LockErrorKind::Conflict => {}
            written => return written.map_err(failed),
        }
        // An earlier write, whose outcome was unknown, was stored after all: or another client's.
        self.adopt().await?;
        self.put(&contents).await.map_err(failed)
    }

    async fn put(&mut self, contents: &[u8]) -> Result<(), LockError> {
        // Each attempt has a number of its own, so that no two contents, and thus versions, are the
        // same.
        self.attempted += 1;
        let body = body(&self.term, self.attempted, self.handle, contents);
        let replaced = Some(&self.version);
        let deadline = deadline_after(REQUEST_TIMEOUT);
        self.version = self.store.put(&self.path, replaced, &body, deadline).await?;
        Ok(())
    }

    /// Takes the object for this handle's own if one of its attempts wrote it.
    async fn adopt(&mut self) -> Result<(), FenceError> {
        self.term.check()?;
        let found = find(&self.store, &self.path).await?;
        if let Some(found) = &found {
            self.term.check_found(found.head.token)?;
        }
        match found {
            Some(found)
                if found.head.token == self.term.token && found.head.handle == self.handle =>
            {
                self.version = found.version;
                Ok(())
            }
            _ => Err(misconfigured(format!(
                "{} was written by something else in this term: write it by one handle alone",
                self.store.describe(&self.path)
            ))),
        }
    }

    async fn claimed(
        term: FencedTerm,
        bucket: &Bucket,
        name: &str,
    ) -> Result<(Self, Bytes), FenceError> {
        let (store, path) = bucket.object(name).map_err(failed)?;
        if term.election.contains('\n') || term.election.len() > MAX_HEAD_LEN / 2 {
            return Err(misconfigured(format!("{:?} cannot name a fence", term.election)));
        }
        let (handle, deadline) = (fastrand::u32(..), Instant::now() + TIMEOUT);
        // An attempt without a response may have been stored: it is found, and claimed again.
        let attempt = || claim(&term, &store, &path, handle);
        let (version, number, contents) = retry(deadline, MAX_PAUSE_MS, attempt).await?;
        term.check()?;
        let object = Self { term, store, path, handle, version, attempted: number };
        Ok((object, contents))
    }
}

partial_debug!(FencedObject, self, term: self.term, store: self.store, path: self.path);

/// Rewrites the object with the term's token. Returns its version, the number of the write, and the
/// contents.
async fn claim(
    term: &FencedTerm,
    store: &Store,
    path: &Path,
    handle: u32,
) -> Result<(UpdateVersion, u64, Bytes), FenceError> {
    term.check()?;
    let found = find(store, path).await?;
    if let Some(found) = &found {
        term.check_found(found.head.token)?;
        if found.head.election != *term.election {
            return Err(misconfigured(format!(
                "{} is fenced by the election {:?}: use another object",
                store.describe(path),
                found.head.election
            )));
        }
    }
    let (replaced, number, contents) = match found {
        Some(found) => (Some(found.version), found.head.number + 1, found.contents),
        None => (None, 1, Bytes::new()),
    };
    let body = body(term, number, handle, &contents);
    let by = deadline_after(REQUEST_TIMEOUT);
    let version = store.put(path, replaced.as_ref(), &body, by).await.map_err(failed)?;
    check_conditions(store, path, &body).await?;
    Ok((version, number, contents))
}

async fn find(store: &Store, path: &Path) -> Result<Option<StoredObject>, FenceError> {
    let found = store.get_up_to(path, MAX_LEN, deadline_after(REQUEST_TIMEOUT)).await;
    let Some((version, body)) = found.map_err(failed)? else { return Ok(None) };
    match parse(&body) {
        Some((head, contents)) => {
            Ok(Some(StoredObject { version, head, contents: body.slice(contents..) }))
        }
        None => Err(misconfigured(format!(
            "{} is not a fenced object: use another name",
            store.describe(path)
        ))),
    }
}

/// Checks that the store respects conditions, unless that is known. The writes are of what is
/// there.
async fn check_conditions(store: &Store, path: &Path, body: &Bytes) -> Result<(), FenceError> {
    if store.is_known_to_check() {
        return Ok(());
    }
    let by = deadline_after(REQUEST_TIMEOUT);
    let checked = store.check_conditions(path, body, by).await;
    checked.map_err(|error| match error.kind() {
        LockErrorKind::Misconfigured => failed(error),
        _ => error.with_kind(FenceErrorKind::Unavailable),
    })
}

fn body(term: &FencedTerm, number: u64, handle: u32, contents: &[u8]) -> Bytes {
    let head = format!("{HEAD} {} {number} {handle:08x} {}\n", term.token.0, term.election);
    [head.as_bytes(), contents].concat().into()
}

/// Returns the first line, and where the contents begin.
fn parse(body: &[u8]) -> Option<(Head, usize)> {
    let end = body.iter().take(MAX_HEAD_LEN).position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&body[..end]).ok()?;
    let mut words = line.strip_prefix(HEAD)?.strip_prefix(' ')?.splitn(4, ' ');
    let head = Head {
        token: Token(words.next()?.parse().ok()?),
        number: words.next()?.parse().ok().filter(|number| *number < u64::MAX / 2)?,
        handle: u32::from_str_radix(words.next()?, 16).ok()?,
        election: words.next()?.to_owned(),
    };
    Some((head, end + 1))
}

fn failed(error: LockError) -> FenceError {
    let kind = match error.kind() {
        LockErrorKind::OutcomeUnknown => FenceErrorKind::OutcomeUnknown,
        LockErrorKind::Conflict | LockErrorKind::Unavailable => FenceErrorKind::Unavailable,
        _ => FenceErrorKind::Misconfigured,
    };
    error.with_kind(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_parsed_as_written_and_others_are_not() {
        let term = FencedTerm::with_token("my app", Token(9));
        for contents in [&b""[..], b"42", b"two\nlines\n", &[0xff; 70_000]] {
            let body = body(&term, 3, 0x00c0_ffee, contents);
            let (head, start) = parse(&body).unwrap();
            let (token, election) = (Token(9), "my app".to_owned());
            assert_eq!(head, Head { token, number: 3, handle: 0x00c0_ffee, election });
            assert_eq!(&body[start..], contents);
        }
        let long = format!("{HEAD} 9 3 7 {}\n", "x".repeat(MAX_HEAD_LEN));
        for other in ["", "42\n", "incumbent-fence", "incumbent-fence 9 3 7\n", &long] {
            assert!(parse(other.as_bytes()).is_none(), "{other}");
        }
        for head in ["-1 3 7 a\n", "9 x 7 a\n", "9 18446744073709551615 7 a\n", "9 3 7 a"] {
            let whole = format!("{HEAD} {head}");
            assert!(parse(whole.as_bytes()).is_none(), "{head}");
        }
    }
}
