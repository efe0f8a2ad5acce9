//! Measures the resident memory per key of the memory store at one and at ten million keys, and the
//! longest single operation while the store grows, at the cap, and while all keys expire. Linux only.
//! The first argument replaces the ten million.

use std::fmt::Write as _;
use std::future::Future as _;
use std::ops::Range;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_common::clock::ManualClock;
use weir_limit::{Limit, Op, Plan, SECOND, Unit};
use weir_store::memory::MemoryStore;
use weir_store::{Answers, Batch, Charge, Key, Role, Store};

const MILLION: usize = 1_000_000;

fn main() -> anyhow::Result<()> {
    let max_keys = std::env::args().nth(1).map_or(Ok(10 * MILLION), |keys| keys.parse())?;
    let before = resident()?;
    let clock = Arc::new(ManualClock::new(1_700_006_400 * SECOND));
    let mut driver = Driver::new(&clock, max_keys)?;
    println!("empty, for up to {max_keys} keys: {} bytes", resident()?.saturating_sub(before));

    println!("the machine alone, for ten seconds: {}", idle(Duration::from_secs(10))?);

    let mut from = 0;
    for to in [MILLION, 3 * MILLION / 2, 2 * MILLION, 5 * MILLION, max_keys] {
        let to = to.min(max_keys);
        let longest = driver.charge_all(from..to, Longest::new()?)?;
        from = to;
        let (stats, bytes) = (driver.store.stats(), resident()?.saturating_sub(before));
        println!(
            "{:>9} keys: {:.1} bytes per key resident, {:.1} in tables; {longest}",
            stats.keys,
            bytes as f64 / stats.keys as f64,
            stats.table_bytes as f64 / stats.keys as f64,
        );
    }

    let longest = driver.charge_all(max_keys..max_keys + 2 * MILLION, Longest::new()?)?;
    println!("two million more at the cap: {longest}; {:?}", driver.store.stats());
    println!("resident: {} bytes per key", resident()?.saturating_sub(before) / max_keys);

    clock.advance(86_400 * SECOND);
    let longest = thread::scope(|scope| {
        let mut other = Driver { store: driver.store.clone(), ..Driver::new(&clock, 1)? };
        let sweeping = scope.spawn(|| {
            let start = Instant::now();
            driver.store.sweep(driver.store.shards());
            start.elapsed()
        });
        let mut longest = Longest::new()?;
        let mut key = 0;
        while !sweeping.is_finished() {
            longest = other.charge_all(key..key + 1_000, longest)?;
            key += 1_000;
        }
        println!("all expired: swept in {:?}", sweeping.join().unwrap_or_default());
        anyhow::Ok(longest)
    })?;
    println!("during the sweep: {longest}; {:?}", driver.store.stats());
    println!("resident: {} bytes more than at the start", resident()?.saturating_sub(before));
    Ok(())
}

/// Times operations that do nothing: the longest of the others cannot be known more precisely.
fn idle(time: Duration) -> anyhow::Result<Longest> {
    let mut longest = Longest::new()?;
    while longest.total < time {
        let start = Instant::now();
        for i in 0..300 {
            std::hint::black_box(i);
        }
        longest.note(start.elapsed())?;
    }
    Ok(longest)
}

struct Driver {
    store: Arc<MemoryStore<Arc<ManualClock>>>,
    plan: Arc<Plan>,
    value: String,
}

impl Driver {
    fn new(clock: &Arc<ManualClock>, max_keys: usize) -> anyhow::Result<Driver> {
        let limit = Limit::fixed_window(100, Unit::Day, 1).context("a day is too long")?;
        let store = Arc::new(MemoryStore::new(clock.clone(), max_keys));
        Ok(Driver { store, plan: Arc::new(Plan::new(vec![limit])), value: String::new() })
    }

    /// Charges each key once.
    fn charge_all(&mut self, keys: Range<usize>, mut longest: Longest) -> anyhow::Result<Longest> {
        for key in keys {
            self.value.clear();
            write!(self.value, "user-{key}")?;
            let entries = [("account", self.value.as_str())];
            let charge = Charge {
                key: Key { domain: "shop", entries: &entries },
                plan: &self.plan,
                op: Op::Take(1),
                hold: None,
                role: Role::Enforced,
            };
            let batch = Batch::new(slice::from_ref(&charge), Duration::MAX);
            let mut answers = Answers::new();
            let start = Instant::now();
            let _ = pin!(self.store.charge(&batch, &mut answers))
                .poll(&mut Context::from_waker(Waker::noop()));
            longest.note(start.elapsed())?;
        }
        Ok(longest)
    }
}

/// Durations of operations. Those over 100 µs during which the kernel ran another thread on this core
/// are only counted, because they measure the machine.
struct Longest {
    total: Duration,
    count: u32,
    /// The five longest, longest first.
    top: [Duration; 5],
    over_100_us: u32,
    interrupted: u32,
    switches: u64,
}

impl Longest {
    fn new() -> anyhow::Result<Longest> {
        let switches = status("/proc/thread-self/status", "nonvoluntary_ctxt_switches:")?;
        let (total, top) = Default::default();
        Ok(Longest { total, count: 0, top, over_100_us: 0, interrupted: 0, switches })
    }

    fn note(&mut self, took: Duration) -> anyhow::Result<()> {
        self.total += took;
        self.count += 1;
        if took > Duration::from_micros(100) {
            let switches = status("/proc/thread-self/status", "nonvoluntary_ctxt_switches:")?;
            if switches != self.switches {
                self.switches = switches;
                self.interrupted += 1;
                return Ok(());
            }
            self.over_100_us += 1;
        }
        if took > self.top[4] {
            self.top[4] = took;
            self.top.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(())
    }
}

impl std::fmt::Display for Longest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Longest { top, over_100_us, interrupted, .. } = self;
        let mean = self.total / self.count.max(1);
        write!(
            f,
            "mean {mean:?}, longest {top:.0?}, {over_100_us} over 100 µs, {interrupted} interrupted"
        )
    }
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> anyhow::Result<usize> {
    Ok(status("/proc/self/status", "VmRSS:")? as usize * 1024)
}

/// Returns a number from a status file of the kernel.
fn status(file: &str, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(file)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {name} in {file}"))
}
