use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::conformance::{self, DAWN, charge, model, plan, take};
use crate::{Key, Operations, Role};
use weir_common::clock::{ManualClock, SystemClock};
use weir_common::metrics::MergedFamilies;
use weir_limit::{Ban, Limit, Op, SECOND, Unit};

mod full;
mod reduce;
mod reservations;

type Memory = MemoryStore<Arc<ManualClock>>;

impl<C> MemoryStore<C> {
    fn with_max_reservations(self, max: usize) -> MemoryStore<C> {
        MemoryStore { reservations: Reservations::new(max), ..self }
    }
}

fn store(max_keys: usize) -> (Memory, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(DAWN));
    (MemoryStore::new(clock.clone(), max_keys), clock)
}

/// A store that packs the states that it can, and one that boxes all.
fn both_kinds(max_keys: usize) -> [(Memory, Arc<ManualClock>); 2] {
    let mut boxing = store(max_keys);
    boxing.0.boxes = true;
    [store(max_keys), boxing]
}

#[tokio::test]
async fn conforms() {
    for max_keys in [1_000, 100_000] {
        for (store, clock) in both_kinds(max_keys) {
            conformance::conforms(&store, &clock).await;
            conformance::states::conforms(&store, &clock).await;
        }
    }
    for (store, clock) in both_kinds(100_000) {
        conformance::reservations::keeps_many_open(&store, &clock).await;
    }
}

#[tokio::test]
#[ignore = "takes half a minute: scripts/test --all runs it"]
async fn reservations_conform_at_length() {
    for (store, clock) in both_kinds(100_000) {
        conformance::reservations::conforms_at_length(&store, &clock).await;
    }
}

#[test]
fn admits_exactly_n_of_racing() {
    for max_keys in [1_000, 1_000_000] {
        for (store, _) in both_kinds(max_keys) {
            let store = Arc::new(store);
            let stores = || std::future::ready(store.clone());
            conformance::admits_exactly_n_of_racing(&stores);
            conformance::operations::grants_exactly_n_of_racing(&stores);
            conformance::reservations::reserves_at_most_n_of_racing(&stores);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn agrees_with_the_model(steps in model::schedules(true)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (store, clock) in both_kinds(10_000) {
            let sweep = || store.sweep(1);
            runtime.block_on(model::agrees(&store, &clock, "model", &steps, sweep));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn states_read_as_the_model_does(steps in model::schedules(false)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (store, clock) in both_kinds(10_000) {
            runtime.block_on(model::reads_agree(&store, &clock, "model", &steps));
        }
    }
}

#[tokio::test]
async fn reading_and_resetting_keep_no_keys() {
    let plan = plan(3, Unit::Hour);
    for (store, _) in both_kinds(1_000) {
        let key = Key { domain: "d", entries: &[("key", "a")] };
        conformance::try_read(&store, key, &plan, &[]).await.unwrap();
        assert_eq!(store.stats().keys, 0);
        take(&store, "d", "a", &plan, 1).await;
        conformance::try_reset(&store, key, &plan).await.unwrap();
        assert_eq!(store.stats().keys, 0);
    }
}

#[tokio::test]
async fn a_clock_that_was_ahead_at_the_start_loses_no_keys() {
    let plan = plan(2, Unit::Hour);
    let year = 365 * 86_400 * SECOND as i64;
    for step in [-year, 0, -30 * year, 60 * year, -29 * year] {
        for (store, clock) in both_kinds(1_000) {
            clock.step(step);
            assert!(take(&store, "d", "a", &plan, 2).await.allowed);
            store.sweep(store.shards());
            assert!(!take(&store, "d", "a", &plan, 1).await.allowed, "after {step}");
            clock.advance(3_600 * SECOND);
            store.sweep(store.shards());
            assert_eq!(store.stats().keys, 0, "after {step}");
        }
    }
}

#[tokio::test]
async fn a_step_back_after_hits_blocks_no_client_for_longer_than_a_period() {
    let plan = plan(2, Unit::Hour);
    for (store, clock) in both_kinds(1_000) {
        assert!(take(&store, "d", "a", &plan, 2).await.allowed);
        clock.step(-90 * 86_400 * SECOND as i64);
        store.sweep(store.shards());
        assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
        clock.advance(3_600 * SECOND);
        assert!(take(&store, "d", "a", &plan, 2).await.allowed);
    }
}

#[test]
fn slots_are_small() {
    assert_eq!(size_of::<table::Slot<Packed>>(), 28);
    assert_eq!(size_of::<table::Slot<Box<State>>>(), 24);
}

#[tokio::test]
async fn looking_and_refunding_keep_no_keys() {
    let plan = plan(3, Unit::Hour);
    for (store, _) in both_kinds(1_000) {
        let key = Key { domain: "d", entries: &[("key", "a")] };
        let charge_of = |op| Charge { key, plan: &plan, op, hold: None, role: Role::Enforced };
        let quiet = [charge_of(Op::Take(0)), charge_of(Op::Refund(7)), charge_of(Op::Take(0))];
        for together in [false, true] {
            charge(&store, &quiet, together).await;
            assert_eq!(store.stats().keys, 0);
        }
        // A batch that is undone keeps no keys either.
        charge(&store, &[charge_of(Op::Take(2)), charge_of(Op::Take(2))], true).await;
        assert_eq!(store.stats().keys, 0);
        // A key whose hits are all refunded is removed.
        charge(&store, &[charge_of(Op::Take(2))], false).await;
        assert_eq!(store.stats().keys, 1);
        charge(&store, &[charge_of(Op::Refund(2))], false).await;
        assert_eq!(store.stats().keys, 0);
    }
}

#[tokio::test]
async fn a_sweep_removes_expired_keys_and_frees_memory() {
    let (minute, day) = (plan(3, Unit::Minute), plan(3, Unit::Day));
    for (store, clock) in both_kinds(100_000) {
        for i in 0..20_000 {
            take(&store, "minute", &i.to_string(), &minute, 1).await;
        }
        for i in 0..100 {
            take(&store, "day", &i.to_string(), &day, 3).await;
        }
        let grown = store.stats();
        assert_eq!(grown.keys, 20_100);

        clock.advance(60 * SECOND - 1);
        store.sweep(store.shards());
        assert_eq!(store.stats().keys, 20_100, "swept too early");

        clock.advance(1);
        store.sweep(store.shards());
        let swept = store.stats();
        assert_eq!((swept.keys, swept.swept), (100, 20_000));
        store.sweep(store.shards());
        let shrunk = store.stats();
        assert!(shrunk.table_bytes * 20 < grown.table_bytes, "{grown:?} {shrunk:?}");
        for i in 0..100 {
            assert!(!take(&store, "day", &i.to_string(), &day, 1).await.allowed);
        }
    }
}

#[tokio::test]
async fn inserting_keys_sweeps_without_a_timer() {
    let plan = plan(3, Unit::Second);
    let (store, clock) = store(1_000_000);
    for second in 0..40 {
        for i in 0..5_000 {
            take(&store, "d", &format!("{second} {i}"), &plan, 1).await;
        }
        clock.advance(SECOND);
    }
    let stats = store.stats();
    assert!(stats.keys < 3 * 5_000, "{stats:?}");
    assert_eq!(stats.keys as u64 + stats.swept, 200_000);
}

#[tokio::test]
async fn a_clock_before_the_start_of_the_store_is_harmless() {
    let plan = plan(1, Unit::Second);
    let (store, clock) = store(10);
    clock.set(0);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
    assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
    store.sweep(usize::MAX);
    clock.set(DAWN + 50 * 365 * 86_400 * SECOND);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn agrees_with_the_model_at_all_times(
        from in prop_oneof![Just(0), Just(DAWN), Just((1 << 52) - 3_600 * SECOND)],
        steps in model::long_schedules(true, |_| true),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (store, clock) in both_kinds(10_000) {
            clock.set(from);
            let sweep = || store.sweep(1);
            runtime.block_on(model::agrees(&store, &clock, "model", &steps, sweep));
        }
    }
}

/// Such a key is not within its limit any more, and a new window alone would free it.
#[tokio::test]
async fn a_flood_of_keys_ends_no_ban_early() {
    let (store, clock) = store(1_000);
    let lengths = [60 * SECOND, 3_600 * SECOND].into();
    let ban = Ban { after: 2, within: 600 * SECOND, lengths, forget: 7_200 * SECOND };
    let window = Limit::fixed_window(100, Unit::Second, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![window]).with_ban(ban));
    for (key, strikes) in [("banned", 2), ("struck", 1)] {
        for _ in 0..strikes {
            take(&store, "d", key, &plan, 101).await;
        }
    }
    clock.advance(SECOND);
    for key in 0..20_000 {
        take(&store, "d", &key.to_string(), &plan, 1).await;
    }
    assert!(store.stats().evicted.live > 10_000);
    assert!(take(&store, "d", "banned", &plan, 0).await.banned);
    assert!(take(&store, "d", "struck", &plan, 101).await.ban_begins);

    // Bans that have ended make room for those that last.
    let (store, clock) = self::store(1_000);
    let short = Ban { after: 1, within: SECOND, lengths: [1, 1].into(), forget: 7_200 * SECOND };
    let long = Ban { lengths: [60 * SECOND].into(), ..short.clone() };
    let plan = |ban: &Ban| {
        let window = Limit::fixed_window(1, Unit::Second, 1).unwrap();
        Arc::new(Plan::new(vec![window]).with_ban(ban.clone()))
    };
    let [short, long] = [&short, &long].map(plan);
    for key in 0..100 {
        take(&store, "d", &format!("long{key}"), &long, 2).await;
    }
    for key in 0..20_000 {
        clock.advance(2);
        take(&store, "d", &key.to_string(), &short, 2).await;
    }
    for key in 0..100 {
        assert!(take(&store, "d", &format!("long{key}"), &long, 1).await.banned, "{key}");
    }
}

#[tokio::test]
async fn evictions_of_keys_at_their_limit_are_a_metric_of_their_own() {
    let store = MemoryStore::new(Arc::new(SystemClock::new()), 8);
    let (one, more) = (plan(1, Unit::Year), plan(9, Unit::Year));
    for i in 0..10 {
        take(&store, "d", &i.to_string(), &more, 1).await;
    }
    for i in 0..20 {
        take(&store, "full", &i.to_string(), &one, 1).await;
    }
    let mut metrics = MergedFamilies::default();
    store.collect(&mut metrics);
    for line in [
        r#"store_evictions [("state", "below_limit")] 10"#,
        r#"store_evictions [("state", "expired")] 0"#,
        "store_evictions_at_limit [] 12",
    ] {
        assert!(metrics.lines().iter().any(|it| it == line), "{line}: {metrics:?}");
    }
}
