//! The counters of rules whose hits are not split as the reference splits them: all hits of a descriptor are within or
//! over, in every store.

use proptest::prelude::*;
use servers::Server;
use weir_redis::{Endpoint, RedisOptions as StoreOptions, RedisStore, Topology};
use weir_store::Store;
use weir_store::local::{Local, LocalOptions};

use super::*;

/// Limits of all algorithms and settings, by the key of their rule.
const LIMITS: [(&str, &str); 14] = [
    ("short", "rate: 300/15m, burst: 2"),
    ("gcra_above", "rate: 2/h, burst: 6"),
    ("gcra_debt", "rate_limits: [{rate: 9/h, burst: 4, charge_denied: true, max_debt: 3}]"),
    ("token", "rate_limit: {algorithm: token_bucket, rate: 100/h, burst: 3}"),
    ("token_above", "rate_limit: {algorithm: token_bucket, rate: 3/h, burst: 7}"),
    (
        "token_debt",
        "rate_limit: {algorithm: token_bucket, rate: 9/h, burst: 4, charge_denied: true, max_debt: 2}",
    ),
    ("strict", "rate_limit: {algorithm: token_bucket, rate: 9/h, burst: 4, strict: true}"),
    ("sliding", "rate_limit: {algorithm: sliding_window, rate: 5/h}"),
    ("log", "rate_limit: {algorithm: sliding_log, rate: 5/h}"),
    ("buckets", "rate_limit: {algorithm: bucketed_window, rate: 5/h, charge_denied: true}"),
    ("fixed", "rate_limit: {rate: 5/h, charge_denied: false}"),
    ("flight", "rate_limit: {algorithm: concurrency, requests_per_unit: 3}"),
    ("several", "rates: [4/h, 6/d]"),
    ("watched", "rate_limits: [{rate: 3/h, shadow_mode: true}, {rate: 6/d}]"),
];

/// What a domain with `charge: together` does not take, and what it has instead.
const TOGETHER: [(&str, &str); 5] = [
    (", charge_denied: true, max_debt: 3", ""),
    (", charge_denied: true, max_debt: 2", ""),
    (", charge_denied: true", ""),
    (", charge_denied: false", ""),
    ("algorithm: concurrency, requests_per_unit: 3", "rate: 3/h"),
];

/// The most hits that each admits at once.
const CAPACITIES: [u64; 14] = [2, 6, 4, 3, 7, 4, 4, 5, 5, 5, 5, 3, 4, 6];

/// Rules of the domains `d`, `shadow`, whose rules are in shadow mode, and `together`.
fn rules() -> RuleSet {
    let domain = |name: &str, setting: &str, flag: &str| {
        let rules = LIMITS.map(|(key, limit)| {
            let mut limit = limit.to_owned();
            for (each, together) in TOGETHER.iter().filter(|_| !setting.is_empty()) {
                limit = limit.replace(each, together);
            }
            format!("  - {{key: {key}, {limit}{flag}}}\n")
        });
        let text = format!("domain: {name}\n{setting}descriptors:\n{}", rules.concat());
        RuleFile { name: format!("{name}.yaml"), text }
    };
    let files = [
        domain("d", "", ""),
        domain("shadow", "", ", shadow_mode: true"),
        domain("together", "charge: together\n", ""),
    ];
    let near_limit_ratio = Some(crate::LimiterOptions::default().near_limit_ratio);
    let (rules, problems) =
        RuleSet::compile(&files, &RuleOptions { near_limit_ratio, ..RuleOptions::default() }, None);
    assert_eq!(problems, []);
    rules
}

/// Hits that were sent to a rule, and admitted or denied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sent {
    within: u64,
    over: u64,
}

/// One request: the rules of its descriptors, and their hits.
type Asked = (usize, usize, u64);

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let hits = prop_oneof![4 => Just(1_u64), 2 => 2_u64..4, 1 => Just(0), 1 => 5_u64..9];
    prop::collection::vec((0..LIMITS.len(), 0..LIMITS.len(), hits), 1..60)
}

/// Sends requests, and compares what was counted with the answers.
async fn counts_what_it_answers<S: Store>(store: S, asked: &[Asked], value: &str) {
    let (rules, limiter) = (rules(), Limiter::new(store, crate::LimiterOptions::default()));
    let mut sent = [[Sent::default(); LIMITS.len()]; 3];
    for &(first, second, hits) in asked {
        for (at, domain) in ["d", "shadow", "together"].into_iter().enumerate() {
            let entries = [first, second].map(|rule| [(LIMITS[rule].0, value)]);
            let descriptor =
                |entries| Descriptor { entries, hits_addend: Some(hits), ..Descriptor::default() };
            let descriptors = [descriptor(&entries[0][..]), descriptor(&entries[1][..])];
            // One key twice in a request charged together has one decision, as `conformance` tests.
            let count = if first == second { 1 } else { 2 };
            let request =
                Request { domain, descriptors: &descriptors[..count], ..Request::default() };
            let (timeout, holds) = (Duration::from_secs(10), &mut Holds::default());
            let decision = limiter.decide(Some(&rules), &request, timeout, holds).await.unwrap();
            for (rule, status) in [first, second].into_iter().zip(&decision.statuses) {
                let sent = &mut sent[at][rule];
                match status.over_limit {
                    true => sent.over += hits,
                    false if at == 2 && decision.over_limit => {}
                    false => sent.within += hits,
                }
            }
        }
    }
    let stats = |domain: &str, key: &str| {
        let name = format!("{domain}.{key}");
        let rule = rules.rules().find(|rule| *rule.name == *name).expect("the rule");
        let s = &rule.stats;
        [&s.total_hits, &s.over_limit, &s.near_limit, &s.within_limit, &s.shadow_mode]
            .map(|count| count.load(Relaxed))
    };
    for (rule, (key, _)) in LIMITS.into_iter().enumerate() {
        for (at, domain) in ["d", "shadow", "together"].into_iter().enumerate() {
            let [total, over, near, within, shadow] = stats(domain, key);
            assert_eq!(within + over, total, "{domain}.{key}");
            assert!(near <= within, "{domain}.{key}: {near} of {within}");
            let mut expected = sent[at][rule];
            if domain == "shadow" {
                // The same requests are judged alike, whether they are denied or not.
                expected = sent[0][rule];
                assert_eq!(shadow, over, "{domain}.{key}");
            }
            if key == "watched" {
                // Its first limit admits hits which it counts as over.
                expected = Sent { within: expected.within.min(within), over: total - within };
            }
            assert_eq!(Sent { within, over }, expected, "{domain}.{key}");
        }
    }
}

fn memory() -> (MemoryStore<Arc<ManualClock>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW));
    (MemoryStore::new(clock.clone(), 1_000), clock)
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

proptest! {
    #[test]
    fn hits_are_within_or_over_in_memory(asked in asked()) {
        block_on(counts_what_it_answers(memory().0, &asked, "v"));
    }

    #[test]
    fn hits_are_within_or_over_where_denials_are_repeated(asked in asked()) {
        let (store, clock) = memory();
        let options = LocalOptions { deny_locally_for: Duration::from_secs(60), ..LocalOptions::default() };
        block_on(counts_what_it_answers(Local::new(store, clock, options), &asked, "v"));
    }
}

#[test]
fn hits_are_within_or_over_in_redis() {
    let server = Server::start();
    let case = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(24));
    runner
        .run(&asked(), |asked| {
            case.set(case.get() + 1);
            let endpoint = Endpoint::Tcp("127.0.0.1".into(), server.port());
            block_on(async {
                for (is_local, name) in [(false, "store"), (true, "local")] {
                    let mut options = StoreOptions::new(Topology::Single(endpoint.clone()));
                    options.access.timeout = Duration::from_secs(10);
                    options.slow_after = Duration::from_secs(10);
                    let store = RedisStore::new(options);
                    store.answered().await;
                    let value = format!("{name}{}", case.get());
                    if is_local {
                        let clock = Arc::new(weir_common::clock::SystemClock::new());
                        let store = Local::new(store, clock, LocalOptions::default());
                        counts_what_it_answers(store, &asked, &value).await;
                    } else {
                        counts_what_it_answers(store, &asked, &value).await;
                    }
                }
            });
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_capacity_is_the_burst() {
    // The last rule has a limit in shadow mode, which admits what it counts as over.
    for ((key, _), capacity) in LIMITS.into_iter().zip(CAPACITIES).take(LIMITS.len() - 1) {
        let bench = Bench { rules: rules(), ..Bench::new(MINUTE) };
        let entries = [(key, "x")];
        for _ in 0..capacity + 1 {
            let descriptors = [Descriptor { entries: &entries, ..Default::default() }];
            bench.send(&descriptors, 0);
        }
        let [total, over, near, within, _] = bench.stats(&format!("d.{key}"));
        let near_from = (capacity as f32 * 0.8) as u64;
        assert_eq!((total, over, within), (capacity + 1, 1, capacity), "{key}");
        assert_eq!(near, capacity - near_from, "{key}");
    }
}
