//! The soak, small and short.

use std::path::Path;

use incumbent_soak::{Plan, soak};

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_rides_out_restarts_of_each_server() {
    let plan = Plan { elections: 30, candidates: 4, ttl: 10, minutes: 0.0, quiet: 2 };
    let report = soak(Path::new(env!("CARGO_BIN_EXE_incumbent-soak")), &plan).await.unwrap();
    println!("{report}");
    assert!(report.restarts == 3 && report.terms >= plan.elections);
    assert!(report.faults.is_empty(), "{report}");
}
