//! The behaviours that every lock must show, on each kind of object.

mod lease {
    use crate::env::{InLease, TestEnv};
    suite!(TestEnv<InLease>);
}

mod config_map {
    use crate::env::{InConfigMap, TestEnv};
    suite!(TestEnv<InConfigMap>);
}

mod endpoints {
    use crate::env::{InEndpoints, TestEnv};
    suite!(TestEnv<InEndpoints>);
}

mod checkpoints {
    mod lease {
        use crate::env::{InLease, TestEnv};
        suite!(TestEnv<InLease>, checkpoint);
    }

    mod config_map {
        use crate::env::{InConfigMap, TestEnv};
        suite!(TestEnv<InConfigMap>, checkpoint);
    }
}

/// Who watches for all subscribers of an election, where its runtime ends.
mod listening {
    use std::time::Duration;

    use crate::conformance::listening::{hints_continue, one_task_delivers};
    use crate::env::{InLease, Kind, TestEnv, timing};

    const LEASE: Duration = Duration::from_secs(4);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hints_continue_when_the_runtime_of_the_first_subscriber_ends() {
        let env = TestEnv::<InLease>::new(LEASE).await;
        let lock = InLease::lock(&env.cluster().await, timing(LEASE));
        let writer = InLease::lock(&env.cluster().await, timing(LEASE));
        hints_continue(lock, writer, ["my_app", "my_app"]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_task_delivers_all_hints() {
        let env = TestEnv::<InLease>::new(LEASE).await;
        let lock = InLease::lock(&env.cluster().await, timing(LEASE));
        one_task_delivers(lock, &["my_app", "my_app", "my_app"]).await;
    }
}
