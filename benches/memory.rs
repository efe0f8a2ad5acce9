//! Time to charge a key in the memory store.

use std::future::Future as _;
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use weir_common::clock::SystemClock;
use weir_limit::{Limit, Op, Plan, Unit};
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Charge, Key, Role, Store};

type Memory = MemoryStore<SystemClock>;

fn plan() -> Arc<Plan> {
    Arc::new(Plan::new(Limit::fixed_window(1_000, Unit::Year, 1).into_iter().collect()))
}

/// The value of a key, formatted on the stack: reading it from memory would be measured too.
struct Value {
    digits: [u8; 20],
    start: usize,
}

impl Value {
    fn new(mut number: u64) -> Value {
        let mut value = Value { digits: [b'0'; 20], start: 19 };
        while number > 9 {
            value.digits[value.start] = b'0' + (number % 10) as u8;
            value.start -= 1;
            number /= 10;
        }
        value.digits[value.start] = b'0' + number as u8;
        value
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }
}

fn charge_all(store: &Memory, plan: &Arc<Plan>, keys: &[u64], together: bool) {
    let values: [Value; 2] =
        std::array::from_fn(|i| Value::new(keys.get(i).copied().unwrap_or_default()));
    let entries: [[(&str, &str); 1]; 2] =
        std::array::from_fn(|i| [("account", values[i].as_str())]);
    let charges: [Charge<'_>; 2] = std::array::from_fn(|i| Charge {
        key: Key { domain: "shop", entries: &entries[i] },
        plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Enforced,
    });
    let charges = &charges[..keys.len().min(2)];
    let mut answers = Answers::new();
    let batch = Batch { together, ..Batch::new(charges, Duration::MAX) };
    let _ = pin!(store.charge(&batch, &mut answers)).poll(&mut Context::from_waker(Waker::noop()));
    black_box(&answers);
}

/// Returns the `i`th of `count` keys in a scattered order.
fn scattered(i: u64, count: u64) -> u64 {
    let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}

/// Returns a store that holds the first `count` keys.
fn filled(count: u64, max_keys: usize) -> Memory {
    let (store, plan) = (Memory::new(SystemClock::new(), max_keys), plan());
    for key in 0..count {
        charge_all(&store, &plan, &[key], false);
    }
    store
}

fn known_keys(c: &mut Criterion) {
    let plan = plan();
    for (name, count) in [("one", 1), ("1 000", 1_000), ("1 000 000", 1_000_000)] {
        let store = filled(count, 10_000_000);
        let mut i = 0;
        c.bench_function(&format!("charge a known key of {name}"), |b| {
            b.iter(|| {
                i += 1;
                charge_all(&store, &plan, &[scattered(i, count)], false);
            });
        });
        c.bench_function(&format!("charge two together of {name}"), |b| {
            b.iter(|| {
                i += 2;
                let pair = [scattered(i, count), scattered(i + 1, count)];
                charge_all(&store, &plan, &pair, true);
            });
        });
    }
}

fn fresh_keys_at_the_cap(c: &mut Criterion) {
    let plan = plan();
    for cap in [10_000, 100_000, 1_000_000, 10_000_000] {
        let mut fresh = cap as u64 * 3 / 2;
        let store = filled(fresh, cap);
        c.bench_function(&format!("charge a fresh key at a cap of {cap}"), |b| {
            b.iter(|| {
                fresh += 1;
                charge_all(&store, &plan, &[fresh], false);
            });
        });
    }
}

/// Time per charge of two threads that charge at the same time.
fn two_threads(c: &mut Criterion) {
    let plan = plan();
    for (name, count) in [("one", 1), ("1 000 000", 1_000_000)] {
        let store = filled(count, 10_000_000);
        c.bench_function(&format!("two threads charge keys of {name}"), |b| {
            b.iter_custom(|charges| {
                let start = Instant::now();
                thread::scope(|scope| {
                    for first in [0, charges] {
                        let (store, plan) = (&store, &plan);
                        scope.spawn(move || {
                            for i in first..first + charges {
                                charge_all(store, plan, &[scattered(i, count)], false);
                            }
                        });
                    }
                });
                start.elapsed()
            });
        });
    }
}

criterion_group!(benches, known_keys, fresh_keys_at_the_cap, two_threads);
criterion_main!(benches);
