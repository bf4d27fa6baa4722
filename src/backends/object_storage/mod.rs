//! Elections on object storage: Google Cloud Storage, Amazon S3, Azure Blob Storage.
//!
//! An election is one object, and every write to it is conditional on what it replaces: by its generation on Google Cloud
//! Storage, by its ETag elsewhere. Nothing is ever deleted. The object is vimeo/leaderelection's, field by field: on Google
//! Cloud Storage campaigners of this library and of that one stand in one election.
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
//! A bucket frees nothing. A holder has lost its office when its object has not changed for as long as the *holder's* lease,
//! on the candidate's own clock, from when the candidate first saw it. No two wall clocks are compared among
//! campaigners of this library, and never the store's.
//!
//! # Tokens
//! Each write has a number in the object, greater than the last one's, and the token of a term is the number of its first write,
//! plus one. (The generations of Google Cloud Storage are not promised to grow, and the ETags of the others are no
//! numbers.) A released election stays, as an object that says so. Where somebody deletes the object, the next number still
//! is greater for every campaigner that has seen it, and by the wall clock, in milliseconds, for those that have not.
//!
//! # Hints
//! There are none: candidates poll by their [`Backoff`](crate::Backoff), and a release is noticed by the next poll.
//!
//! # Rights and costs
//! `docs/object-storage.md` in the repository has the least rights and what the requests of a day cost.

mod bucket;
mod codec;
mod known;
#[cfg(test)]
mod known_tests;
mod lock;
mod probe;
mod race_entry;
mod store;
mod transport;
mod vimeo_timing;

pub use bucket::{Bucket, BucketError};
pub use lock::ObjectStorageLock;
pub use probe::BucketFacts;
