//! Elections on object storage: Google Cloud Storage, Amazon S3, Azure Blob Storage.
//!
//! An election is one object, and every write to it is conditional on the version it replaces: by
//! its generation on Google Cloud Storage, by its ETag elsewhere. Nothing is ever deleted. The
//! object is vimeo/leaderelection's, field by field: on Google Cloud Storage, candidates of this
//! library and of vimeo/leaderelection take part in the same election.
//!
//! ```no_run
//! use incumbent::new_election;
//! use incumbent::object_storage::Bucket;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let bucket = Bucket::from_url("gs://my-bucket/elections")?;
//! let election = new_election("my_app", bucket.lock()).start()?;
//! let leadership = election.won().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Expiry
//! A bucket expires nothing. A holder has lost the lease when its object has not changed for the
//! *holder's* lease, measured on the candidate's own clock from when the candidate first saw the
//! object. No two wall clocks are compared among candidates of this library, and never the store's.
//!
//! # Tokens
//! Each write has a number in the object, greater than the last one's, and the token of a term is
//! the number of its first write plus one. (The generations of Google Cloud Storage are not
//! guaranteed to grow, and the ETags of the others are not numbers.) A released election stays, as
//! an object that states the release. After an object was deleted, the next number is still greater
//! than those before: for a candidate that has seen them by its memory, and otherwise by the wall
//! clock, in milliseconds.
//!
//! # Hints
//! There are none: candidates poll by their [`Backoff`](crate::Backoff), and the next poll notices
//! a release.
//!
//! # Permissions and costs
//! `docs/object-storage.md` in the repository lists the minimal permissions and the daily cost of
//! the requests.

mod bucket;
mod checkpoints;
mod codec;
mod lock;
mod probe;
mod race_entry;
mod store;
mod transport;

pub use bucket::{Bucket, BucketError};
pub use lock::ObjectStorageLock;
pub use probe::BucketFacts;
pub(crate) use store::Store;
