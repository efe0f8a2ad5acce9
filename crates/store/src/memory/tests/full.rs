//! The cap on keys, and which key is evicted when it is reached.

use std::io;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::memory::operations::Evictions;
use weir_limit::{Limit, ReservationOp, Reserve};

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(self.clone());
        tracing::subscriber::set_default(log.finish())
    }

    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

#[tokio::test]
async fn the_cap_is_never_exceeded() {
    let plan = plan(3, Unit::Hour);
    for max_keys in [0, 1, 2, 7, 100, 5_000, 20_000] {
        for (store, _) in both_kinds(max_keys) {
            for i in 0..max_keys + max_keys / 2 + 10 {
                assert!(take(&store, "d", &i.to_string(), &plan, 1).await.allowed);
                if i % 97 == 0 {
                    assert!(store.stats().keys <= max_keys.max(1));
                }
            }
            let stats = store.stats();
            assert!(stats.keys <= max_keys.max(1), "{stats:?}");
            assert!(stats.keys * 100 >= max_keys * 95, "{stats:?} of {max_keys}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_new_keys_does_not_evict_blocked_clients() {
    const CAP: usize = 20_000;
    let plan = plan(3, Unit::Hour);
    for (store, _) in both_kinds(CAP) {
        for i in 0..CAP {
            let blocked = i % 10 == 0;
            let hits = if blocked { 4 } else { 1 };
            assert_eq!(take(&store, "first", &i.to_string(), &plan, hits).await.allowed, !blocked);
        }
        for i in 0..10 * CAP {
            assert!(take(&store, "flood", &i.to_string(), &plan, 1).await.allowed);
            if i % 1_000 == 0 {
                assert!(store.stats().keys <= CAP);
            }
        }
        let mut still = 0;
        for i in (0..CAP).step_by(10) {
            still += usize::from(!take(&store, "first", &i.to_string(), &plan, 0).await.allowed);
        }
        let stats = store.stats();
        assert!(still * 1_000 >= CAP / 10 * 999, "{still} of {} are still blocked", CAP / 10);
        assert!(stats.evicted.full <= 2, "{stats:?}");
        assert_eq!(stats.evicted.expired, 0);
    }
}

#[tokio::test]
async fn expired_keys_are_evicted_first() {
    let (minute, hour) = (plan(1, Unit::Minute), plan(3, Unit::Hour));
    for (store, clock) in both_kinds(8) {
        for i in 0..4 {
            take(&store, "minute", &i.to_string(), &minute, 1).await;
            take(&store, "hour", &i.to_string(), &hour, 1).await;
        }
        clock.advance(60 * SECOND);
        for i in 4..8 {
            take(&store, "hour", &i.to_string(), &hour, 1).await;
        }
        assert_eq!(store.stats().evicted, Evicted { expired: 4, live: 0, full: 0 });
        for i in 0..8 {
            assert_eq!(take(&store, "hour", &i.to_string(), &hour, 0).await.used_before, 1);
        }
    }
}

#[tokio::test]
async fn if_all_keys_are_at_their_limit_the_first_to_expire_is_evicted() {
    let (minute, hour) = (plan(1, Unit::Minute), plan(1, Unit::Hour));
    for (store, _) in both_kinds(8) {
        for i in 0..7 {
            take(&store, "hour", &i.to_string(), &hour, 2).await;
        }
        take(&store, "minute", "a", &minute, 2).await;
        take(&store, "hour", "7", &hour, 2).await;
        assert_eq!(store.stats().evicted, Evicted { expired: 0, live: 0, full: 1 });
        assert_eq!(take(&store, "minute", "a", &minute, 0).await.used_before, 0);
        for i in 0..8 {
            assert!(!take(&store, "hour", &i.to_string(), &hour, 0).await.allowed);
        }
    }
}

#[tokio::test]
async fn boxed_and_packed_keys_share_the_cap_in_proportion() {
    const CAP: usize = 2_000;
    let plan = plan(3, Unit::Hour);
    let (mut store, _) = store(CAP);
    for round in 0..2 {
        for i in 0..CAP * 5 {
            store.boxes = i % 4 == 0;
            take(&store, "d", &format!("{round} {i}"), &plan, 1).await;
        }
    }
    assert_eq!(store.stats().keys, CAP);
    let shard = store.shards[0].0.lock();
    let boxed = shard.boxed_keys();
    assert!((CAP / 5..CAP / 3).contains(&boxed), "{boxed} boxed keys of {CAP}");
}

/// Reservations that are evicted, and those that are not kept since their key has its share.
#[tokio::test]
async fn reservations_that_are_not_kept_are_warned_of() {
    let plan = Arc::new(Plan::new(vec![Limit::fixed_window(1_000, Unit::Day, 1).unwrap()]));
    let (store, _) = store(1_000);
    let store = store.with_max_reservations(8);
    let mut evictions = Evictions::default();
    let log = Log::default();
    let _guard = log.capture();
    let reserve = Reserve { least: 1, most: 1, timeout: 60 };
    let op = Op::Reservation(ReservationOp::Reserve { reserve, once: None });
    let reserve = async |key: &str, id: &str| {
        let entries = [("key", key)];
        let key = Key { domain: "d", entries: &entries };
        let one = Charge { key, plan: &plan, op, hold: Some(id), role: Role::Enforced };
        assert!(charge(&store, &[one], false).await[0].allowed);
    };
    for i in 0..8 {
        reserve("a", &i.to_string()).await;
    }
    evictions.check(&store);
    assert_eq!(log.lines(), Vec::<String>::new(), "all fit");
    for i in 0..3 {
        reserve("a", &format!("more {i}")).await;
    }
    reserve("b", "evicts one").await;
    evictions.check(&store);
    let [line] = &log.lines()[..] else { panic!("{:?}", log.lines()) };
    for part in
        ["WARN", "reservations are not kept", "lost=4", "max_reservations=8", "suppressed=0"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// Twice as many keys as there is room for, each at its limit: every eviction is counted.
#[tokio::test]
async fn evicted_keys_that_were_at_their_limit_are_counted_and_warned_of() {
    const CAP: usize = 20_000;
    const KEYS: usize = 44_000;
    let plan = plan(1, Unit::Minute);
    let (store, clock) = store(CAP);
    let mut evictions = Evictions::default();
    let log = Log::default();
    let _guard = log.capture();
    for i in 0..KEYS {
        assert!(take(&store, "d", &i.to_string(), &plan, 1).await.allowed);
        if i + 1 == CAP / 2 {
            evictions.check(&store);
            assert_eq!(log.lines(), Vec::<String>::new(), "half of the keys fit");
        }
    }
    let stats = store.stats();
    assert_eq!(stats.keys, CAP);
    assert_eq!(stats.evicted, Evicted { expired: 0, live: 0, full: (KEYS - CAP) as u64 });

    evictions.check(&store);
    let [line] = &log.lines()[..] else { panic!("{:?}", log.lines()) };
    for part in [
        "WARN",
        "the memory store is full",
        "evicted=24000",
        "max_keys=20000",
        "setting=\"store.memory.max_keys\"",
        "suppressed=0",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // No more evictions, and then some soon after a warning.
    evictions.check(&store);
    take(&store, "d", "another", &plan, 1).await;
    assert_eq!(store.stats().evicted.full, (KEYS - CAP) as u64 + 1);
    evictions.check(&store);
    assert_eq!(log.lines().len(), 1);

    // Evicting expired keys is no loss.
    clock.advance(60 * SECOND);
    take(&store, "d", "later", &plan, 1).await;
    assert_eq!(store.stats().evicted.full, (KEYS - CAP) as u64 + 1);
}
