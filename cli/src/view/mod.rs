//! An up-to-date view of the elections of a lock: who leads, for how much longer, and what changed.

mod candidates;
mod change;
mod election;
mod feed;
mod heard;
mod model;
mod moment;
mod observation;
mod sets;
mod shards;
mod source;
mod transition;

pub use self::candidates::{candidate_json, cool_down_json, started};
pub use self::change::{Answer, Asked, carry_out};
pub use self::election::ElectionView;
pub use self::feed::{Feed, LastRead};
pub use self::model::{Model, TAIL};
pub use self::moment::Moment;
pub use self::observation::{Observation, Origin};
pub use self::sets::{set_of, summary};
pub use self::shards::{MemberView, SetView, ranges, shard_of, stated};
pub use self::source::{Source, forward};
pub use self::transition::{Transition, lost, millis};
