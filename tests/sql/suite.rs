//! The behaviours that every lock must show.

mod postgres {
    use crate::env::TestEnv;
    suite!(TestEnv);
}

mod sqlite {
    use crate::file::FileEnv;
    suite!(FileEnv);
}

mod operators {
    use std::time::Duration;

    use incumbent::lock::{Content, LockErrorKind, Reading, Revision, Tombstone};
    use incumbent::{Cause, new_election};

    use crate::conformance::{Service, leads, sees, soon, working};
    use crate::env::TestEnv;
    use crate::file::FileEnv;

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn postgres_lists_and_evicts_and_shows_the_leaders_address() {
        lists_and_evicts(&TestEnv::new(Duration::from_secs(3)).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn sqlite_lists_and_evicts_and_shows_the_leaders_address() {
        lists_and_evicts(&FileEnv::new(Duration::from_secs(3))).await;
    }

    async fn lists_and_evicts<S: Service>(service: &S) {
        let timeout = Duration::from_secs(5);
        let lock = service.lock().await;
        let admin = lock.admin().expect("an operator's lock");
        let campaign = |name: &str, lock| {
            let builder =
                new_election(name, lock).identity("it's \\me").advertise("10.0.0.3:50051");
            working(builder).start().unwrap()
        };
        let election = campaign("my_app", service.lock().await);
        let leadership = leads(&election).await;
        let other = campaign("quote's", service.lock().await);
        drop(leads(&other).await);
        assert_eq!(admin.names(timeout).await.unwrap(), ["my_app", "quote's"]);
        let observer = service.candidate("observer").await.start().unwrap();
        sees(&observer, "it's \\me").await;
        let seen =
            observer.leader().and_then(|leader| leader.advertisement).expect("it says where");
        assert_eq!(seen.address(), "10.0.0.3:50051");
        let Reading::Found(record) = lock.read("my_app", timeout).await.unwrap() else { panic!() };
        let stale = admin.evict("my_app", Revision(leadership.token().0 - 1), timeout).await;
        assert_eq!(stale.unwrap_err().kind(), LockErrorKind::Conflict);
        let mut revision = record.revision;
        while admin.evict("my_app", revision, timeout).await.is_err() {
            let Reading::Found(record) = lock.read("my_app", timeout).await.unwrap() else {
                panic!()
            };
            revision = record.revision; // it renews meanwhile
        }
        // In a file the next one may have written before any candidate has read.
        let cause = soon("the end", leadership.ended()).await.cause;
        assert!(matches!(cause, Cause::Evicted | Cause::Superseded { .. }), "{cause:?}");
        let Reading::Found(record) = lock.read("quote's", timeout).await.unwrap() else { panic!() };
        assert!(!matches!(record.content, Content::Vacant(Tombstone::Deleted)));
    }
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
