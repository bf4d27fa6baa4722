use super::*;
use crate::{lock::Nonce, protocol::Rank};

const LEASE: Duration = Duration::from_secs(4);
const SETTLE: Duration = Duration::from_secs(8);
/// Where members are found by the first roll call.
const SETTLED: Duration = Duration::from_secs(9);
const MOVE_WITHIN: Duration = Duration::from_secs(12);
const SHARDS: u32 = 12;

fn settings(identity: &str) -> SetSettings {
    SetSettings {
        identity: identity.into(),
        shards: SHARDS,
        resizing: None,
        weight: 1,
        max_load: None,
        settle: SETTLE,
        moves_at_once: 2,
        move_within: MOVE_WITHIN,
        lease: LEASE,
        readiness: Readiness::Ready,
        seed: 7,
    }
}

fn info(identity: &str, load: u32) -> CandidateInfo {
    let mut info = CandidateInfo::new(identity, Nonce(1));
    info.load = Some(MemberLoad { load, ..MemberLoad::new(SHARDS, 1) });
    info
}

/// A member, and what it did.
struct Case {
    member: SetMember,
    now: Instant,
    /// What other members answer to each roll call; `None`: it fails, or nobody hears it.
    answers: Option<Vec<CandidateInfo>>,
    ranks: Vec<Rank>,
    requested: Vec<u32>,
    donated: Vec<(u32, Arc<str>)>,
    rolls: u32,
}

impl Case {
    fn new(settings: SetSettings, answers: &[CandidateInfo]) -> Self {
        let now = Instant::from_origin(Duration::from_secs(1000));
        Self {
            ranks: vec![Rank::Never; settings.shards as usize],
            member: SetMember::new(settings, now),
            now,
            answers: Some(answers.to_vec()),
            requested: Vec::new(),
            donated: Vec::new(),
            rolls: 0,
        }
    }

    fn holds(&mut self, shards: impl IntoIterator<Item = u32>, holder: &Holder) -> &mut Self {
        for shard in shards {
            self.member.set_holder(self.now, shard, holder.clone());
        }
        self
    }

    fn step(&mut self) {
        self.member.advance(self.now);
        let mut called = false;
        while let Some(action) = self.member.poll_action() {
            match action {
                SetAction::Rank { shard, rank } => self.ranks[shard as usize] = rank,
                SetAction::CallRoll => called = true,
                SetAction::Take { shard, .. } => self.requested.push(shard),
                SetAction::GiveAway { shard, to } => self.donated.push((shard, to)),
            }
        }
        if called {
            self.rolls += 1;
            let own = info(&self.member.settings.identity, self.member.load);
            let answers = self.answers.as_ref().map(|others| [&others[..], &[own]].concat());
            let unheard = (self.rolls % 2 == 1).then(Vec::new);
            self.member.on_roll(self.now, answers.or(unheard).as_deref());
            self.step();
        }
    }

    /// Lets this time pass, and does what is due in it.
    fn passes(&mut self, time: Duration) -> &mut Self {
        let end = self.now + time;
        self.step();
        while let Some(wake) = self.member.next_wake(self.now).filter(|wake| *wake <= end) {
            self.now = wake.max(self.now + Duration::from_millis(1));
            self.step();
        }
        self.now = end;
        self.step();
        self
    }

    fn firsts(&self) -> Vec<u32> {
        let first = |rank: &Rank| matches!(rank, Rank::First | Rank::Next);
        (0..).zip(&self.ranks).filter(|(_, rank)| first(rank)).map(|(s, _)| s).collect()
    }
}

fn other(identity: &str) -> Holder {
    Holder::Other(identity.into())
}

/// `m1` beside one that leads all there is.
fn beside_one_that_leads_all() -> Case {
    let mut case = Case::new(settings("m1"), &[info("m2", SHARDS)]);
    case.holds(0..SHARDS, &other("m2"));
    case
}

#[test]
fn a_member_acquires_nothing_before_it_knows_who_is_there() {
    let mut case = Case::new(settings("m1"), &[]);
    case.holds(0..SHARDS, &Holder::Nobody);
    case.member.advance(case.now);
    assert_eq!(case.member.poll_action(), None);
    case.passes(FIRST_CALL);
    assert_eq!((case.rolls, case.firsts().len()), (1, 12));
}

#[test]
fn a_member_that_cannot_call_the_roll_acquires_what_is_vacant() {
    let mut case = Case::new(settings("m1"), &[]);
    case.answers = None;
    case.holds(0..SHARDS, &Holder::Nobody).passes(FIRST_CALL);
    assert_eq!(case.firsts().len(), 12);
    case.passes(LEASE * 15);
    assert_eq!(case.rolls, 4, "calls that fail are repeated after 2, 4 and 8 leases");
}

/// The member that leads may have another number of shards.
#[test]
fn a_member_that_hears_no_answer_acquires_nothing_beside_others() {
    let mut case = Case::new(settings("m1"), &[]);
    case.answers = None;
    case.holds([0], &other("m2")).holds(1..SHARDS, &Holder::Nobody).passes(LEASE);
    assert_eq!((case.rolls, case.firsts().len()), (1, 0));
    case.passes(LEASE * 2);
    assert_eq!(case.rolls, 3);
    assert!(!case.firsts().is_empty(), "its messages seem to be lost for good");
}

#[test]
fn members_that_see_the_same_divide_what_is_vacant() {
    let mut firsts = Vec::new();
    for identity in ["m1", "m2", "m3"] {
        let all = ["m1", "m2", "m3"].map(|identity| info(identity, 0));
        let mut case = Case::new(settings(identity), &all);
        case.holds(0..SHARDS, &Holder::Nobody).passes(FIRST_CALL);
        assert_eq!(case.firsts().len(), 4);
        firsts.extend(case.firsts());
    }
    firsts.sort_unstable();
    assert_eq!(firsts, (0..SHARDS).collect::<Vec<_>>());
}

#[test]
fn shards_of_a_dead_member_are_divided_before_their_vacancy() {
    let mut firsts = Vec::new();
    for (identity, beside, own) in [("m1", "m2", 0..4), ("m2", "m1", 4..8)] {
        let mut case = Case::new(settings(identity), &[info(beside, 4), info("m3", 4)]);
        case.holds(own.clone(), &Holder::Me);
        case.holds((0..8).filter(|shard| !own.contains(shard)), &other(beside));
        case.holds(8..12, &other("m3")).passes(FIRST_CALL);
        let planned: Vec<_> = case.firsts().into_iter().filter(|shard| *shard >= 8).collect();
        case.holds([9], &Holder::Nobody).passes(Duration::ZERO);
        let after: Vec<_> = case.firsts().into_iter().filter(|shard| *shard >= 8).collect();
        assert_eq!(planned, after, "one shard of four is seen to be vacant first");
        firsts.extend(after);
    }
    firsts.sort_unstable();
    assert_eq!(firsts, [8, 9, 10, 11]);
}

#[test]
fn a_vacant_shard_goes_to_another_member_than_its_last_leader() {
    let mut case = Case::new(settings("m1"), &[info("m2", 6)]);
    case.holds(0..6, &Holder::Me).holds(6..12, &other("m2")).passes(FIRST_CALL);
    assert_eq!(case.firsts(), (0..12).collect::<Vec<_>>());
    case.holds(0..6, &Holder::Nobody).passes(Duration::ZERO);
    assert_eq!(case.firsts(), (6..12).collect::<Vec<_>>());
}

#[test]
fn a_member_at_its_limit_acquires_only_its_own_entries() {
    let mut case = Case::new(SetSettings { max_load: Some(2), ..settings("m1") }, &[]);
    case.holds(0..SHARDS, &Holder::Nobody).passes(FIRST_CALL);
    assert_eq!(case.firsts().len(), 2, "no more than it may lead");
    case.holds([3, 5], &Holder::Me).passes(Duration::ZERO);
    assert_eq!(case.firsts(), [3, 5], "an entry may be left of a term that is over");
    assert!((0..12).all(|it| [3, 5].contains(&it) || case.ranks[it] == Rank::Never));
    case.holds([3], &Holder::Nobody).passes(Duration::ZERO);
    assert_eq!(case.ranks.iter().filter(|rank| **rank == Rank::Never).count(), 0);
}

#[test]
fn an_earlier_process_of_the_same_name_is_no_other_member() {
    let mut case = Case::new(settings("m1"), &[info("m1", 3)]);
    case.holds(0..3, &other("m1")).holds(3..12, &Holder::Nobody).passes(FIRST_CALL);
    assert_eq!(case.member.known_members(), 1);
    assert_eq!(case.firsts().len(), 12);
}

#[test]
fn nothing_moves_before_the_members_have_settled() {
    let mut case = beside_one_that_leads_all();
    case.passes(SETTLE - Duration::from_millis(1));
    assert!(case.requested.is_empty());
    case.passes(Duration::from_millis(1));
    assert_eq!(case.requested.len(), 2, "as many as move at once");
}

#[test]
fn ever_new_members_delay_moves_at_most_four_times() {
    let settings = SetSettings { moves_at_once: 100, ..settings("m1") };
    let mut case = Case::new(settings, &[info("m2", SHARDS)]);
    case.holds(0..SHARDS, &other("m2"));
    let mut come = 0;
    while case.requested.is_empty() && come < 100 {
        come += 1;
        case.answers.as_mut().unwrap().push(info(&format!("n{come}"), 0));
        case.member.call_at = case.now;
        case.passes(SETTLE / 2);
    }
    assert_eq!(come, 8);
}

#[test]
fn what_moves_is_decided_by_a_roll_call_after_the_last_change() {
    let mut case = beside_one_that_leads_all();
    case.passes(FIRST_CALL);
    assert_eq!(case.rolls, 1);
    case.answers = Some(vec![info("m2", SHARDS), info("m3", 0)]);
    case.passes(SETTLE);
    assert_eq!(case.rolls, 2, "once they have settled");
    assert_eq!(case.member.known_members(), 3);
}

#[test]
fn members_that_lead_too_little_share_the_moves_at_once() {
    let asked = |members: &[&str], moves_at_once: u32| -> Vec<usize> {
        let answers: Vec<_> = members.iter().map(|identity| info(identity, 0)).collect();
        let asks = |identity: &&str| {
            let settings = SetSettings { moves_at_once, ..settings(identity) };
            let mut case = Case::new(settings, &[&answers[..], &[info("m0", 12)]].concat());
            case.holds(0..SHARDS, &other("m0")).passes(SETTLED);
            case.requested.len()
        };
        members.iter().map(asks).collect()
    };
    assert_eq!(asked(&["m1", "m2"], 4), [2, 2]);
    let asks = asked(&["m1", "m2", "m3"], 2);
    assert_eq!((asks.iter().sum::<usize>(), asks.iter().max()), (2, Some(&1)));
}

#[test]
fn a_member_asks_out_of_turn_where_those_before_it_move_nothing() {
    let members = ["m1", "m2", "m3"];
    for identity in members {
        let answers = members.map(|identity| info(identity, 0));
        let settings = SetSettings { moves_at_once: 1, ..settings(identity) };
        let mut case = Case::new(settings, &[&answers[..], &[info("m0", 12)]].concat());
        case.holds(0..SHARDS, &other("m0")).passes(SETTLED);
        case.requested.clear();
        case.passes(MOVE_WITHIN);
        assert_eq!(case.requested.len(), 1, "{identity}");
    }
}

#[test]
fn a_member_takes_until_the_load_is_even() {
    let mut case = beside_one_that_leads_all();
    case.passes(SETTLE);
    for _ in 0..30 {
        for shard in std::mem::take(&mut case.requested) {
            case.member.on_outcome(case.now, shard, TakeOutcome::Accepted);
            case.holds([shard], &Holder::Nobody);
            case.holds([shard], &Holder::Me);
        }
        case.passes(LEASE);
    }
    assert_eq!(case.member.load, 6);
}

#[test]
fn an_expected_shard_keeps_its_turn_until_its_time_is_over() {
    let settings = SetSettings { moves_at_once: 4, max_load: Some(2), ..settings("m1") };
    let mut case = Case::new(settings, &[info("m2", SHARDS), info("m3", 0)]);
    case.holds(0..SHARDS, &other("m2")).passes(SETTLED);
    let [one, two] = case.requested[..] else { panic!("{:?}", case.requested) };
    for shard in [one, two] {
        case.member.on_outcome(case.now, shard, TakeOutcome::Accepted);
    }
    case.holds([one], &Holder::Nobody).passes(Duration::from_secs(1));
    assert_eq!((case.ranks[one as usize], case.requested.len()), (Rank::Next, 2));
    case.holds([one], &other("m3")).passes(Duration::ZERO);
    assert_eq!(case.requested.len(), 3, "another one got it: it asks for one more");
    case.passes(MOVE_WITHIN);
    assert!(case.requested.len() > 3 && !case.requested[3..].contains(&two));
}

#[test]
fn a_request_that_moves_nothing_is_repeated_ever_later() {
    let repeated = |outcome| {
        let settings = SetSettings { moves_at_once: 1, shards: 2, ..settings("m1") };
        let mut case = Case::new(settings, &[info("m2", 2)]);
        case.holds(0..2, &other("m2")).passes(SETTLE);
        let mut begun = case.now;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let asked = case.requested.len();
            for shard in case.requested.split_off(0) {
                case.member.on_outcome(case.now, shard, outcome);
            }
            while case.requested.is_empty() {
                case.passes(LEASE / 8);
            }
            assert_eq!(asked, 1);
            pauses.push(case.now.saturating_since(begun));
            begun = case.now;
        }
        pauses[6..].iter().sum::<Duration>()
    };
    let (refused, unanswered) = (repeated(TakeOutcome::Refused), repeated(TakeOutcome::NoAnswer));
    assert!(refused >= LEASE * 3 && refused <= LEASE * 10, "{refused:?}");
    assert!(unanswered >= refused * 2, "{unanswered:?}");
}

#[test]
fn an_unhealthy_member_donates_a_few_at_once_to_responders() {
    let mut sick = info("m4", 0);
    sick.readiness = Readiness::Unhealthy;
    let mut case = Case::new(settings("m1"), &[info("m2", 1), sick]);
    case.holds(0..6, &Holder::Me).holds([6], &other("m2")).holds(7..9, &other("m3"));
    case.passes(SETTLE * 2);
    case.requested.clear();
    case.member.set_readiness(case.now, Readiness::Unhealthy);
    case.passes(FIRST_CALL);
    assert_eq!(case.donated, [(0, "m2".into()), (1, "m2".into())], "after a roll call of its own");
    case.member.on_outcome(case.now, 0, TakeOutcome::Accepted);
    case.holds([0], &other("m2")).passes(Duration::ZERO);
    assert_eq!(case.donated.len(), 3, "the next one");
    assert!(case.requested.is_empty());
}

#[test]
fn an_unready_member_gives_to_whom_answers_as_ready() {
    let [m2, m3] = [info("m2", 0), info("m3", 3)];
    let mut case = Case::new(settings("m1"), &[info("gone", 0), m2.clone(), m3.clone()]);
    case.holds(0..6, &Holder::Me).holds(6..9, &other("m3")).passes(SETTLE * 2);
    case.answers = Some(vec![m2, m3]);
    case.member.set_readiness(case.now, Readiness::Unhealthy);
    case.passes(FIRST_CALL);
    assert_eq!(case.donated, [(0, "m2".into()), (1, "m2".into())]);
    for (shard, _) in std::mem::take(&mut case.donated) {
        case.member.on_outcome(case.now, shard, TakeOutcome::NoAnswer);
    }
    case.passes(Duration::ZERO);
    assert_eq!(case.donated, [(2, "m3".into()), (3, "m3".into())], "m2 does not take any");
}

#[test]
fn a_cordoned_member_keeps_what_nobody_can_take_over() {
    let mut cordoned = info("m2", 0);
    cordoned.readiness = Readiness::Cordoned;
    for others in [vec![], vec![cordoned]] {
        let mut case = Case::new(settings("m1"), &others);
        case.holds(0..SHARDS, &Holder::Me).passes(SETTLE * 2);
        case.member.set_readiness(case.now, Readiness::Cordoned);
        case.passes(MOVE_WITHIN * 4);
        assert_eq!((case.donated.len(), case.firsts().len()), (0, 12), "beside {others:?}");
    }
}

#[test]
fn a_shard_that_comes_back_is_given_away_later_and_later() {
    let mut case = Case::new(settings("m1"), &[info("m2", 0)]);
    case.holds([0], &Holder::Me).passes(SETTLE);
    case.member.set_readiness(case.now, Readiness::Unhealthy);
    let mut given = 0;
    for _ in 0..200 {
        case.passes(LEASE);
        for (shard, _) in std::mem::take(&mut case.donated) {
            given += 1;
            case.member.on_outcome(case.now, shard, TakeOutcome::Accepted);
            case.holds([shard], &Holder::Nobody).passes(Duration::ZERO);
            case.holds([shard], &Holder::Me);
        }
    }
    assert!((4..=12).contains(&given), "{given} times");
}

#[test]
fn a_member_without_shards_is_known_for_three_roll_calls() {
    let mut case = Case::new(settings("m1"), &[info("m2", 0)]);
    case.holds([0], &Holder::Nobody).passes(FIRST_CALL);
    case.answers = Some(Vec::new());
    case.passes(LEASE * 20);
    assert_eq!(case.member.known_members(), 2);
    case.passes(LEASE * 25);
    assert_eq!(case.member.known_members(), 1);
}

#[test]
fn a_member_that_lost_its_last_shard_is_asked_for_soon() {
    let mut case = Case::new(settings("m1"), &[info("m2", 1)]);
    case.holds([0], &other("m2")).passes(FIRST_CALL);
    case.answers = Some(Vec::new());
    case.holds([0], &Holder::Nobody).passes(LEASE);
    assert_eq!((case.rolls, case.member.known_members()), (2, 1));
}

#[test]
fn an_answer_older_than_the_loss_of_the_last_shard_counts_for_nothing() {
    let mut case = Case::new(settings("m1"), &[info("m2", 1)]);
    case.holds([0], &other("m2")).passes(FIRST_CALL);
    case.member.call_at = case.now;
    case.member.advance(case.now);
    assert_eq!(case.member.poll_action(), Some(SetAction::CallRoll));
    case.holds([0], &Holder::Nobody);
    case.member.on_roll(case.now, Some(&[info("m1", 0), info("m2", 1)]));
    case.answers = Some(Vec::new());
    case.passes(LEASE);
    assert_eq!(case.member.known_members(), 1);
}

#[test]
fn another_number_of_shards_is_reported() {
    let mut with_others = info("m2", 0);
    with_others.load = Some(MemberLoad::new(64, 1));
    let mut case = Case::new(settings("m1"), &[info("m3", 0), with_others]);
    case.holds([0], &Holder::Nobody).passes(FIRST_CALL);
    assert_eq!(case.member.others_shards(), Some(64));
    case.answers = None;
    case.passes(LEASE * 20);
    assert_eq!(case.member.others_shards(), Some(64), "no answer shows nothing");
    (case.answers, case.rolls) = (Some(vec![info("m2", 0)]), 0);
    while case.member.others_shards().is_some() && case.rolls < 10 {
        case.passes(LEASE / 2);
    }
    assert_eq!(case.rolls, BELIEVED, "until then an answer may be lost");
}

#[test]
fn a_large_fleet_that_becomes_unhealthy_calls_the_roll_rarely() {
    let others: Vec<_> = (0..60).map(|index| info(&format!("n{index}"), 0)).collect();
    let mut case = Case::new(settings("m1"), &others);
    case.holds([0], &Holder::Me).holds(1..SHARDS, &Holder::Nobody).passes(SETTLED);
    case.rolls = 0;
    case.member.set_readiness(case.now, Readiness::Unhealthy);
    case.passes(Duration::ZERO);
    assert_eq!(case.rolls, 0, "not all at once");
    case.passes(LEASE);
    assert_eq!(case.rolls, 1);
    case.passes(LEASE * 10);
    assert!(case.rolls <= 4, "{} calls", case.rolls);
}

/// Only one move at a time, which members that lack shards make in turn.
#[test]
fn a_member_does_not_wait_for_one_that_leads_what_it_is_to() {
    let first = ["m2", "m3", "m4", "m5", "m6"];
    let before = |other: &&&str| plan::member_hash(other) < plan::member_hash("m1");
    let enough = first.iter().find(before).expect("one whose turn comes before");
    let one_move = SetSettings { moves_at_once: 1, ..settings("m1") };
    let mut case = Case::new(one_move, &[info("giver", 8), info(enough, 4)]);
    case.holds(0..8, &other("giver")).holds(8..12, &other(enough));
    case.passes(SETTLED);
    assert_eq!(case.requested.len(), 1);
}
