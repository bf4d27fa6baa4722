//! The behaviours that every lock must show, on each kind of store.

mod gcs {
    use crate::scene::{Gcs, Scene};
    use crate::suite;
    suite!(Scene<Gcs>);
}

mod s3 {
    use crate::scene::{S3, Scene};
    use crate::suite;
    suite!(Scene<S3>);
}

mod azure {
    use crate::scene::{Azure, Scene};
    use crate::suite;
    suite!(Scene<Azure>);
}
