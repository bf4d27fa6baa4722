//! The behaviours that every lock must show.

mod postgres {
    use crate::env::TestEnv;
    suite!(TestEnv);
}

mod sqlite {
    use crate::file::FileEnv;
    suite!(FileEnv);
}

mod checkpoints {
    mod postgres {
        use crate::env::TestEnv;
        suite!(TestEnv, checkpoint);
    }

    mod sqlite {
        use crate::file::FileEnv;
        suite!(FileEnv, checkpoint);
    }
}
