//! The behaviours that every lock must show, on each kind of object.

mod lease {
    use crate::env::{InLease, TestEnv};
    use crate::suite;
    suite!(TestEnv<InLease>);
}

mod config_map {
    use crate::env::{InConfigMap, TestEnv};
    use crate::suite;
    suite!(TestEnv<InConfigMap>);
}

mod endpoints {
    use crate::env::{InEndpoints, TestEnv};
    use crate::suite;
    suite!(TestEnv<InEndpoints>);
}
