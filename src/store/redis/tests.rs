//! Against real servers.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::ManualClock;
use crate::store::conformance::{self, DAWN};

fn store(port: u16, clock: &Arc<ManualClock>) -> RedisStore {
    let access =
        Access { login: Login::default(), tls: None, db: 0, timeout: Duration::from_secs(5) };
    RedisStore::new(Options {
        topology: Topology::Single(Endpoint::Tcp("127.0.0.1".into(), port)),
        sentinel_access: access.clone(),
        access,
        prefix: format!("t{}-{:?}:", std::process::id(), std::time::Instant::now()),
        layout: Layout::Weir,
        clock: Clock::Caller,
        wall: clock.clone(),
        budget: Duration::from_secs(5),
        probe_max: Duration::from_millis(500),
        lanes: 1,
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn conforms() {
    runtime().block_on(async {
        let clock = Arc::new(ManualClock::new(DAWN));
        let store = store(7399, &clock);
        store.answered().await;
        conformance::admits_n_in_each_window(&store, &clock).await;
        conformance::counts_each_key_apart(&store).await;
        conformance::peeks_and_gives_back(&store).await;
        conformance::charges_all_or_none(&store).await;
    });
}

#[test]
fn agrees_with_the_model() {
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = runtime.block_on(async {
        let store = store(7399, &clock);
        store.answered().await;
        store
    });
    let domains = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&conformance::model::schedules(), |steps| {
            domains.set(domains.get() + 1);
            let domain = format!("random-{}", domains.get());
            runtime.block_on(conformance::model::agrees(&store, &clock, &domain, &steps, || {}));
            Ok(())
        })
        .unwrap();
}
