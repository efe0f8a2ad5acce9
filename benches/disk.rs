//! What the store on disk costs: latencies of charges beside those of the memory store, the bytes of a
//! directory, the time to load it, and that it shrinks.
//!
//! ```text
//! cargo bench --package weir-benches --bench disk -- --latency              # 100 000 changed keys a second, for 20 s each
//! cargo bench --package weir-benches --bench disk -- --keys 50000000        # in memory about 2.7 GB
//! cargo bench --package weir-benches --bench disk -- --long-log             # one key with a log of 15 MB, saved every second
//! ```

use std::fs;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use weir_common::clock::{Clock, ManualClock, SystemClock};
use weir_limit::{Algorithm, Limit, Op, Plan, SECOND, SlidingLog, Unit};
use weir_store::disk::{DiskOptions, DiskStore};
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Charge, Key, Operations, Role, Store};

/// Keys that change in a second, and how many take turns.
const KEYS_PER_SECOND: u64 = 100_000;
const KEYS: u64 = 1_000_000;

const RUN: Duration = Duration::from_secs(20);

fn plan(unit: Unit) -> Arc<Plan> {
    Arc::new(Plan::new(Limit::fixed_window(1_000_000, unit, 1).into_iter().collect()))
}

fn charge(store: &impl Store, plan: &Arc<Plan>, key: u64) {
    let value = key.to_string();
    let entries = [("key", value.as_str())];
    let key = Key { domain: "bench", entries: &entries };
    let one = Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    let batch = Batch::new(slice::from_ref(&one), Duration::ZERO);
    let mut answers = Answers::new();
    store.charge(&batch, &mut answers).now_or_never().expect("nothing to wait for");
    assert!(answers[0].as_ref().is_ok_and(|it| it.allowed));
}

/// Charges at a steady rate and returns the latencies in nanoseconds, in order.
fn latencies(store: &impl Store) -> Vec<u64> {
    let plan = plan(Unit::Year);
    let start = Instant::now();
    let interval = Duration::from_secs(1) / KEYS_PER_SECOND as u32;
    let mut latencies = Vec::new();
    let mut due = Duration::ZERO;
    let mut key = 0;
    while due < RUN {
        while start.elapsed() < due {
            std::hint::spin_loop();
        }
        let before = Instant::now();
        charge(store, &plan, key % KEYS);
        latencies.push(before.elapsed().as_nanos() as u64);
        key += 1;
        // After an interruption, keys are not caught up with: their latency is not the store's.
        due = (due + interval).max(start.elapsed().saturating_sub(Duration::from_millis(1)));
    }
    latencies.sort_unstable();
    latencies
}

fn print_latencies(name: &str, latencies: &[u64]) {
    let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let charges = latencies.len();
    println!(
        "{name}: {charges} charges, p50 {} ns, p99 {} ns, p99.9 {} ns, p99.99 {} ns, max {} us",
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
        percentile(0.9999),
        percentile(1.0) / 1000
    );
}

fn open<C: Clock>(clock: C, path: &Path, max_keys: usize) -> DiskStore<C> {
    let options = DiskOptions { path: path.to_owned(), sync: Duration::from_secs(1), max_keys };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store =
        DiskStore::open(clock, options, &weir_common::threads::Failures::default()).unwrap();
    runtime.block_on(store.connect());
    store
}

fn finish<C: Clock>(store: DiskStore<C>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.finish());
}

fn bytes(path: &Path) -> u64 {
    fs::read_dir(path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn measure_latency(path: &Path) {
    for round in 0..3 {
        let memory = MemoryStore::new(SystemClock::new(), 10_000_000);
        print_latencies("memory", &latencies(&memory));
        let path = path.join(round.to_string());
        let disk = open(SystemClock::new(), &path, 10_000_000);
        print_latencies("disk", &latencies(&disk));
        finish(disk);
    }
}

#[expect(clippy::disallowed_methods, reason = "the thread that saves needs a core, too")]
fn pause() {
    std::thread::sleep(Duration::from_micros(200));
}

/// Charges a key whose log is saved meanwhile, and prints the longest charge of each second.
fn measure_long_log(path: &Path) {
    const HITS: u32 = 2_000_000;
    let clock = Arc::new(ManualClock::new(1_800_000_000 * SECOND));
    let algorithm = Algorithm::SlidingLog(SlidingLog { n: HITS, period: 31_536_000 * SECOND });
    let limit = Limit::fixed_window(HITS, Unit::Year, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { charge_denied: false, algorithm, ..limit }]));
    let one_hit = |store: &DiskStore<_>| {
        clock.advance(1_000);
        charge(store, &plan, 1);
    };
    let store = open(clock.clone(), path, 1_000);
    (0..HITS - 100_000).for_each(|_| one_hit(&store));
    let mut longest = Vec::new();
    for _ in 0..20 {
        let (start, mut worst) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < Duration::from_secs(1) {
            let before = Instant::now();
            one_hit(&store);
            worst = worst.max(before.elapsed());
            pause();
        }
        longest.push(worst);
    }
    longest.sort_unstable();
    println!("longest charge of each second: {longest:.2?}");
    finish(store);
}

fn measure_size(path: &Path, keys: u64) {
    let clock = Arc::new(ManualClock::new(1_800_000_000 * SECOND));
    let max_keys = keys as usize * 5 / 4;
    let plan = plan(Unit::Hour);
    let store = open(clock.clone(), path, max_keys);
    let start = Instant::now();
    (0..keys).for_each(|key| charge(&store, &plan, key));
    println!("{keys} keys charged in {:.1?}", start.elapsed());
    let start = Instant::now();
    finish(store);
    println!("finished in {:.1?}: {} bytes", start.elapsed(), bytes(path));
    for run in ["live", "expired", "after"] {
        if run == "expired" {
            clock.advance(3600 * SECOND);
        }
        let start = Instant::now();
        let store = open(clock.clone(), path, max_keys);
        let took = start.elapsed();
        let per_million = took.as_secs_f64() * 1e6 / keys as f64;
        println!("{run}: loaded in {took:.2?}, {per_million:.3} s per million keys");
        if run == "expired" {
            let start = Instant::now();
            while bytes(path) > 1 << 20 && start.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
            println!("shrunk to {} bytes after {:.1?}", bytes(path), start.elapsed());
        }
        finish(store);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = tempfile::tempdir_in(".").unwrap();
    if arguments.iter().any(|argument| argument == "--latency") {
        measure_latency(directory.path());
    }
    if arguments.iter().any(|argument| argument == "--long-log") {
        measure_long_log(directory.path());
    }
    let keys = arguments.iter().skip_while(|argument| *argument != "--keys").nth(1);
    if let Some(keys) = keys.and_then(|keys| keys.parse().ok()) {
        measure_size(directory.path(), keys);
    }
}
