//! Whether states that share a key do have the same future.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use stateright::Model;

use crate::state::State;
use crate::transitions::{Move, Sights};
use crate::{Config, Election};

/// Visits `most` states breadth first, and takes the next step from each two that share a key: both
/// must come to the same keys. Answers how many such pairs there were.
///
/// # Errors
/// The first pair that does not.
pub fn confirm(config: Config, most: usize) -> Result<usize, String> {
    let election = Election { config: Arc::new(config), sights: Arc::new(Sights::default()) };
    let mut futures: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut queue: VecDeque<State> = election.init_states().into();
    let mut pairs = 0;
    while let Some(state) = queue.pop_front() {
        let next: Vec<(Move, State)> = election.next_steps(&state);
        let mut future: Vec<u64> = next.iter().map(|(_, next)| next.key()).collect();
        future.sort_unstable();
        future.dedup();
        match futures.get(&state.key()) {
            Some(known) if *known == future => pairs += 1,
            Some(known) => {
                let odd: Vec<_> =
                    next.iter().filter(|(_, next)| !known.contains(&next.key())).collect();
                return Err(format!("{state:#?}\nhas another future: {odd:#?}"));
            }
            None => {
                futures.insert(state.key(), future);
                if futures.len() < most {
                    queue.extend(next.into_iter().map(|(_, next)| next));
                }
            }
        }
    }
    Ok(pairs)
}
