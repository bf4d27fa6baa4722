//! Whether the stores of these tests do what the real ones promise: of many conditional writes at
//! once, one is applied.

use std::sync::Arc;

use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use tokio::task::JoinSet;

use crate::env::{Kind, TestEnv};

const WRITERS: usize = 50;

/// Each write has a content of its own: the ETag of a content that was there before is the same
/// again, and what replaces it then takes it for what it had read.
async fn one_wins(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    mode: PutMode,
    round: usize,
) -> UpdateVersion {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, path, mode) = (Arc::clone(store), path.clone(), mode.clone());
        writers.spawn(async move {
            let options = PutOptions { mode, ..PutOptions::default() };
            store.put_opts(&path, format!("{round} by {writer}").into(), options).await
        });
    }
    let mut applied = Vec::new();
    for answer in writers.join_all().await {
        match answer {
            Ok(written) => applied.push(written),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(applied.len(), 1, "of {WRITERS} writes");
    let found = store.get(path).await.unwrap();
    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
    let written: UpdateVersion = applied.remove(0).into();
    assert_eq!(written, UpdateVersion { e_tag, version });
    written
}

async fn of_many_writes_one_is_applied<K: Kind>() {
    let env = TestEnv::<K>::new(crate::env::LEASE).await;
    let mut last = one_wins(&env.store, &env.path(), PutMode::Create, 0).await;
    for round in 1..=10 {
        last = one_wins(&env.store, &env.path(), PutMode::Update(last), round).await;
    }
}

on_stores!(many_writes: of_many_writes_one_is_applied);
