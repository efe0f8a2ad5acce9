//! Time to decide and charge one key by algorithm, without a store.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, Concurrency, FixedWindow, Gcra, Limit, Micros, Op, Plan,
    SECOND, SlidingLog, SlidingWindow, State, TokenBucket, Unit,
};

/// 2023-11-15, noon: the start of a second, a minute and an hour.
const NOON: Micros = 1_700_049_600 * SECOND;

/// A thousand per second with one hit per millisecond: every hit is just admitted.
const N: u32 = 1_000;
const STEP: Micros = SECOND / N as u64;

fn limit(n: u32, algorithm: Algorithm) -> Limit {
    Limit {
        name: Box::default(),
        requests_per_unit: n,
        unit: Some(Unit::Second),
        unit_multiplier: 1,
        in_days: false,
        charge_denied: false,
        shadow_mode: false,
        algorithm,
    }
}

fn fixed(n: u32, period: Micros) -> Limit {
    limit(n, Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }))
}

fn log(n: u32, period: Micros) -> Limit {
    limit(n, Algorithm::SlidingLog(SlidingLog { n, period }))
}

/// All algorithms by name, with a thousand per second; the calendar has no seconds, so that one has the
/// same rate over a day.
fn algorithms() -> Vec<(&'static str, Limit)> {
    let calendar = Calendar::new(Unit::Day, "Europe/Berlin").ok().map(Arc::new);
    let day = N * 86_400;
    let by_calendar = FixedWindow { n: day, period: 86_400 * SECOND, calendar };
    let bucket = TokenBucket { capacity: N, amount: 1, interval: STEP, strict: false, max_debt: 0 };
    let mut algorithms = vec![
        ("fixed_window", fixed(N, SECOND)),
        ("fixed_window by the calendar", limit(day, Algorithm::FixedWindow(by_calendar))),
        (
            "sliding_window",
            limit(N, Algorithm::SlidingWindow(SlidingWindow { n: N, period: SECOND })),
        ),
        ("sliding_log", log(N, SECOND)),
        (
            "bucketed_window",
            limit(
                N,
                Algorithm::BucketedWindow(BucketedWindow { n: N, period: SECOND, buckets: 60 }),
            ),
        ),
        ("token_bucket", limit(N, Algorithm::TokenBucket(bucket))),
    ];
    if let Ok(gcra) = Gcra::new(N, SECOND, N, 0) {
        algorithms.push(("gcra", limit(N, Algorithm::Gcra(gcra))));
    }
    algorithms
}

/// The state of a key in the form that the memory store uses for its plan.
enum Held {
    Packed([u32; 3]),
    Boxed(Box<State>),
}

struct Key {
    plan: Plan,
    held: Held,
    now: Micros,
}

impl Key {
    fn new(limits: Vec<Limit>) -> Key {
        let plan = Plan::new(limits);
        let held = if plan.packs() { Held::Packed([0; 3]) } else { Held::Boxed(Box::default()) };
        Key { plan, held, now: NOON }
    }

    fn charge(&mut self, op: Op, hold: Option<&str>) -> bool {
        let charged = match &mut self.held {
            Held::Packed(packed) => self.plan.charge_packed(packed, self.now, op, hold),
            Held::Boxed(state) => self.plan.charge(state, self.now, op, hold),
        };
        black_box(charged).decision.allowed
    }

    /// Charges hits until one is denied.
    fn fill(mut self) -> Key {
        while self.charge(Op::Take(1), None) {}
        self
    }
}

fn one_limit(c: &mut Criterion) {
    for (name, limit) in algorithms() {
        let mut key = Key::new(vec![limit.clone()]);
        c.bench_function(&format!("{name}, steady"), |b| {
            b.iter(|| {
                key.now += STEP;
                key.charge(Op::Take(1), None)
            });
        });
        let mut key = Key::new(vec![limit]);
        // At once, because a day has too many to charge one by one.
        let all = u64::from(key.plan.limits()[0].requests_per_unit);
        key.charge(Op::Take(all), None);
        let mut key = key.fill();
        c.bench_function(&format!("{name}, denied"), |b| b.iter(|| key.charge(Op::Take(1), None)));
    }
}

fn concurrency(c: &mut Criterion) {
    let ids: Vec<String> = (0..10).map(|i| format!("request-{i}")).collect();
    for (name, hold_id) in [("without ids", None), ("with ids", Some("request_id".into()))] {
        let concurrency = Concurrency { n: 10, timeout: 60 * SECOND, hold_id };
        let mut key = Key::new(vec![limit(10, Algorithm::Concurrency(concurrency))]);
        for id in &ids {
            key.charge(Op::Take(1), Some(id));
        }
        let mut i = 0;
        c.bench_function(&format!("concurrency {name}, an end and a start of 10"), |b| {
            b.iter(|| {
                key.now += STEP;
                i = (i + 1) % ids.len();
                key.charge(Op::Refund(1), Some(&ids[i]));
                key.charge(Op::Take(1), Some(&ids[i]))
            });
        });
        c.bench_function(&format!("concurrency {name}, denied"), |b| {
            b.iter(|| key.charge(Op::Take(1), Some("another")));
        });
    }
}

fn four_fixed_windows(c: &mut Criterion) {
    let mut key = Key::new(
        [1, 60, 3_600, 86_400]
            .map(|seconds| fixed(N * seconds, u64::from(seconds) * SECOND))
            .into(),
    );
    c.bench_function("4 fixed windows, steady", |b| {
        b.iter(|| {
            key.now += STEP;
            key.charge(Op::Take(1), None)
        });
    });
}

/// Four limits on one full log: with each step one hit leaves every limit and one is added.
fn four_logs(c: &mut Criterion) {
    for n in [10, 1_000, 100_000, 1_000_000] {
        let halves = [n, n / 2, n / 4, n / 8].map(|n| n.max(1));
        let limits = || halves.map(|n| log(n, u64::from(n) * STEP)).into();
        let mut key = Key::new(limits());
        for _ in 0..n {
            key.now += STEP;
            assert!(key.charge(Op::Take(1), None));
        }
        c.bench_function(&format!("4 sliding logs of up to {n}, steady"), |b| {
            b.iter(|| {
                key.now += STEP;
                key.charge(Op::Take(1), None)
            });
        });
        c.bench_function(&format!("4 sliding logs of up to {n}, denied"), |b| {
            b.iter(|| key.charge(Op::Take(1), None));
        });
    }
}

/// A full log whose hits have all expired by the next charge.
fn lapsed_logs(c: &mut Criterion) {
    for n in [10, 1_000, 100_000, 1_000_000] {
        let mut key = Key::new(vec![log(n, SECOND)]);
        c.bench_function(&format!("a lapsed sliding log of {n}"), |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    key.charge(Op::Take(n.into()), None);
                    key.now += 2 * SECOND;
                    let start = Instant::now();
                    key.charge(Op::Take(1), None);
                    total += start.elapsed();
                    key.now += 2 * SECOND;
                }
                total
            });
        });
    }
}

criterion_group!(benches, one_limit, concurrency, four_fixed_windows, four_logs, lapsed_logs);
criterion_main!(benches);
