//! Time of a decision in a program's own process, by a gcra limit in memory, beside governor: the same keys, one thread.
//!
//! `cargo bench --package weir-benches --bench library` prints nanoseconds and ratios.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use governor::{Quota, RateLimiter};
use weir_library::rules::{self, RuleFile, RuleSet};
use weir_library::store::MemoryStore;
use weir_library::{Descriptor, Holds, Limiter, LimiterOptions, Request, SystemClock};

const KEYS: usize = 10_000;

/// Decisions are timed in rounds of one for each key. The contenders take turns, and the fastest round counts, so that
/// what else the machine does changes little.
const ROUNDS: usize = 200;

/// Every hit passes.
const RULES: &str = "domain: bench
descriptors:
  - key: user
    rate_limit: { algorithm: gcra, unit: second, requests_per_unit: 1000000 }
";
const PER_SECOND: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();

/// How long the store may take.
const STORE_TIMEOUT: Duration = Duration::from_millis(100);

/// Decides about a user; returns whether the hit passes.
type Decide<'a> = &'a dyn Fn(&String) -> bool;

type Memory = Limiter<MemoryStore<SystemClock>>;

fn compile() -> RuleSet {
    let file = RuleFile { name: "bench.yaml".to_owned(), text: RULES.to_owned() };
    let (rules, problems) = RuleSet::compile(&[file], &rules::RuleOptions::default(), None);
    assert!(problems.is_empty(), "{problems:?}");
    rules
}

fn decide(limiter: &Memory, rules: &RuleSet, user: &str) -> bool {
    let descriptors = &[Descriptor { entries: &[("user", user)], ..Descriptor::default() }];
    let request = Request { domain: "bench", descriptors, ..Request::default() };
    let mut holds = Holds::default();
    let decided = limiter.decide(Some(rules), &request, STORE_TIMEOUT, &mut holds).now_or_never();
    let Some(Ok(decision)) = decided else { panic!("memory answers at once") };
    !decision.over_limit
}

fn main() {
    let keys: Vec<String> = (0..KEYS).map(|number| format!("user-{number}")).collect();
    let governor = RateLimiter::keyed(Quota::per_second(PER_SECOND));
    let (rules, store) = (compile(), MemoryStore::new(SystemClock::new(), 1_000_000));
    let limiter = Limiter::new(store, LimiterOptions::default());

    let contenders: [(&str, Decide<'_>); 2] = [
        ("governor 0.10, check_key", &|key| governor.check_key(key).is_ok()),
        ("weir, decide", &|key| decide(&limiter, &rules, key)),
    ];
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for ((_, passes), fastest) in contenders.iter().zip(&mut fastest) {
            let start = Instant::now();
            assert!(keys.iter().all(|key| black_box(passes(black_box(key)))));
            *fastest = start.elapsed().min(*fastest);
        }
    }
    for ((name, _), time) in contenders.iter().zip(fastest) {
        let ratio = time.as_secs_f64() / fastest[0].as_secs_f64();
        println!("{name}: {:.0} ns, {ratio:.1} times", time.as_nanos() as f64 / KEYS as f64);
    }
}
