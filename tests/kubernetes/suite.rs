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
