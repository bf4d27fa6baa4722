//! An up-to-date view of the elections of a lock: who leads, for how much longer, and what changed.

mod candidates;
mod election;
mod feed;
mod heard;
mod model;
mod moment;
mod observation;
mod sets;
mod source;
mod transition;

pub use self::candidates::{candidate_json, paused_until, started};
pub use self::election::ElectionView;
pub use self::feed::Feed;
pub use self::model::Model;
pub use self::moment::Moment;
pub use self::observation::Observation;
#[cfg(test)]
pub use self::observation::Origin;
pub use self::sets::{set_of, summary};
pub use self::source::Source;
pub use self::transition::{Transition, lost};
