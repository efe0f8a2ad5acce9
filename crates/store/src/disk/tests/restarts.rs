//! Stores that end and start again, by random schedules.

use super::*;

/// A store that is opened again between charges.
struct Restarting {
    home: Home,
    store: Mutex<Option<Arc<Disk>>>,
    compact: Duration,
}

impl Restarting {
    fn new(compact: Duration) -> Restarting {
        let restarting = Restarting { home: Home::new(), store: Mutex::new(None), compact };
        restarting.open();
        restarting
    }

    fn open(&self) {
        // The thread writes only when the store is finished, or all the time.
        let sync = if self.compact.is_zero() { SOON } else { NEVER };
        *self.store.lock() = Some(Arc::new(self.home.try_open(sync, self.compact).unwrap()));
    }

    fn store(&self) -> Arc<Disk> {
        self.store.lock().clone().expect("is open")
    }

    fn restart(&self) {
        let store = self.store.lock().take().expect("is open");
        let finish = store.finish();
        // This thread has a runtime already, which cannot wait here.
        let wait = || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(finish);
        };
        std::thread::scope(|scope| _ = scope.spawn(wait));
        drop(store);
        self.open();
    }
}

impl Store for Restarting {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        Some(async move {
            let mut answers = Answers::new();
            self.store().charge(&batch, &mut answers).await;
            answers
        })
    }
}

impl States for Restarting {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        self.restart();
        self.store().read(key, spans, timeout).await
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        self.store().reset(key, timeout).await
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        self.store().grant(batch).await
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Decisions are those of a store that is never closed.
    #[test]
    fn restarts_change_no_decision(steps in model::schedules(true), compacts in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Restarting::new(if compacts { Duration::ZERO } else { NEVER });
        let clock = store.home.clock.clone();
        runtime.block_on(model::agrees(&store, &clock, "model", &steps, || store.restart()));
    }

    /// States read as those of a store that is never closed.
    #[test]
    fn restarts_change_no_state(steps in model::schedules(false)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = Restarting::new(NEVER);
        let clock = store.home.clock.clone();
        runtime.block_on(model::reads_agree(&store, &clock, "model", &steps));
    }
}

#[tokio::test]
async fn a_crash_loses_what_came_after_the_last_sync() {
    let (home, hour) = (Home::new(), plan(100, Unit::Hour));
    let store = home.try_open(SOON, NEVER).unwrap();
    take(&store, "d", "a", &hour, 10).await;
    wait_for_sync(&store);
    // Dropped without an end: as far as files go, as if it was killed.
    drop(store);
    let store = home.open();
    assert_eq!(used(&store, "d", "a", &hour).await, 10);
    take(&store, "d", "a", &hour, 1).await;
    drop(store);
    assert_eq!(used(&home.open(), "d", "a", &hour).await, 10);
}

#[tokio::test]
async fn a_clock_that_stepped_between_two_runs_loses_nothing_and_blocks_nobody_for_long() {
    let day = 86_400 * SECOND as i64;
    for step in [-365 * day, -day, -3600 * SECOND as i64, 0, 60 * SECOND as i64] {
        let (home, plan) = (Home::new(), plan(2, Unit::Day));
        let store = home.open();
        assert!(take(&store, "d", "a", &plan, 2).await.allowed);
        store.finish().await;
        drop(store);
        home.clock.step(step);
        let store = home.open();
        assert!(!take(&store, "d", "a", &plan, 1).await.allowed, "{step}");
        // A clock that stepped back by less than the window may be at the start of the one before.
        home.clock.advance(2 * 86_400 * SECOND);
        assert!(take(&store, "d", "a", &plan, 1).await.allowed, "{step}");
    }
}

#[tokio::test]
async fn expired_keys_are_not_loaded() {
    let (home, minute) = (Home::new(), plan(2, Unit::Minute));
    let store = home.open();
    for i in 0..100 {
        take(&store, "d", &i.to_string(), &minute, 2).await;
    }
    store.finish().await;
    drop(store);
    home.clock.advance(60 * SECOND);
    let store = home.open();
    assert_eq!(store.memory.stats().keys, 0);
    assert!(take(&store, "d", "1", &minute, 2).await.allowed);
}

#[tokio::test]
async fn the_number_of_shards_follows_max_keys_down_and_little_up() {
    let (mut home, hour) = (Home { max_keys: 100_000, ..Home::new() }, plan(2, Unit::Hour));
    let counted = async |store: &Disk| {
        for i in 0..500 {
            assert_eq!(used(store, "d", &i.to_string(), &hour).await, 2, "{i}");
        }
    };
    let store = home.open();
    for i in 0..500 {
        take(&store, "d", &i.to_string(), &hour, 2).await;
    }
    store.finish().await;
    for (max_keys, shards) in [(3_000, 2), (30_000, 2), (2_000, 1), (16_383, 1)] {
        home.max_keys = max_keys;
        let store = home.open();
        assert_eq!(store.memory.shards(), shards);
        counted(&store).await;
        store.finish().await;
    }
    home.max_keys = 16_384;
    let error = home.try_open(NEVER, NEVER).unwrap_err();
    assert!(error.to_string().contains("set store.memory.max_keys to at most 16383"), "{error}");
}

/// Returns the fingerprints of all keys.
fn keys(store: &Disk) -> Vec<[u8; 11]> {
    let shards = 0..store.memory.shards();
    let mut keys: Vec<_> = shards.flat_map(|shard| store.memory.prints(shard)).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_full_store_has_the_same_keys_after_a_restart() {
    for (max_keys, compact) in [(1_000, NEVER), (5_000, NEVER), (1_000, Duration::ZERO)] {
        let (mut home, hour) = (Home { max_keys, ..Home::new() }, plan(20, Unit::Hour));
        let store = home.try_open(SOON, compact).unwrap();
        for i in 0..4 * max_keys {
            // Some are at their limit.
            take(&store, "d", &i.to_string(), &hour, i as u64 % 3 * 10).await;
            if i % (max_keys / 5) == 0 {
                wait_for_sync(&store);
            }
        }
        let before = keys(&store);
        assert!(before.len() > max_keys * 9 / 10);
        store.finish().await;
        drop(store);
        let store = home.open();
        assert_eq!(keys(&store), before, "{max_keys} {compact:?}");
        assert_eq!(store.memory.stats().evicted.live, 0);
        store.finish().await;
        drop(store);
        // With fewer keys, what is evicted at the start does not return either.
        home.max_keys = max_keys / 2;
        let store = home.open();
        let before = keys(&store);
        assert!(before.len() <= max_keys / 2);
        store.finish().await;
        drop(store);
        home.max_keys = max_keys;
        assert_eq!(keys(&home.open()), before);
    }
}

#[tokio::test]
async fn a_reset_of_an_evicted_key_lasts() {
    let (mut home, hour) = (Home { max_keys: 1_000, ..Home::new() }, plan(20, Unit::Hour));
    let key = |i: usize| format!("early {i}");
    let store = home.try_open(SOON, NEVER).unwrap();
    for i in 0..20 {
        take(&store, "d", &key(i), &hour, 1).await;
    }
    wait_for_sync(&store);
    for i in 0..4_000 {
        take(&store, "d", &i.to_string(), &hour, 1).await;
        if i % 200 == 0 {
            wait_for_sync(&store);
        }
    }
    for i in 0..20 {
        let key = key(i);
        let entries = [("key", key.as_str())];
        let key = Key { domain: "d", entries: &entries };
        store
            .reset(StateKey { key, plan: &hour, together: false, id: None }, Duration::ZERO)
            .await
            .unwrap();
    }
    store.finish().await;
    drop(store);
    home.max_keys = 2_000;
    let store = home.open();
    for i in 0..20 {
        assert_eq!(used(&store, "d", &key(i), &hour).await, 0, "{i}");
    }
}
