//! What ids reserve, and settle.

use std::collections::HashMap;

use super::*;
use crate::{Entry, StateKey};
use weir_limit::{
    Algorithm, Limit, Otherwise, Reservation, ReservationOp, ReservationResult, Reserve,
    SlidingWindow,
};

mod full;

const TIMEOUT: u32 = 600;

/// A plan of one limit, or of two.
fn budget(n: u32, unit: Unit, limits: usize) -> Arc<Plan> {
    let window = Limit { charge_denied: false, ..Limit::fixed_window(n, unit, 1).unwrap() };
    let algorithm = Algorithm::SlidingWindow(SlidingWindow { n, period: 60 * SECOND });
    let sliding = Limit { algorithm, ..window.clone() };
    let plan = Plan::new([window, sliding].into_iter().take(limits).collect());
    assert!(plan.can_reserve());
    Arc::new(plan)
}

fn reserve(least: u32, most: u32) -> ReservationOp {
    ReservationOp::Reserve { reserve: Reserve { least, most, timeout: TIMEOUT }, once: None }
}

/// Settles nothing that was used, or else reserves.
fn or_reserve(reserve: Reserve) -> ReservationOp {
    ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(reserve) }
}

/// A charge of a key's id.
fn of<'a>(
    entries: &'a [Entry<'a>],
    plan: &'a Arc<Plan>,
    id: &'a str,
    op: ReservationOp,
) -> Charge<'a> {
    let (key, op) = (Key { domain: "d", entries }, Op::Reservation(op));
    Charge { key, plan, op, hold: Some(id), role: Role::Enforced }
}

async fn make(store: &Memory, plan: &Arc<Plan>, id: &str, op: ReservationOp) -> Decision {
    make_of(store, plan, "a", id, op).await
}

/// As [`make`], of another key.
async fn make_of(
    store: &Memory,
    plan: &Arc<Plan>,
    key: &str,
    id: &str,
    op: ReservationOp,
) -> Decision {
    charge(store, &[of(&[("key", key)], plan, id, op)], false).await.swap_remove(0)
}

async fn used(store: &Memory, plan: &Arc<Plan>) -> u64 {
    take(store, "d", "a", plan, 0).await.used_before
}

#[tokio::test]
async fn what_is_reserved_is_settled_once() {
    for (store, _) in both_kinds(1_000) {
        let plan = budget(10, Unit::Hour, 1);
        let reserved = make(&store, &plan, "r", reserve(2, 8)).await;
        assert_eq!((reserved.granted, reserved.reservation), (8, ReservationResult::Reserved));
        assert_eq!(used(&store, &plan).await, 8);
        assert!(!make(&store, &plan, "other", reserve(3, 8)).await.allowed);
        assert_eq!(store.stats().reservations, 1);
        let settled = make(&store, &plan, "r", ReservationOp::settle(3)).await;
        assert_eq!((settled.reserved, settled.reservation), (8, ReservationResult::Settled));
        assert_eq!((used(&store, &plan).await, store.stats().reservations), (3, 0));
        let again = make(&store, &plan, "r", ReservationOp::settle(3)).await;
        assert_eq!((again.granted, again.reservation), (3, ReservationResult::Unknown));
        assert_eq!(used(&store, &plan).await, 6);
    }
}

#[tokio::test]
async fn a_reset_is_kept_until_what_was_reserved_before_has_lapsed() {
    let (store, clock) = store(1_000);
    let plan = budget(10, Unit::Hour, 1);
    let entries = [("key", "a")];
    let key = Key { domain: "d", entries: &entries };
    let reset = || store.reset_now(StateKey { key, plan: &plan, together: false, id: None });
    take(&store, "d", "a", &plan, 5).await;
    reset();
    // Nothing was ever reserved.
    assert_eq!((used(&store, &plan).await, store.stats().reservations), (0, 0));
    make(&store, &plan, "r", reserve(2, 8)).await;
    reset();
    assert_eq!((used(&store, &plan).await, store.stats().reservations), (0, 2));
    clock.advance((u64::from(Reservation::MAX_TIMEOUT) - 1) * SECOND);
    store.sweep(store.shards());
    assert_eq!(store.stats().reservations, 1);
    clock.advance(3 * SECOND);
    store.sweep(store.shards());
    assert_eq!(store.stats().reservations, 0);
}

#[tokio::test]
async fn ids_of_other_keys_and_shapes_are_others() {
    let (store, _) = store(1_000);
    let (one, two) = (budget(10, Unit::Hour, 1), budget(10, Unit::Hour, 2));
    let (a, b, none) = ([("key", "a")], [("key", "b")], [("key", "a"), ("", "")]);
    let keys: [(&[Entry<'_>], &Arc<Plan>, &str); 6] = [
        (&a, &one, "r"),
        (&a, &one, "rr"),
        (&a, &one, ""),
        (&a, &two, "r"),
        (&b, &one, "r"),
        (&none, &one, "r"),
    ];
    for (i, (entries, plan, id)) in keys.into_iter().enumerate() {
        charge(&store, &[of(entries, plan, id, reserve(1, 1))], false).await;
        assert_eq!(store.stats().reservations, i + 1);
    }
}

#[tokio::test]
async fn nothing_is_allocated_before_something_is_reserved() {
    let ((store, _), plan) = (store(1_000_000), budget(10, Unit::Hour, 1));
    let keys_only = store.stats().table_bytes;
    for op in [
        ReservationOp::settle(0),
        ReservationOp::Cancel(7),
        or_reserve(Reserve { least: 11, most: 11, timeout: 1 }),
    ] {
        make(&store, &plan, "r", op).await;
    }
    assert_eq!(store.stats().table_bytes, keys_only);
    make(&store, &plan, "r", reserve(1, 1)).await;
    assert!(store.stats().table_bytes > keys_only);
}

#[tokio::test]
async fn a_reset_deletes_counts_and_no_reservations() {
    for (store, _) in both_kinds(1_000) {
        let plan = budget(10, Unit::Hour, 1);
        make(&store, &plan, "r", reserve(1, 8)).await;
        let key = Key { domain: "d", entries: &[("key", "a")] };
        conformance::try_reset(&store, key, &plan).await.unwrap();
        assert_eq!(used(&store, &plan).await, 0);
        let settled = make(&store, &plan, "r", ReservationOp::settle(3)).await;
        assert_eq!(settled.reservation, ReservationResult::Settled);
        assert_eq!(used(&store, &plan).await, 0);
    }
}

#[tokio::test]
async fn lapsed_reservations_are_swept_and_free_memory() {
    let ((store, clock), plan) = (store(1_000_000), budget(1_000_000, Unit::Day, 1));
    for i in 0..20_000 {
        make(&store, &plan, &i.to_string(), reserve(1, 1)).await;
    }
    let grown = store.stats();
    clock.advance(u64::from(TIMEOUT) * SECOND - 1);
    store.sweep(store.shards());
    assert_eq!(store.stats().reservations, 20_000, "swept too early");
    clock.advance(1);
    let settled = make(&store, &plan, "7", ReservationOp::settle(1)).await;
    assert_eq!(settled.reservation, ReservationResult::Unknown);
    // In as many calls as it takes to sweep the keys.
    for _ in 0..2 * store.shards() {
        store.sweep(1);
    }
    let swept = store.stats();
    assert_eq!((swept.reservations, swept.reservations_evicted), (0, 0));
    assert!(swept.table_bytes * 20 < grown.table_bytes, "{grown:?} {swept:?}");
    assert_eq!(used(&store, &plan).await, 20_001);
}

#[tokio::test]
async fn an_open_reservation_takes_at_most_64_bytes_on_average() {
    let ((store, _), plan) = (store(8_000_000), budget(u32::MAX, Unit::Day, 1));
    make(&store, &plan, "first", reserve(1, 1)).await;
    let empty = store.stats().table_bytes;
    // Tables double at different times, so that each size is about as good as another.
    let (mut sizes, mut sum) = (0, 0.0);
    for i in 0..200_000 {
        make(&store, &plan, &i.to_string(), reserve(1, 1)).await;
        if i >= 100_000 && i % 5_000 == 0 {
            sizes += 1;
            sum += (store.stats().table_bytes - empty) as f64 / f64::from(i + 1);
        }
    }
    let average = sum / f64::from(sizes);
    assert!(average <= 64.0, "{average} bytes");
    assert_eq!(store.stats().reservations_evicted, 0);
}

#[tokio::test]
async fn a_denied_batch_changes_no_reservation_but_by_what_depends_on_no_limit() {
    for (store, _) in both_kinds(1_000) {
        let (plan, full) = (budget(100, Unit::Hour, 1), budget(1, Unit::Hour, 2));
        let none = Reserve { least: 1, most: 1, timeout: TIMEOUT };
        let a = [("key", "a")];
        make(&store, &plan, "settled", reserve(1, 10)).await;
        make(&store, &plan, "ended", reserve(1, 20)).await;
        make(&store, &plan, "cancelled", reserve(1, 30)).await;
        assert_eq!(used(&store, &plan).await, 60);
        let charges = [
            of(&a, &plan, "new", reserve(1, 5)),
            // It settles what is not reserved in the end, and must not reserve instead.
            of(&a, &plan, "new", or_reserve(none)),
            of(&a, &plan, "newer", or_reserve(none)),
            of(&a, &plan, "settled", ReservationOp::settle(4)),
            of(&a, &plan, "ended", or_reserve(none)),
            of(&a, &plan, "cancelled", ReservationOp::Cancel(30)),
            of(&a, &plan, "unknown", ReservationOp::settle(2)),
            of(&a, &full, "denied", reserve(2, 2)),
        ];
        let decisions = charge(&store, &charges, true).await;
        let results: Vec<_> = decisions.iter().map(|it| it.reservation).collect();
        use ReservationResult::{None, Reserved, Settled, Unknown};
        assert_eq!(
            results,
            [Reserved, Settled, Reserved, Settled, Settled, Settled, Unknown, None]
        );
        assert_eq!((used(&store, &plan).await, store.stats().reservations), (6, 0));
    }
}

#[tokio::test]
async fn charges_of_an_id_in_one_batch_continue_each_other() {
    for together in [false, true] {
        for (store, _) in both_kinds(1_000) {
            let plan = budget(100, Unit::Hour, 2);
            let a = [("key", "a")];
            let charges = [
                of(&a, &plan, "r", reserve(1, 10)),
                of(&a, &plan, "other", reserve(1, 7)),
                of(&a, &plan, "r", reserve(1, 20)),
                of(&a, &plan, "r", ReservationOp::settle(1)),
            ];
            let decisions = charge(&store, &charges, together).await;
            assert_eq!(decisions[3].reserved, 15);
            assert_eq!((used(&store, &plan).await, store.stats().reservations), (23, 2));
            let rest = store.reservation_now(&charges[0]).unwrap();
            assert_eq!((rest.hits, rest.count, rest.limits), (15, 1, 3));
            assert_eq!(rest.lapses, DAWN + u64::from(TIMEOUT) * SECOND);
        }
    }
}

#[test]
fn racing_batches_settle_each_reservation_once() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 500;
    for (store, _) in both_kinds(1_000) {
        let plan = budget(u32::MAX, Unit::Day, 1);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, plan) = (&store, &plan);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for round in 0..ROUNDS {
                        // Each id by two threads, keys and ids in another order each.
                        let id = |i: usize| format!("{} {round} {i}", thread / 2);
                        let (ids, keys) = ([id(0), id(1), id(2)], [[("key", "b")], [("key", "a")]]);
                        let of = |i: usize, op| {
                            let i = if thread % 2 == 0 { i } else { 2 - i };
                            of(&keys[i % 2], plan, &ids[i], op)
                        };
                        let batch = |op| [of(0, op), of(1, op), of(2, op)];
                        runtime.block_on(charge(store, &batch(reserve(1, 5)), true));
                        let settle = ReservationOp::settle(2);
                        runtime.block_on(charge(store, &batch(settle), round % 2 == 0));
                    }
                });
            }
        });
        assert_eq!(store.stats().reservations, 0);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let used = |key| runtime.block_on(take(&store, "d", key, &plan, 0)).used_before;
        assert_eq!(used("a") + used("b"), (THREADS * ROUNDS * 3 * 2) as u64);
    }
}

/// Keys and reservations as maps.
#[derive(Default)]
struct Naive {
    states: HashMap<u8, State>,
    reservations: HashMap<(u8, u8), Reservation>,
}

type Step = (u64, bool, Vec<(u8, u8, ReservationOp)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hits = || prop_oneof![4 => 0_u32..12, 1 => Just(u32::MAX)];
    let reserve = || {
        let timeout = prop_oneof![2 => Just(TIMEOUT), 1 => 1_u32..3];
        (1_u32..4, 0_u32..9, timeout).prop_map(|(least, more, timeout)| Reserve {
            least,
            most: least + more,
            timeout,
        })
    };
    let op = prop_oneof![
        3 => reserve().prop_map(|reserve| ReservationOp::Reserve { reserve, once: None }),
        3 => hits().prop_map(ReservationOp::settle),
        1 => (hits(), reserve()).prop_map(|(used, reserve)| {
            ReservationOp::Settle { used, otherwise: Otherwise::Reserve(reserve) }
        }),
        1 => hits().prop_map(ReservationOp::Cancel),
    ];
    let wait = prop_oneof![3 => Just(0), 3 => 0..2_000_000_u64, 1 => 0..70_000_000_u64];
    let batch = prop::collection::vec((0_u8..2, 0_u8..3, op), 1..4);
    prop::collection::vec((wait, any::<bool>(), batch), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Counts, reservations and answers are those of charging one after the other.
    #[test]
    fn agrees_with_charging_one_after_the_other(
        n in 1_u32..40,
        limits in 1_usize..3,
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let plan = budget(n, Unit::Minute, limits);
        let keys = [[("key", "a")], [("key", "b")]];
        for (store, clock) in both_kinds(1_000) {
            let mut naive = Naive::default();
            for (wait, together, batch) in &steps {
                clock.advance(*wait);
                let now = clock.now();
                let ids: Vec<String> = batch.iter().map(|(_, id, _)| id.to_string()).collect();
                let charges: Vec<Charge<'_>> = std::iter::zip(batch, &ids)
                    .map(|(&(key, _, op), id)| of(&keys[usize::from(key)], &plan, id, op))
                    .collect();
                let found = runtime.block_on(charge(&store, &charges, *together));
                let denied = *together && found.iter().any(|it| !it.allowed);
                for (&(key, id, op), found) in batch.iter().zip(&found) {
                    let op = match op {
                        op if !denied || op.reserve().is_none() => op,
                        _ if found.reservation == ReservationResult::Settled => {
                            op.without_reserve().unwrap()
                        }
                        _ => continue,
                    };
                    let state = naive.states.entry(key).or_default();
                    let mut reservation = naive.reservations.remove(&(key, id));
                    let made = plan.charge_reservation(state, &mut reservation, now, op);
                    if !denied {
                        prop_assert_eq!(found, &made.decision);
                    }
                    if made.expires <= now {
                        *state = State::default();
                    }
                    naive.reservations.extend(reservation.map(|it| ((key, id), it)));
                }
                for key in 0..2 {
                    let entries = &keys[usize::from(key)];
                    let state = naive.states.entry(key).or_default();
                    let look = Op::Take(0);
                    let expected = plan.charge(&mut state.clone(), now, look, None).decision;
                    let found = Charge { op: look, ..of(entries, &plan, "", reserve(1, 1)) };
                    let found = runtime.block_on(charge(&store, &[found], false)).swap_remove(0);
                    prop_assert_eq!(found, expected);
                    for id in 0..3 {
                        let open = naive.reservations.get(&(key, id)).copied();
                        let id = id.to_string();
                        let found = store.reservation_now(&of(entries, &plan, &id, reserve(1, 1)));
                        prop_assert_eq!(found, open.filter(|it| it.is_live(now)));
                    }
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "takes a minute without optimization: scripts/test --all runs it"]
async fn a_million_reservations_leave_the_counters_of_others() {
    const OTHERS: u32 = 100_000;
    const OPEN: u32 = 1_000_000;
    let plan = budget(10_000_000, Unit::Day, 1);
    let (store, _) = store(2 * OTHERS as usize);
    // Ids do not spread evenly.
    let store = store.with_max_reservations(OPEN as usize + OPEN as usize / 4);
    for i in 0..OTHERS {
        take(&store, "d", &i.to_string(), &plan, 1).await;
    }
    let before = store.stats();
    for i in 0..OPEN {
        make(&store, &plan, &i.to_string(), reserve(1, 3)).await;
    }
    let stats = store.stats();
    assert_eq!((stats.reservations, stats.reservations_evicted), (OPEN as usize, 0));
    assert_eq!(stats.evicted, Evicted::default());
    let each = (stats.table_bytes - before.table_bytes) as f64 / f64::from(OPEN);
    println!("{each} bytes a reservation");
    assert!(each <= 64.0);
    for i in 0..OTHERS {
        assert_eq!(take(&store, "d", &i.to_string(), &plan, 0).await.used_before, 1, "{i}");
    }
    for i in 0..OPEN {
        let settled = make(&store, &plan, &i.to_string(), ReservationOp::settle(2)).await;
        assert_eq!(settled.reservation, ReservationResult::Settled, "{i}");
    }
    assert_eq!(used(&store, &plan).await, 2 * u64::from(OPEN));
}

#[tokio::test]
async fn reservations_are_metrics() {
    let store = MemoryStore::new(Arc::new(ManualClock::new(DAWN)), 1_000).with_max_reservations(2);
    let plan = budget(100, Unit::Hour, 1);
    for key in ["a", "b", "c"] {
        make_of(&store, &plan, key, "r", reserve(1, 1)).await;
    }
    make_of(&store, &plan, "c", "another", reserve(1, 1)).await;
    let mut metrics = MergedFamilies::default();
    store.collect(&mut metrics);
    for line in
        ["store_reservations [] 2", "reservations_evicted [] 1", "reservations_unrecorded [] 1"]
    {
        assert!(metrics.lines().iter().any(|it| it == line), "{line}: {metrics:?}");
    }
}
