//! The behaviours that every lock must show, on one member and on three.

mod one {
    use crate::env::TestEnv;
    suite!(TestEnv<1>);
}

mod three {
    use crate::env::TestEnv;
    suite!(TestEnv<3>);
}

mod checkpoints {
    use crate::env::TestEnv;
    suite!(TestEnv<1>, checkpoint);
}
