//! What charging a key costs in the memory store.

use std::future::Future as _;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use weir::clock::SystemClock;
use weir::limit::{Limit, Op, Plan, Unit};
use weir::store::memory::MemoryStore;
use weir::store::{Answers, Batch, Charge, Key, Role, Store};

type Memory = MemoryStore<SystemClock>;

fn plan() -> Arc<Plan> {
    Arc::new(Plan::new(Limit::fixed_window(1_000, Unit::Year, 1).into_iter().collect()))
}

/// Values of keys; made beforehand, so that only the store is measured.
fn values(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("user-{i}")).collect()
}

fn charge_all(store: &Memory, plan: &Arc<Plan>, values: &[&str], together: bool) {
    let entries: [[(&str, &str); 1]; 2] =
        std::array::from_fn(|i| [("account", values.get(i).copied().unwrap_or_default())]);
    let charges: [Charge<'_>; 2] = std::array::from_fn(|i| Charge {
        key: Key { domain: "shop", entries: &entries[i] },
        plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Binds,
    });
    let charges = &charges[..values.len().min(2)];
    let mut answers = Answers::new();
    let batch = Batch { charges, together, budget: Duration::MAX };
    let _ = pin!(store.charge(batch, &mut answers)).poll(&mut Context::from_waker(Waker::noop()));
    black_box(&answers);
}

/// Goes through `values` in a scattered order.
fn scattered(i: u64, values: &[String]) -> &str {
    let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &values[((u128::from(hash) * values.len() as u128) >> 64) as usize]
}

fn known_keys(c: &mut Criterion) {
    let plan = plan();
    for (name, count) in [("one", 1), ("1 000", 1_000), ("1 000 000", 1_000_000)] {
        let (store, values) = (Memory::new(SystemClock::new(), 10_000_000), values(count));
        for value in &values {
            charge_all(&store, &plan, &[value], false);
        }
        let mut i = 0;
        c.bench_function(&format!("charge a known key of {name}"), |b| {
            b.iter(|| {
                i += 1;
                charge_all(&store, &plan, &[scattered(i, &values)], false);
            });
        });
        c.bench_function(&format!("charge two together of {name}"), |b| {
            b.iter(|| {
                i += 2;
                let pair = [scattered(i, &values), scattered(i + 1, &values)];
                charge_all(&store, &plan, &pair, true);
            });
        });
    }
}

fn fresh_keys_at_the_cap(c: &mut Criterion) {
    let plan = plan();
    for cap in [10_000, 100_000, 1_000_000, 10_000_000] {
        let store = Memory::new(SystemClock::new(), cap);
        let mut value = String::new();
        let mut fresh = 0_u64;
        let mut charge_fresh = || {
            use std::fmt::Write as _;
            fresh += 1;
            value.clear();
            let _ = write!(value, "{fresh}");
            charge_all(&store, &plan, &[&value], false);
        };
        for _ in 0..cap + cap / 2 {
            charge_fresh();
        }
        c.bench_function(&format!("charge a fresh key at a cap of {cap}"), |b| {
            b.iter(&mut charge_fresh);
        });
    }
}

/// Time a charge takes each of two threads that charge at once.
fn two_threads(c: &mut Criterion) {
    let plan = plan();
    for (name, count) in [("one", 1), ("1 000 000", 1_000_000)] {
        let (store, values) = (Memory::new(SystemClock::new(), 10_000_000), values(count));
        for value in &values {
            charge_all(&store, &plan, &[value], false);
        }
        c.bench_function(&format!("two threads charge keys of {name}"), |b| {
            b.iter_custom(|charges| {
                let begun = Instant::now();
                thread::scope(|scope| {
                    for first in [0, charges] {
                        let (store, plan, values) = (&store, &plan, &values);
                        scope.spawn(move || {
                            for i in first..first + charges {
                                charge_all(store, plan, &[scattered(i, values)], false);
                            }
                        });
                    }
                });
                begun.elapsed()
            });
        });
    }
}

criterion_group!(benches, known_keys, fresh_keys_at_the_cap, two_threads);
criterion_main!(benches);
