//! What a member gives to others that lead less.

use crate::lock::{MemberLoad, TakeRequest};
use crate::protocol::moves::Refusal;

/// The load of a member, as each of its shards' leaders sees it when another member asks for it.
#[derive(Debug, Clone)]
pub struct LoadLedger {
    load: MemberLoad,
    /// Terms that are being handed over at the request of others.
    outgoing: u32,
    moves_at_once: u32,
}

impl LoadLedger {
    /// A member that leads so much.
    pub fn new(load: MemberLoad, moves_at_once: u32) -> Self {
        Self { load, outgoing: 0, moves_at_once }
    }

    /// What it leads now.
    pub fn load(&self) -> MemberLoad {
        self.load
    }

    /// A term has begun.
    pub fn begin(&mut self) {
        self.load.load = self.load.load.saturating_add(1);
    }

    /// A term has ended.
    pub fn end(&mut self) {
        self.load.load = self.load.load.saturating_sub(1);
    }

    /// Another member asks for a shard. `Ok`: it is on its way to it, until
    /// [`settled`](Self::settled).
    ///
    /// # Errors
    /// [`Refusal`]: the load would be no more even, or enough shards are on their way.
    pub fn give(&mut self, request: &TakeRequest) -> Result<(), Refusal> {
        if request.load.shards != self.load.shards {
            return Err(Refusal::OtherSet);
        }
        if self.outgoing >= self.moves_at_once {
            return Err(Refusal::Busy);
        }
        let left = MemberLoad { load: self.load.load.saturating_sub(self.outgoing), ..self.load };
        if !left.should_give_to(&request.load) {
            return Err(Refusal::Balanced);
        }
        self.outgoing += 1;
        Ok(())
    }

    /// What was on its way is no longer: its term has ended, or continues to lead.
    pub fn settled(&mut self) {
        self.outgoing = self.outgoing.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Nonce;

    fn request(load: u32, weight: u32) -> TakeRequest {
        let load = MemberLoad { load, ..MemberLoad::new(64, weight) };
        TakeRequest { by: Nonce(7), identity: "m7".into(), load }
    }

    fn leads(load: u32, weight: u32, moves_at_once: u32) -> LoadLedger {
        let mut share = LoadLedger::new(MemberLoad::new(64, weight), moves_at_once);
        (0..load).for_each(|_| share.begin());
        share
    }

    #[test]
    fn a_member_gives_only_what_makes_the_load_more_even() {
        assert_eq!(leads(10, 1, 9).give(&request(8, 1)), Ok(()));
        assert_eq!(leads(10, 1, 9).give(&request(9, 1)), Err(Refusal::Balanced));
        assert_eq!(leads(20, 2, 9).give(&request(9, 1)), Ok(()));
        assert_eq!(leads(20, 2, 9).give(&request(10, 1)), Err(Refusal::Balanced));
        assert_eq!(leads(1, 1, 9).give(&request(0, 1)), Err(Refusal::Balanced));
    }

    #[test]
    fn what_is_on_its_way_counts_no_more() {
        let mut share = leads(10, 1, 9);
        assert_eq!(share.give(&request(6, 1)), Ok(()));
        assert_eq!(share.give(&request(7, 1)), Ok(())); // 9 here, 7 there
        assert_eq!(share.give(&request(8, 1)), Err(Refusal::Balanced)); // 8 here
        share.settled(); // the first one continues
        assert_eq!(share.give(&request(7, 1)), Ok(()));
    }

    #[test]
    fn no_more_than_the_limit_are_on_their_way_at_once() {
        let mut share = leads(60, 1, 2);
        assert_eq!(share.give(&request(0, 1)), Ok(()));
        assert_eq!(share.give(&request(1, 1)), Ok(()));
        assert_eq!(share.give(&request(2, 1)), Err(Refusal::Busy));
        share.settled();
        share.end();
        assert_eq!(share.give(&request(2, 1)), Ok(()));
    }

    #[test]
    fn a_member_of_another_number_of_shards_gets_none() {
        let mut other = request(0, 1);
        other.load.shards = 128;
        assert_eq!(leads(60, 1, 2).give(&other), Err(Refusal::OtherSet));
    }

    /// Each exchange lessens the sum of load²/weight, so exchanges come to an end.
    #[test]
    fn exchanges_end_with_the_most_even_distribution() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let mut loads: Vec<_> = (0..random.u32(2..9))
                .map(|_| MemberLoad {
                    load: random.u32(0..40),
                    ..MemberLoad::new(0, random.u32(1..5))
                })
                .collect();
            let total: u32 = loads.iter().map(|m| m.load).sum();
            let mut moves = 0;
            loop {
                let pairs = (0..loads.len()).flat_map(|a| (0..loads.len()).map(move |b| (a, b)));
                let next = pairs.filter(|(a, b)| a != b);
                let Some((a, b)) = { next }.find(|(a, b)| loads[*a].should_give_to(&loads[*b]))
                else {
                    break;
                };
                loads[a].load -= 1;
                loads[b].load += 1;
                moves += 1;
                assert!(moves < 1_000);
            }
            let weights: u32 = loads.iter().map(|m| m.weight).sum();
            for member in &loads {
                let part = f64::from(total) * f64::from(member.weight) / f64::from(weights);
                assert!((f64::from(member.load) - part).abs() <= f64::from(member.weight).max(2.0));
            }
        }
    }
}
