//! Measures the resident memory per key of the memory store, by algorithm, everything included. Each
//! algorithm runs in a process of its own, because allocators keep freed memory. Linux only.

use std::fmt::Write as _;
use std::future::Future as _;
use std::pin::pin;
use std::process::Command;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use anyhow::Context as _;
use weir_common::clock::ManualClock;
use weir_limit::{
    Algorithm, BucketedWindow, Concurrency, FixedWindow, Gcra, Limit, Micros, Op, Plan, SECOND,
    SlidingLog, SlidingWindow, TokenBucket, Unit,
};
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Charge, Key, Role, Store};

const MINUTE: Micros = 60 * SECOND;
const MILLION: usize = 1_000_000;

/// A number of keys with the same limits, each charged once per round.
struct Case {
    name: &'static str,
    keys: usize,
    rounds: usize,
    limits: fn() -> anyhow::Result<Vec<Limit>>,
}

const CASES: [Case; 10] = [
    Case { name: "fixed_window", keys: MILLION, rounds: 1, limits: || Ok(vec![fixed(MINUTE)]) },
    Case {
        name: "sliding_window",
        keys: MILLION,
        rounds: 1,
        limits: || one(Algorithm::SlidingWindow(SlidingWindow { n: 60, period: MINUTE })),
    },
    Case {
        name: "token_bucket",
        keys: MILLION,
        rounds: 1,
        limits: || {
            one(Algorithm::TokenBucket(TokenBucket {
                capacity: 60,
                amount: 1,
                interval: SECOND,
                strict: false,
                max_debt: 0,
            }))
        },
    },
    Case {
        name: "gcra",
        keys: MILLION,
        rounds: 1,
        limits: || one(Algorithm::Gcra(Gcra::new(60, MINUTE, 60, 0)?)),
    },
    Case { name: "sliding_log, 1 stamp", keys: MILLION, rounds: 1, limits: log },
    Case { name: "sliding_log, 60 stamps", keys: 100_000, rounds: 60, limits: log },
    Case {
        name: "bucketed_window, 60 buckets",
        keys: 100_000,
        rounds: 1,
        limits: || {
            one(Algorithm::BucketedWindow(BucketedWindow { n: 60, period: MINUTE, buckets: 60 }))
        },
    },
    Case {
        name: "concurrency, 10 holds without ids",
        keys: 100_000,
        rounds: 10,
        limits: || one(Algorithm::Concurrency(concurrency(None))),
    },
    Case {
        name: "concurrency, 10 holds with ids",
        keys: 100_000,
        rounds: 10,
        limits: || one(Algorithm::Concurrency(concurrency(Some("request_id")))),
    },
    Case {
        name: "4 fixed windows",
        keys: 100_000,
        rounds: 1,
        limits: || Ok([1, 60, 3_600, 86_400].map(|seconds| fixed(seconds * SECOND)).into()),
    },
];

fn one(algorithm: Algorithm) -> anyhow::Result<Vec<Limit>> {
    Ok(vec![limit(algorithm)])
}

fn limit(algorithm: Algorithm) -> Limit {
    Limit {
        name: Box::default(),
        requests_per_unit: 60,
        unit: Some(Unit::Minute),
        unit_multiplier: 1,
        in_days: false,
        charge_denied: false,
        shadow_mode: false,
        algorithm,
    }
}

fn fixed(period: Micros) -> Limit {
    limit(Algorithm::FixedWindow(FixedWindow { n: 60, period, calendar: None }))
}

fn log() -> anyhow::Result<Vec<Limit>> {
    one(Algorithm::SlidingLog(SlidingLog { n: 60, period: MINUTE }))
}

fn concurrency(hold_id: Option<&str>) -> Concurrency {
    Concurrency { n: 60, timeout: MINUTE, hold_id: hold_id.map(Into::into) }
}

fn main() -> anyhow::Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        let case = CASES.iter().find(|case| case.name == name);
        return measure(case.with_context(|| format!("no case {name:?}"))?);
    }
    for case in &CASES {
        let status = Command::new(std::env::current_exe()?).arg(case.name).status()?;
        anyhow::ensure!(status.success(), "measuring {} failed", case.name);
    }
    Ok(())
}

fn measure(case: &Case) -> anyhow::Result<()> {
    let clock = Arc::new(ManualClock::new(1_700_006_400 * SECOND));
    // Room for twice as many keys, so that none is evicted.
    let store = MemoryStore::new(clock.clone(), 2 * case.keys);
    let plan = Arc::new(Plan::new((case.limits)()?));
    let before = resident()?;
    let mut user = String::new();
    for round in 0..case.rounds {
        let hold = format!("request-{round}");
        for key in 0..case.keys {
            user.clear();
            write!(user, "user-{key}")?;
            charge(&store, &plan, &user, &hold)?;
        }
        clock.advance(SECOND / 100);
    }
    let (bytes, stats) = (resident()?.saturating_sub(before), store.stats());
    anyhow::ensure!(stats.keys == case.keys, "{} keys of {}", stats.keys, case.keys);
    println!(
        "{:<34} {:>9} keys {:>7.1} bytes per key, {:>6.1} MB total",
        case.name,
        stats.keys,
        bytes as f64 / stats.keys as f64,
        bytes as f64 / 1e6,
    );
    Ok(())
}

fn charge(
    store: &MemoryStore<Arc<ManualClock>>,
    plan: &Arc<Plan>,
    user: &str,
    hold: &str,
) -> anyhow::Result<()> {
    let entries = [("account", user)];
    let charge = Charge {
        key: Key { domain: "shop", entries: &entries },
        plan,
        op: Op::Take(1),
        hold: Some(hold),
        role: Role::Enforced,
    };
    let batch = Batch::new(slice::from_ref(&charge), Duration::MAX);
    let mut answers = Answers::new();
    let _ = pin!(store.charge(&batch, &mut answers)).poll(&mut Context::from_waker(Waker::noop()));
    let allowed =
        answers.iter().all(|answer| answer.as_ref().is_ok_and(|decision| decision.allowed));
    anyhow::ensure!(allowed, "{user} was denied");
    Ok(())
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> anyhow::Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    Ok(kilobytes.context("no VmRSS in /proc/self/status")? * 1024)
}
