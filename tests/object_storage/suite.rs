//! The behaviours that every lock must show, on each kind of store.

mod gcs {
    use crate::env::{Gcs, TestEnv};
    suite!(TestEnv<Gcs>);
}

mod s3 {
    use crate::env::{S3, TestEnv};
    suite!(TestEnv<S3>);
}

mod azure {
    use crate::env::{Azure, TestEnv};
    suite!(TestEnv<Azure>);
}

mod checkpoints {
    mod gcs {
        use crate::env::{Gcs, TestEnv};
        suite!(TestEnv<Gcs>, checkpoint);
    }

    mod s3 {
        use crate::env::{S3, TestEnv};
        suite!(TestEnv<S3>, checkpoint);
    }

    mod azure {
        use crate::env::{Azure, TestEnv};
        suite!(TestEnv<Azure>, checkpoint);
    }
}
