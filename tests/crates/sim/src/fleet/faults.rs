//! The faults of each fleet.

use proptest::prelude::*;

use super::{Fleet, any_coverage};
use crate::moves::{MoveFault, MoveStep};
use crate::scenario::Fault;

fn who() -> std::ops::Range<usize> {
    0..5
}

fn span() -> impl Strategy<Value = u16> + Clone {
    proptest::sample::select(vec![50u16, 300, 1000, 2500, 5000])
}

pub(super) fn fault(fleet: Fleet) -> BoxedStrategy<Fault> {
    let one = |fault: BoxedStrategy<Fault>| {
        prop_oneof![5 => common_fault(), 2 => admin_fault(), 1 => fault].boxed()
    };
    let peer = || {
        let crash = (0..2usize).prop_map(|which| Fault::PeerCrash { which });
        let cut = (0..2usize, span()).prop_map(|(which, for_ms)| Fault::PeerCut { which, for_ms });
        prop_oneof![crash, cut].boxed()
    };
    let remade = span().prop_map(|after_ms| Fault::Remade { after_ms });
    match fleet {
        Fleet::Plain => one(prop_oneof![1 => remade, 4 => common_fault()].boxed()),
        Fleet::Mixed | Fleet::Judged => {
            one(prop_oneof![1 => Just(Fault::Evict), 9 => common_fault()].boxed())
        }
        Fleet::ChangedTtl => {
            let ttl = (1..=5u8).prop_map(|factor| Fault::ChangeTtl { factor });
            let cut = (who(), span()).prop_map(|(who, for_ms)| Fault::Cut {
                who,
                out: true,
                back: true,
                for_ms,
            });
            let deleted = Just(Fault::AdminDelete);
            prop_oneof![4 => common_fault(), 2 => cut, 2 => deleted, 1 => ttl].boxed()
        }
        Fleet::Choria => one(peer()),
        Fleet::ClientGo => {
            let stop = (0..2usize).prop_map(|which| Fault::PeerStop { which });
            let evict = Just(Fault::Evict);
            prop_oneof![5 => common_fault(), 1 => peer(), 1 => stop, 1 => evict].boxed()
        }
        Fleet::Objects => {
            let admin = || prop_oneof![2 => admin_fault(), 1 => Just(Fault::Evict)];
            prop_oneof![5 => common_fault(), 1 => admin(), 1 => busy(), 1 => set_back()].boxed()
        }
        Fleet::Vimeo => {
            let evict = Just(Fault::Evict);
            prop_oneof![10 => common_fault(), 2 => peer(), 1 => busy(), 1 => evict].boxed()
        }
        Fleet::ChoriaBackOff => prop_oneof![6 => common_fault(), 1 => peer()].boxed(),
        Fleet::Rows => one(span().prop_map(|ms| Fault::ClockStep { by_ms: -(ms as i16) }).boxed()),
        Fleet::SteppedClock | Fleet::SteppedRows => {
            let step =
                prop_oneof![span().prop_map(|ms| ms as i16), span().prop_map(|ms| -(ms as i16))];
            one(step.prop_map(|by_ms| Fault::ClockStep { by_ms }).boxed())
        }
        Fleet::Failover => {
            let failover = (0..4u8, span());
            one(failover.prop_map(|(loses, for_ms)| Fault::Failover { loses, for_ms }).boxed())
        }
        Fleet::Synchronous => {
            let away = span().prop_map(|for_ms| Fault::ReplicaAway { for_ms });
            let failover = span().prop_map(|for_ms| Fault::Failover { loses: 0, for_ms });
            one(prop_oneof![2 => away, 1 => failover, 1 => common_fault()].boxed())
        }
        Fleet::Tampered => {
            let tools = prop_oneof![Just(Fault::Purge), Just(Fault::ReplayRelease)];
            prop_oneof![3 => common_fault(), 1 => tools].boxed()
        }
        Fleet::Frozen => {
            let freeze =
                (0..5usize, span()).prop_map(|(who, for_ms)| Fault::Freeze { who, for_ms });
            prop_oneof![7 => common_fault(), 1 => freeze].boxed()
        }
        Fleet::Drains => {
            let stop = who().prop_map(|who| Fault::Stop { who });
            let resign = who().prop_map(|who| Fault::Resign { who });
            prop_oneof![4 => common_fault(), 1 => admin_fault(), 6 => stop, 6 => resign].boxed()
        }
        Fleet::Refused => {
            // The first candidate is the one whose writes are always accepted in the end.
            let for_good = (1..5usize).prop_map(|who| Fault::Denied { who, for_ms: None });
            let denied =
                (who(), span()).prop_map(|(who, ms)| Fault::Denied { who, for_ms: Some(ms) });
            let moved = move_fault().prop_map(Fault::Move);
            prop_oneof![4 => common_fault(), 2 => moved, 2 => denied, 1 => for_good].boxed()
        }
        Fleet::Moves | Fleet::Sets => prop_oneof![
            4 => common_fault(),
            1 => admin_fault(),
            8 => move_fault().prop_map(Fault::Move),
        ]
        .boxed(),
        Fleet::Sentinel => {
            let crash = (span(), any::<bool>())
                .prop_map(|(back_ms, writing)| Fault::CrashLeader { back_ms, writing });
            let winner = (span(), any::<bool>())
                .prop_map(|(back_ms, stopping)| Fault::CrashWinner { back_ms, stopping });
            prop_oneof![
                5 => common_fault(),
                2 => admin_fault(),
                2 => sentinel(),
                3 => crash,
                1 => winner,
            ]
            .boxed()
        }
        Fleet::Forgetful => one((1..4u8).prop_map(|writes| Fault::Forget { writes }).boxed()),
    }
}

fn busy() -> impl Strategy<Value = Fault> {
    let after = prop::option::of(proptest::sample::select(vec![0u16, 200, 1000]));
    let status = prop_oneof![Just(429u16), Just(503u16), Just(409u16)];
    (status, after, span()).prop_map(|(status, after_ms, for_ms)| Fault::Busy {
        status,
        after_ms,
        for_ms,
    })
}

fn set_back() -> impl Strategy<Value = Fault> {
    let spoil = (span(), any::<bool>());
    prop_oneof![
        2 => (0..8u8).prop_map(|by| Fault::SetBack { by }),
        1 => spoil.prop_map(|(for_ms, restored)| Fault::Spoil { for_ms, restored }),
    ]
}

fn sentinel() -> impl Strategy<Value = Fault> {
    let who_for = || (who(), span());
    prop_oneof![
        who_for().prop_map(|(who, for_ms)| Fault::SentinelDown { who, for_ms }),
        who_for().prop_map(|(who, for_ms)| Fault::SentinelPause { who, for_ms }),
        who_for().prop_map(|(who, for_ms)| Fault::SentinelCut { who, for_ms }),
    ]
}

fn move_fault() -> impl Strategy<Value = MoveFault> {
    let step = proptest::sample::select(vec![
        MoveStep::Calls,
        MoveStep::Chooses,
        MoveStep::Ends,
        MoveStep::Releases,
        MoveStep::Succeeds,
    ]);
    let for_ms = prop_oneof![4 => span().prop_map(Some), 1 => Just(None)];
    // Zero ends a pause.
    let pause = proptest::sample::select(vec![0u16, 5000, 15_000, 30_000]);
    prop_oneof![
        6 => prop::option::of(who()).prop_map(|to| MoveFault::HandOver { to }),
        3 => Just(MoveFault::ProgramHandsOver),
        6 => (who(), for_ms).prop_map(|(who, for_ms)| MoveFault::Ill { who, for_ms }),
        2 => (who(), any::<bool>()).prop_map(|(who, aside)| MoveFault::StandAside { who, aside }),
        3 => pause.prop_map(|for_ms| MoveFault::Pause { for_ms }),
        4 => (step, any::<bool>(), span()).prop_map(|(step, successor, back_ms)| MoveFault::Crash {
            step,
            successor,
            back_ms
        }),
        1 => (0..6usize).prop_map(|of| MoveFault::ForgedAnswer { of }),
        1 => (0..4u8).prop_map(|priority| MoveFault::ForgedRequest { priority }),
    ]
}

fn admin_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![9 => Just(Fault::AdminDelete), 2 => Just(Fault::AdminPut)]
}

fn common_fault() -> impl Strategy<Value = Fault> {
    let who_for = || (who(), span());
    prop_oneof![
        8 => who_for().prop_map(|(who, back_ms)| Fault::Crash { who, back_ms }),
        8 => who_for().prop_map(|(who, for_ms)| Fault::Pause { who, for_ms }),
        12 => (who(), 0..3u8, span()).prop_map(|(who, way, for_ms)| Fault::Cut {
            who,
            out: way != 1,
            back: way != 2,
            for_ms
        }),
        2 => who_for().prop_map(|(who, for_ms)| Fault::Suspend { who, for_ms }),
        10 => who().prop_map(|who| Fault::Stop { who }),
        1 => span().prop_map(|every_ms| Fault::RollingRestart { every_ms }),
        6 => who().prop_map(|who| Fault::Resign { who }),
        2 => (who(), any::<bool>()).prop_map(|(who, panicked)| Fault::WorkEnds { who, panicked }),
        2 => who_for().prop_map(|(who, ms)| Fault::Denied { who, for_ms: Some(ms) }),
        2 => (who(), any_coverage()).prop_map(|(who, coverage)| Fault::HintCoverage { who, coverage }),
        2 => who().prop_map(|who| Fault::Look { who }),
        2 => span().prop_map(|for_ms| Fault::Outage { for_ms }),
    ]
}
