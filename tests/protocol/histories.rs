//! Golden histories: what the machine takes in and returns in a scenario, compared with a file that
//! people can read. A change of a file shows in review what a change of the code does to the
//! protocol.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use incumbent::protocol::CoolDown;

use super::cool_down::Vacancy;
use super::harness::Harness;
use super::{
    cool_down, handover, incidents, no_expiry, refused, regressions, sampling, short_lease,
    standby, stated, stepping_down, tampering,
};

/// Set to `write` by `make histories`.
const MODE: &str = "INCUMBENT_HISTORIES";

struct Scenario {
    name: &'static str,
    /// Which rule or incident it shows.
    shows: &'static str,
    run: fn() -> Harness,
}

macro_rules! scenarios {
    ($($shows:literal => $module:ident :: $name:ident),* $(,)?) => {
        &[$(Scenario { name: stringify!($name), shows: $shows, run: $module::$name }),*]
    };
}

/// By the rules of docs/protocol.md.
const SCENARIOS: &[Scenario] = scenarios! {
    "Rule 1. etcd-io/etcd#11007, #21128, jepsen etcd 3.4.3: a \"leader\" with no live lease behind it.\nWhatever comes first after the deadline ends the term."
        => incidents::a_leader_whose_process_hangs_does_not_lead_when_it_wakes,
    "Rule 1. ShedLock#231, leapmux#403: a suspended machine continued to lead. Here the clock runs meanwhile."
        => incidents::a_machine_that_was_suspended_does_not_lead_when_it_wakes,
    "Rule 1. kubert, kubernetes/kubernetes#47671: expiry was judged by the other machine's wall clock.\nHere the wall clocks are off by more than any date."
        => incidents::nothing_depends_on_a_wall_clock,
    "Rule 2. home-operations/kopiur#324: the first slow call made the leader abdicate, 90 times in six days."
        => incidents::slow_calls_cost_nothing_while_the_lease_lasts,
    "Rule 2. nats.go#2097, nats.py#782: a write was refused because another one was in flight (error 10164)."
        => incidents::a_conflict_is_verified_by_a_read,
    "Rule 2. kubernetes/kubernetes#23731, elastic/beats#38543: each renewal was forbidden, and the holder continued."
        => incidents::a_holder_without_the_right_to_renew_stops_in_time,
    "Rule 3. kubernetes/kubernetes#44887: a renewal had its response after a minute, and both led."
        => incidents::a_renewal_answered_after_a_minute_does_not_prolong_a_term,
    "Rule 3. Each renewal has its response a second after its send; the deadline counts from the send."
        => incidents::a_right_counts_from_before_the_write_was_sent,
    "Rule 4. fabric8io/kubernetes-client#7350: the start callback ran before the write had succeeded."
        => incidents::a_term_begins_after_the_create_has_succeeded,
    "Rule 4. cirello-io/dynamolock#280: the write was applied, its reply was lost, the lock was thrown away."
        => incidents::a_renewal_without_a_reply_is_found_and_counts_from_its_send,
    "Rule 4, where reads may show what can still be lost: only an acknowledgement extends the term."
        => no_expiry::a_renewal_found_by_a_read_may_be_lost_and_extends_nothing,
    "Rule 4. nats-server#8505: a purged value came back after the server was killed."
        => incidents::a_reappearing_own_entry_is_respected_and_does_not_lead,
    "Rule 4. nats-server#4710, #4162, #6857: reads went back in time. The lock refuses the create."
        => incidents::a_stale_read_begins_no_term_and_costs_no_entry,
    "Rule 4. nats-server#7564, #7549, #7556, jepsen nats 2.12.1: acknowledged writes were lost."
        => incidents::a_lost_acknowledged_renewal_is_noticed_at_the_next_one,
    "Rule 4. kube-lease-manager: a standby cleared an expired lease unconditionally, and wiped one just renewed.\nThe hints of the holder's renewals are lost here."
        => incidents::a_silent_entry_is_read_and_never_overwritten,
    "Rule 5. The work does not stop: the entry expires by itself, and the next term begins after the old deadline."
        => regressions::work_that_continues_delays_its_candidate_until_its_deadline,
    "Rule 5. kubernetes-client/python#2670: the guarded task had died, and renewals continued."
        => incidents::a_holder_whose_work_has_ended_releases_its_entry,
    "Rule 6. kubernetes/kubernetes#112023, google/trillian#3789, etcd-io/etcd#22123: the release was lost."
        => incidents::a_release_on_exit_is_retried_until_its_response,
    "Rule 6. A stop while the work stops: the entry is released after it, and the loss is reported once."
        => stepping_down::a_stop_while_the_work_stops_waits_for_it,
    "Rule 6. A resigned leader lets others go first for a third of a lease."
        => stepping_down::a_resigned_leader_yields_to_others_and_campaigns_again,
    "Rule 7. A candidate that stops while it cools down passes the rest of its wait on in its release."
        => cool_down::the_rest_of_a_cool_down_is_passed_on,
    "Rule 7. A candidate that is evicted while it cools down passes the rest of its wait on in its notice."
        => cool_down::an_evicted_holder_passes_on_its_remaining_cool_down,
    "Rule 7. A candidate with a lease of 2 s that must wait longer requests an entry that lives until then."
        => cool_down::an_entry_outlives_the_cool_down_of_its_writer,
    "Rule 7. The lease of the holder counts (8 s), not the winner's own (2 s)."
        => cool_down::the_lease_of_the_holder_counts,
    "Rule 7. An operator has raised the bucket's TTL to 60 s, and a leader relies on that. The standby knows\nof 12 s, and waits by the entry."
        => cool_down::a_lease_beyond_the_known_ttl_is_waited_for,
    "Rule 7. A create whose reply is lost, and which a hint shows to be stored, waits as long."
        => cool_down::a_create_in_doubt_keeps_its_wait,
    "Rule 7. Refusals of the lock do not shorten a wait."
        => cool_down::a_refused_create_is_retried_and_waits_as_long,
    "Rule 7, where a delete leaves no tombstone: a create that is stored late, after others held the entry,\nwaits for them from the time at which it is found."
        => regressions::a_create_stored_after_its_refusal_starts_its_wait_then,
    "Rule 7, where a delete leaves no tombstone: a create that hung is stored after its candidate's own term."
        => tampering::a_create_stored_after_its_term_waits_for_holders_in_between,
    "Rule 7, beside Choria's candidates: the evicted holder had itself to wait for one of them."
        => regressions::successor_of_an_evicted_holder_waits_for_choria_before_it,
    "Rule 7. nats-server#6712, #6711, nats.py#966: an expiry marker blocked the create, or was read as a value."
        => incidents::an_expiry_marker_is_a_vacancy_and_is_created_over,
    "Rule 7, on a lock without expiry and without hints: an entry is outlived, and then written over."
        => no_expiry::an_entry_unchanged_for_its_holders_lease_is_overwritten,
    "Rule 7, with a lease below a second (250 ms) on a lock that frees entries later: the same."
        => short_lease::a_silent_entry_is_overwritten_after_its_short_lease,
    "Rule 7, without the right to read: a create over nothing, and a full lease until it leads."
        => standby::a_candidate_without_the_right_to_read_leads_in_the_end,
    "Rule 7. The entry is deleted before the response to the create arrives."
        => standby::a_winner_evicted_before_its_response_does_not_lead,
    "Rule 8. A notice of the former holder ends the wait; one of another term does not."
        => cool_down::a_step_down_notice_ends_a_running_cool_down,
    "Rule 8. A forged hint ends the term. The entry is still there, and is released."
        => stepping_down::a_wrong_hint_costs_a_term_and_not_a_lease,
    "Rule 8. A leader whose entry was deleted sends a notice for its own last write, not for its successor's."
        => regressions::a_superseded_holder_sends_no_notice_for_its_successor,
    "Rule 8. An old release is stored over an entry. The candidate has received that entry, and then a\nlate response to its read, which shows the one before."
        => tampering::a_late_read_response_hides_no_renewal_received_before_it,
    "Rule 9. kubernetes/kubernetes#61151, Project-HAMi/HAMi#2481: two replicas shared one identity."
        => incidents::two_candidates_with_one_identity_are_distinct,
    "Rule 10. kuberhealthy#1533, elastic/beats#38543: after a loss it never campaigned again.\nThe lock is out of reach for 19 hours; then the term ends in three ways."
        => incidents::every_loss_leads_back_to_the_campaign,
    "Rule 10. apache/curator#1211, #1137, #1169: two leaders after a reconnect."
        => incidents::a_reconnect_after_a_lease_does_not_revive_a_term,
    "Rule 10. patroni#3572: an unknown error of the backend was treated as fatal. Here each request conflicts."
        => incidents::no_error_of_the_lock_ends_a_campaign,
    "Standbys: no request while hints show that the leader renews."
        => standby::a_standby_that_receives_renewals_sends_nothing_for_an_hour,
    "Standbys: another's create is seen first, so none is sent."
        => standby::a_vacancy_is_acquired_at_once_unless_a_holder_is_seen,
    "Moves: a leader hands over. Its release names the successor, also when it is repeated."
        => handover::a_release_names_the_successor_also_when_repeated,
    "Moves: the candidate that a release names creates at once, though it has just stepped down itself."
        => handover::the_successor_creates_at_once_though_it_just_stepped_down,
    "Moves: the others hold back for 2 s, and create nothing once the successor holds the entry."
        => handover::others_create_nothing_once_the_successor_holds_the_entry,
    "Moves: a sick standby holds back for a lease, or until it is ready again."
        => handover::a_standby_that_recovers_creates_at_once,
    "Moves: a standby that becomes sick while it holds back for the successor holds back for a lease."
        => handover::a_standby_that_becomes_sick_before_its_turn_waits,
    "Moves. A candidate whose create was refused lets others go first, and tries again after a lease."
        => refused::a_refused_candidate_lets_others_go_first,
    "Moves. Another candidate leads, and a refused one asks the lock whether its writes are accepted now."
        => refused::a_refused_candidate_asks_whether_writes_are_accepted,
    "Moves. An operator pauses the election: the holder states it in its entry within a second."
        => stated::a_holder_states_a_pause_within_a_second,
    "Moves. A release states the pause of the election, and the successor carries it on."
        => stated::a_successor_carries_on_the_pause_of_a_release,
    "Queue groups: the successor of an evicted leader may have missed its notice.\nThe notice is repeated at each write of the successor, for a lease."
        => sampling::an_evicted_leader_repeats_its_notice_for_a_lease,
    "Discovery: a leader that advertises another address states it in its next renewal."
        => standby::a_new_advertisement_travels_with_the_next_renewal,
};

/// The rows of the table in rule 7.
const VACANCIES: &[(&str, &str, Vacancy, CoolDown, bool)] = &[
    (
        "vacancy_released",
        "Rule 7, released: the holder's mark states that nothing is left to wait for.",
        Vacancy::Released { left: Duration::ZERO },
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_released_early",
        "Rule 7, released by a holder that had 4 s left to wait itself.",
        Vacancy::Released { left: Duration::from_secs(4) },
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_stepped_down",
        "Rule 7, stepped down: deleted, and the holder has sent a notice.",
        Vacancy::SteppedDown { left: Duration::ZERO },
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_watched",
        "Rule 7, watched: deleted, and the holder's last write was received.",
        Vacancy::Watched,
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_expired",
        "Rule 7, expired, the last write not received.",
        Vacancy::Expired,
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_expired_strict",
        "Rule 7, expired, under `Strict`: the lock's clock is not trusted.",
        Vacancy::Expired,
        CoolDown::Strict,
        false,
    ),
    (
        "vacancy_expired_beside_choria",
        "Rule 7, expired, beside Choria's candidates: what the entry could not outlive is waited for.",
        Vacancy::Expired,
        CoolDown::Proven,
        true,
    ),
    (
        "vacancy_evicted",
        "Rule 7, evicted: deleted, the last write not received.",
        Vacancy::Evicted,
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_empty",
        "Rule 7, unknown: there is nothing, and the lock does not vouch for it.",
        Vacancy::Empty { proof: false },
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_empty_with_proof",
        "Rule 7, nothing was written for as long as any lease lasts.",
        Vacancy::Empty { proof: true },
        CoolDown::Proven,
        false,
    ),
    (
        "vacancy_foreign",
        "Rule 7, foreign: a candidate of Choria's, deleted.",
        Vacancy::Foreign,
        CoolDown::Proven,
        false,
    ),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/histories")
}

/// The files that belong there.
fn expected() -> BTreeMap<String, String> {
    let file = |name: &str, shows: &str, harness: Harness| {
        let comment: String = shows.lines().map(|line| format!("# {line}\n")).collect();
        (format!("{name}.txt"), format!("{comment}\n{}", harness.journal.text()))
    };
    let scenarios = SCENARIOS.iter().map(|s| file(s.name, s.shows, (s.run)()));
    let vacancies = VACANCIES.iter().map(|(name, shows, vacancy, policy, with_choria)| {
        file(name, shows, cool_down::until_it_leads(*vacancy, *policy, *with_choria))
    });
    scenarios.chain(vacancies).collect()
}

/// The files that are there.
fn recorded() -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder()).into_iter().flatten();
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

/// The lines that differ, with those before them.
fn difference(recorded: &str, now: &str) -> String {
    let (recorded, now): (Vec<_>, Vec<_>) = (recorded.lines().collect(), now.lines().collect());
    let same = recorded.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let (old, new) = (&recorded[same..], &now[same..]);
    let rest = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let before = &now[same.saturating_sub(3)..same];
    let sides = [(' ', before), ('-', &old[..old.len() - rest]), ('+', &new[..new.len() - rest])];
    let lines = sides.map(|(sign, lines)| lines.iter().map(move |line| format!("{sign} {line}\n")));
    lines.into_iter().flatten().collect()
}

/// The page that links all histories, and shows some of them.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");

/// `page` with each history that it shows as it is `now`.
fn shown_anew(page: &str, now: &BTreeMap<String, String>) -> String {
    let mut parts = page.split("```");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        let comment = part.trim_start_matches("text\n").lines().next().unwrap_or_default();
        let history = now.values().find(|history| history.lines().next() == Some(comment));
        match history {
            Some(history) if index % 2 == 0 => text += &format!("```text\n{history}"),
            _ => text += &format!("```{part}"),
        }
    }
    text
}

#[test]
fn histories_are_as_recorded() {
    let (expected, recorded) = (expected(), recorded());
    let page = fs::read_to_string(PAGE).unwrap();
    if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
        fs::create_dir_all(folder()).unwrap();
        for name in recorded.keys().filter(|name| !expected.contains_key(*name)) {
            fs::remove_file(folder().join(name)).unwrap();
        }
        for (name, text) in &expected {
            fs::write(folder().join(name), text).unwrap();
        }
        fs::write(PAGE, shown_anew(&page, &expected)).unwrap();
        return;
    }
    let mut report = String::new();
    for (name, now) in &expected {
        match recorded.get(name) {
            Some(recorded) if recorded == now => {}
            Some(recorded) => report += &format!("{name}\n{}\n", difference(recorded, now)),
            None => report += &format!("{name}: there is no such file\n"),
        }
        if !page.contains(name) {
            report += &format!("{name}: {PAGE} has no link to it\n");
        }
    }
    for name in recorded.keys().filter(|name| !expected.contains_key(*name)) {
        report += &format!("{name}: no scenario writes this file\n");
    }
    if shown_anew(&page, &expected) != page {
        report += &format!("{PAGE} shows an old history\n");
    }
    assert!(report.is_empty(), "run `make histories` if this change is meant:\n\n{report}");
}
