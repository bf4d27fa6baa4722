use std::time::Duration;

use incumbent::Token;
use incumbent::lock::{MemberLoad, MoveInfo, Nonce, Pause, Readiness, Revision, Role};
use time::OffsetDateTime;

use super::*;

const LEASE: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// A lock like a NATS bucket: its own times, and it ends terms itself.
const BUCKET: Origin = Origin {
    cause_of_absence: Vacancy::Expired,
    has_lock_times: true,
    lease: Some(LEASE),
    is_named: false,
    watched_for: Duration::ZERO,
};
/// A lock without times, on which nobody but this host ends terms.
const TABLE: Origin = Origin {
    cause_of_absence: Vacancy::Expired,
    has_lock_times: false,
    lease: None,
    is_named: false,
    watched_for: Duration::ZERO,
};

/// A model and its clock.
struct Scene {
    model: Model,
    start: Moment,
    revision: u64,
}

impl Scene {
    /// A model that has read a lock without elections.
    fn new(origin: Origin) -> Self {
        let start = Moment { at: Instant::now(), wall: OffsetDateTime::UNIX_EPOCH };
        let mut model = Model::new(origin);
        model.observe(Observation::all(Vec::new(), start.at), start);
        Self { model, start, revision: 0 }
    }

    fn at(&self, after: Duration) -> Moment {
        Moment { at: self.start.at + after, wall: self.start.wall + after }
    }

    fn status(&mut self, state: ElectionState, written: Option<Duration>) -> ElectionRecord {
        self.revision += 1;
        let written = written.map(|after| (self.start.wall + after).into());
        let revision = Revision(self.revision);
        ElectionRecord { election: "e".to_owned(), revision, written, state }
    }

    /// A write that is learned at this time, and that the lock dates at another one.
    fn write(&mut self, state: ElectionState, at: Duration, by_lock: Duration) -> Vec<Transition> {
        let status = self.status(state, Some(by_lock));
        self.model.observe(Observation::Written(status), self.at(at))
    }

    /// A read that finds this write.
    fn read(&mut self, state: ElectionState, at: Duration) -> Vec<Transition> {
        let status = self.status(state, None);
        self.read_all(vec![status], at)
    }

    fn read_all(&mut self, statuses: Vec<ElectionRecord>, at: Duration) -> Vec<Transition> {
        let at = self.at(at);
        self.model.observe(Observation::all(statuses, at.at), at)
    }

    fn view(&self) -> &ElectionView {
        self.model.election("e").expect("an election")
    }
}

fn held(leader: &str, token: u64, lease: Option<Duration>) -> ElectionState {
    ElectionState::Held(Holder { lease, ttl: lease, ..Holder::new(leader, Some(Token(token))) })
}

fn vacant(cause: &str) -> ElectionState {
    ElectionState::Vacant(cause.into())
}

#[test]
fn each_renewal_moves_the_deadline() {
    let mut scene = Scene::new(BUCKET);
    assert_eq!(scene.write(held("a", 1, None), MS, MS).len(), 1);
    assert_eq!(scene.view().remaining(scene.at(MS + LEASE / 2)), Some(LEASE / 2));
    assert!(scene.write(held("a", 1, None), LEASE / 2, LEASE / 2).is_empty());
    assert_eq!(scene.view().remaining(scene.at(LEASE / 2)), Some(LEASE));
    assert_eq!(scene.view().remaining(scene.at(LEASE * 9)), Some(Duration::ZERO));
    // A read of the same write moves it no further.
    let known = scene.view().status().clone();
    scene.read_all(vec![known], LEASE);
    assert_eq!(scene.view().remaining(scene.at(LEASE)), Some(LEASE / 2));
    let json = scene.view().json(scene.at(LEASE));
    assert_eq!((&json["remaining_ms"], &json["lease_ms"]), (&5000.into(), &10000.into()));
    assert_eq!(json["deadline"], "1970-01-01T00:00:15Z");
}

/// A bucket ends the trace of a release, too: with a marker as of an entry that was not renewed.
#[test]
fn cause_of_a_vacancy_is_that_of_its_start() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    assert_eq!(scene.write(vacant("stopped"), MS * 2, MS * 2).len(), 1);
    assert!(scene.write(vacant("expired"), LEASE, LEASE).is_empty());
    assert_eq!(scene.view().vacant(), Some("stopped"));
    assert_eq!(scene.view().leaderless(scene.at(LEASE)), Some(LEASE - MS * 2));
    // One that was not seen to begin has the cause that is read.
    let mut scene = Scene::new(BUCKET);
    scene.write(vacant("expired"), MS, MS);
    assert_eq!(scene.view().vacant(), Some("expired"));
}

/// Names may be made up for each job: a view that stays open does not keep all of them.
#[test]
fn election_without_a_trace_is_forgotten() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    scene.read_all(Vec::new(), LEASE);
    scene.model.expire(scene.at(LEASE + KEPT / 2));
    assert_eq!(scene.view().vacant(), Some("expired"));
    // A leader is a trace.
    scene.write(held("b", 9, None), LEASE + KEPT / 2, LEASE + KEPT / 2);
    scene.model.expire(scene.at(LEASE + KEPT));
    assert_eq!(scene.view().holder().map(|holder| &*holder.identity), Some("b"));
    scene.read_all(Vec::new(), LEASE + KEPT);
    scene.model.expire(scene.at(LEASE + KEPT * 2));
    assert!(scene.model.election("e").is_none());
    assert_eq!(scene.model.transitions().count(), 4, "what happened is kept");
}

#[test]
fn lease_of_the_record_counts_before_that_of_the_bucket() {
    let mut scene = Scene::new(BUCKET);
    let ElectionState::Held(mut holder) = held("a", 1, None) else { unreachable!() };
    holder.ttl = Some(LEASE / 5);
    scene.write(ElectionState::Held(holder), MS, MS);
    assert_eq!(scene.view().remaining(scene.at(MS)), Some(LEASE / 5));
}

#[test]
fn age_of_a_write_that_was_read_counts() {
    let mut scene = Scene::new(BUCKET);
    let status = scene.status(held("a", 1, None), Some(MS));
    scene.read_all(vec![status], MS + LEASE / 4);
    assert_eq!(scene.view().remaining(scene.at(MS + LEASE / 4)), Some(LEASE * 3 / 4));
}

/// A lock that was made anew, or restored, has lower revisions; a message may only be late.
#[test]
fn lower_revision_counts_if_it_was_read() {
    let mut scene = Scene::new(BUCKET);
    scene.revision = 100;
    scene.write(held("a", 101, None), MS, MS);
    scene.revision = 1;
    assert!(scene.write(held("late", 2, None), MS, MS).is_empty());
    let read = scene.read(held("b", 3, None), MS * 2);
    assert_eq!(read[0].before.as_ref().map(|before| &*before.identity), Some("a"));
    assert_eq!(scene.view().holder().map(|holder| &*holder.identity), Some("b"));
    scene.revision = 0;
    let status = scene.status(held("c", 1, None), Some(MS));
    let one = |status| Observation::One { election: "e".to_owned(), status, is_new: true };
    assert_eq!(scene.model.observe(one(Some(status)), scene.at(MS * 3)).len(), 1);
    let lost = scene.model.observe(one(None), scene.at(MS * 4));
    assert_eq!(lost[0].outcome().err(), Some("expired"));
}

#[test]
fn time_without_a_leader_is_by_the_clock_of_the_lock() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    // The messages arrive 3 s apart, though the writes are 4 ms apart.
    let released = scene.write(vacant("handed_over"), MS * 2000, MS * 1000);
    assert_eq!(released[0].before.as_ref().expect("a leader").identity, "a");
    assert_eq!(scene.view().leaderless(scene.at(MS * 2500)), Some(MS * 500));
    let taken = scene.write(held("b", 2, None), MS * 5000, MS * 1004);
    assert_eq!(taken[0].leaderless, Some(MS * 4));
    assert_eq!(taken[0].json()["leaderless_ms"], 4);
    assert_eq!(scene.view().leaderless(scene.at(MS * 6000)), None);
    assert_eq!(scene.model.transitions().count(), 3);
}

#[test]
fn crashed_leader_is_reported_with_the_age_of_its_last_renewal() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    let expired = scene.write(vacant("expired"), LEASE + MS * 9, LEASE + MS * 8);
    assert_eq!(expired[0].unrenewed, Some(LEASE + MS * 7));
    let released = Scene::new(BUCKET).write(vacant("stopped"), MS, MS);
    assert!(released.iter().all(|transition| transition.unrenewed.is_none()));
}

#[test]
fn record_that_does_not_change_for_a_lease_has_expired() {
    let mut scene = Scene::new(TABLE);
    scene.read(held("a", 1, Some(LEASE)), MS);
    // While the lock cannot be read, or a slow read is under way, it may renew.
    assert_eq!(scene.model.next_expiry(), None);
    assert!(scene.model.expire(scene.at(LEASE * 2)).is_empty());
    let record = scene.view().status().clone();
    assert!(scene.read_all(vec![record], LEASE * 2).is_empty());
    assert_eq!(scene.model.next_expiry(), Some(scene.at(MS + LEASE).at));
    assert!(scene.model.expire(scene.at(LEASE)).is_empty());
    let expired = scene.model.expire(scene.at(LEASE * 2));
    assert_eq!(expired[0].outcome().expect_err("a vacancy"), "expired");
    assert_eq!(scene.model.next_expiry(), None);
    assert_eq!(expired[0].time, scene.at(MS + LEASE).wall);
    assert_eq!((scene.view().holder().is_none(), scene.view().vacant()), (true, Some("expired")));
    assert_eq!(scene.view().json(scene.at(LEASE * 2))["vacant"], "expired");
    // It is learned late, but it is known when it expired.
    assert_eq!(scene.view().leaderless(scene.at(LEASE * 2)), Some(LEASE - MS));
    // The same record again is no news, a successor is.
    let known = scene.view().status().clone();
    assert!(scene.read_all(vec![known], LEASE * 2).is_empty());
    let taken = scene.read(held("b", 2, Some(LEASE)), LEASE * 2);
    assert_eq!(taken[0].leaderless, Some(LEASE - MS));
}

#[test]
fn entry_that_is_gone_has_ended_the_term() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    let gone = scene.read_all(Vec::new(), LEASE * 2);
    assert_eq!(gone[0].outcome().expect_err("a vacancy"), "expired");
    // Its end has no time of the lock: the time on this host decides.
    let taken = scene.write(held("b", 2, None), LEASE * 2 + MS * 7, Duration::ZERO);
    assert_eq!(taken[0].leaderless, Some(MS * 7));
}

#[test]
fn first_statuses_are_found_and_are_no_transitions() {
    let mut scene = Scene::new(BUCKET);
    let mut fresh = Model::new(Origin { is_named: true, ..BUCKET });
    let found = scene.status(held("a", 1, None), Some(MS));
    let found = fresh.observe(Observation::all(vec![found], scene.at(MS).at), scene.at(MS));
    assert_eq!((found.len(), found[0].found), (1, true));
    assert_eq!(fresh.transitions().count(), 0);
    // An old vacancy does not begin when it is found.
    let mut fresh = Model::new(Origin { is_named: true, ..TABLE });
    let old = scene.status(vacant("stopped"), None);
    assert!(fresh.observe(Observation::all(vec![old], scene.at(MS).at), scene.at(MS))[0].found);
    assert_eq!(fresh.election("e").expect("it").leaderless(scene.at(LEASE)), None);
}

#[test]
fn late_and_repeated_updates_change_nothing() {
    let mut scene = Scene::new(BUCKET);
    scene.write(held("a", 1, None), MS, MS);
    let old = scene.view().status().clone();
    scene.write(vacant("stopped"), MS * 2, MS * 2);
    let again = scene.view().status().clone();
    for status in [old, again] {
        assert!(scene.model.observe(Observation::Written(status), scene.at(MS * 3)).is_empty());
        assert_eq!(scene.view().vacant(), Some("stopped"));
    }
}

#[test]
fn tail_is_bounded() {
    let mut scene = Scene::new(BUCKET);
    let long = "é".repeat(100_000);
    for token in 0..2 * TAIL as u64 {
        scene.write(held(&long, token, None), MS, MS);
    }
    assert_eq!(scene.model.transitions().count(), TAIL);
    let last = scene.model.transitions().next_back().expect("a transition");
    let leader = &last.outcome().expect("a leader").identity;
    assert_eq!(leader.chars().count(), TAIL_IDENTITY);
}

#[test]
fn standbys_are_in_the_order_of_succession() {
    let mut scene = Scene::new(BUCKET);
    let ElectionState::Held(mut holder) = held("leads", 1, None) else { panic!("a leader") };
    let pause = Some(Pause { until_unix_ms: 60_000 });
    holder.moves = MoveInfo { pause, site: Some("here".into()), priority: None };
    scene.write(ElectionState::Held(holder), MS, MS);
    let candidate = |identity: &str, nonce, priority, readiness, role| {
        let mut info = CandidateInfo::new(identity, Nonce(nonce));
        (info.priority, info.readiness, info.role) = (priority, readiness, role);
        info
    };
    let leader = candidate("leads", 9, 0, Readiness::Ready, Role::Draining);
    let roll = vec![
        candidate("sick", 5, 200, Readiness::Unhealthy, Role::Standby),
        candidate("third", 1, 7, Readiness::Ready, Role::Standby),
        candidate("aside", 2, 100, Readiness::Cordoned, Role::Standby),
        candidate("second", 3, 7, Readiness::Ready, Role::Standby),
        candidate("first", 4, 8, Readiness::Ready, Role::CoolingDown),
        leader,
    ];
    scene.model.take_roll("e", roll, scene.at(MS));
    let json = scene.view().json(scene.at(MS));
    let names = json["candidates"].as_array().expect("a list").iter();
    let names: Vec<&str> = names.filter_map(|info| info["identity"].as_str()).collect();
    assert_eq!(names, ["leads", "first", "second", "third", "aside", "sick"]);
    assert_eq!((&json["site"], &json["role"]), (&"here".into(), &"draining".into()));
    assert_eq!(json["paused_until"], "1970-01-01T00:01:00Z");
    assert_eq!(scene.view().json(scene.at(LEASE * 9))["paused_until"], Value::Null);
}

#[test]
fn sets_are_found_by_their_shards() {
    let mut scene = Scene::new(BUCKET);
    for (election, leader) in
        [("s.0", "a"), ("s.1", "a"), ("s.2", "a"), ("s.4", "b"), ("lone.7", "c"), ("x", "c")]
    {
        let status = scene.status(held(leader, 1, None), Some(MS));
        let status = ElectionRecord { election: election.to_owned(), ..status };
        let at = scene.at(MS);
        scene.model.observe(Observation::Written(status), at);
    }
    let shown = |scene: &Scene| {
        let sets = scene.model.json(scene.at(MS))["sets"].clone();
        assert_eq!(sets.as_array().map(Vec::len), Some(1));
        let set = &sets[0];
        assert_eq!((&set["set"], &set["imbalance"]), (&"s".into(), &2.0.into()));
        (set["shards"].clone(), set["leaderless"].clone())
    };
    assert_eq!(shown(&scene), (4.into(), json!([])), "those that have an entry");
    let mut member = CandidateInfo::new("b", Nonce(1));
    member.load = Some(MemberLoad::new(5, 1));
    let at = scene.at(MS);
    scene.model.take_roll("s.4", vec![member], at);
    assert_eq!(shown(&scene), (5.into(), json!([3])), "as a member states");
}
