//! The soak of a set, small and short: each kind of fault at least once.

use std::path::Path;

use incumbent_soak::sets::{SetPlan, StoreKind, soak_set};

async fn soak(store: StoreKind) {
    let plan = SetPlan {
        store,
        shards: 16,
        members: 5,
        lease: 2,
        minutes: 0.0,
        quiet: 1,
        seed: None,
        plot: None,
    };
    let program = Path::new(env!("CARGO_BIN_EXE_incumbent-soak"));
    let report = soak_set(program, &plan).await.unwrap();
    println!("{report}");
    assert_eq!(report.struck.len(), 5, "{report}");
    assert!(report.is_clean() && report.ticks > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_on_nats_rides_out_what_happens_to_its_members() {
    soak(StoreKind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_on_postgres_rides_out_what_happens_to_its_members() {
    soak(StoreKind::Postgres).await;
}
