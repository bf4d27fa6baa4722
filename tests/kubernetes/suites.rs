//! The behaviours that every lock must show, on each kind of object.

mod lease {
    use crate::scene::{InLease, Scene};
    use crate::suite;
    suite!(Scene<InLease>);
}

mod config_map {
    use crate::scene::{InConfigMap, Scene};
    use crate::suite;
    suite!(Scene<InConfigMap>);
}

mod endpoints {
    use crate::scene::{InEndpoints, Scene};
    use crate::suite;
    suite!(Scene<InEndpoints>);
}
