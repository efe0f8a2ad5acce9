//! Random schedules: repeating denials answers as the store alone does.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use weir_limit::{BucketedWindow, Calendar, SlidingLog, SlidingWindow, UpTo};

#[derive(Clone, Debug)]
struct Step {
    pass: Micros,
    together: bool,
    charges: Vec<(usize, usize, Op)>,
}

const KEYS: [&str; 2] = ["a", "b"];
const PLANS: usize = 20;

fn plans() -> [Arc<Plan>; PLANS] {
    let minute = 60 * SECOND;
    let lone = |algorithm, n| {
        let limit = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
        vec![Limit { charge_denied: false, algorithm, ..limit }]
    };
    let fixed =
        |n| lone(Algorithm::FixedWindow(FixedWindow { n, period: minute, calendar: None }), n);
    let log = |n, period| lone(Algorithm::SlidingLog(SlidingLog { n, period }), n);
    let year = 365 * 86_400 * SECOND;
    let calendar = |n| {
        let calendar = Calendar::new(Unit::Day, "Europe/Berlin").ok().map(Arc::new);
        Algorithm::FixedWindow(FixedWindow { n, period: 86_400 * SECOND, calendar })
    };
    let sliding = |n| Algorithm::SlidingWindow(SlidingWindow { n, period: minute });
    let ring = BucketedWindow { n: 5, period: minute, buckets: 6 };
    let bucket = |strict| {
        let (capacity, amount, interval) = (4, 2, 10 * SECOND);
        let bucket = TokenBucket { capacity, amount, interval, strict, max_debt: 0 };
        lone(Algorithm::TokenBucket(bucket), 4)
    };
    let plans = [
        // The first two count together.
        fixed(3),
        fixed(5),
        lone(sliding(5), 5),
        [log(2, SECOND), log(5, minute)].concat(),
        lone(Algorithm::BucketedWindow(ring), 5),
        bucket(false),
        // Never repeated: a denial starts the wait over.
        [bucket(true), fixed(9)].concat(),
        lone(Algorithm::Gcra(Gcra::new(3, minute, 3, 0).unwrap()), 3),
        [fixed(6), bucket(false)].concat(),
        [fixed(5), log(8, 3_600 * SECOND)].concat(),
        lone(Algorithm::Gcra(Gcra::new(120, 2 * minute, 10, 0).unwrap()), 120),
        // In ticks of a millisecond, and of a second.
        lone(Algorithm::Gcra(Gcra::new(7, year, 200, 0).unwrap()), 7),
        lone(Algorithm::Gcra(Gcra::new(10_007, year, 1_000_000, 0).unwrap()), 10_007),
        lone(calendar(4), 4),
        [fixed(2), lone(calendar(9), 9), fixed(7)].concat(),
        [lone(sliding(6), 6), lone(Algorithm::BucketedWindow(ring), 5), log(9, minute)].concat(),
        // Nothing is allowed.
        fixed(0),
        lone(Algorithm::Gcra(Gcra::new(0, 3 * minute, 3, 0).unwrap()), 0),
        [lone(sliding(0), 0), fixed(5)].concat(),
        // It charges denied hits, and its counter misses some: nothing is refunded to it.
        vec![Limit::fixed_window(3, Unit::Hour, 1).unwrap()],
    ];
    plans.map(|limits| Arc::new(Plan::new(limits)))
}

fn up_to((least, most, share): (u32, u32, u32)) -> Op {
    Op::UpTo(UpTo { least, most, share: NonZeroU32::new(share).unwrap() })
}

fn schedules() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![
        3 => Just(0),
        3 => 0..SECOND,
        3 => 0..30 * SECOND,
        1 => 0..4_000 * SECOND,
        1 => 0..86_400 * SECOND,
    ];
    let op = prop_oneof![
        1 => Just(Op::Take(0)),
        8 => (1_u64..5).prop_map(Op::Take),
        3 => prop_oneof![Just(10), Just(200), Just(1_000_000), 1_u64..12].prop_map(Op::Take),
        1 => (1_u64..4).prop_map(Op::Refund),
        1 => (1_u32..4).prop_map(|hits| Op::Add { hits, limits: u16::MAX }),
        2 => (0_u32..4, 0_u32..6, 1_u32..3).prop_map(up_to),
    ];
    let charge = (0..KEYS.len(), 0..PLANS, op).prop_map(|(key, plan, op)| match op {
        Op::Refund(_) if plan == PLANS - 1 => (key, plan, Op::Take(0)),
        _ => (key, plan, op),
    });
    let charges = prop::collection::vec(charge, 1..5);
    let step = (pass, prop::bool::weighted(0.1), charges);
    let step = step.prop_map(|(pass, together, charges)| Step { pass, together, charges });
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn answers_as_the_store_alone(steps in schedules()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ([store, _], clock) = replicas(Duration::from_secs(86_400));
        let alone = MemoryStore::new(clock.clone(), 10_000);
        let plans = plans();
        let entries = KEYS.map(|value| [("key", value)]);
        for step in &steps {
            clock.advance(step.pass);
            let charge_of = |&(key, plan, op): &(usize, usize, Op)| Charge {
                key: Key { domain: "d", entries: &entries[key] },
                plan: &plans[plan],
                op,
                hold: None,
                role: Role::Enforced,
            };
            let charges: Vec<Charge<'_>> = step.charges.iter().map(charge_of).collect();
            let ask = async || {
                let expected = charge(&alone, &charges, step.together).await;
                (charge(&store, &charges, step.together).await, expected)
            };
            let (actual, expected) = runtime.block_on(ask());
            for ((actual, expected), of) in zip(zip(actual, expected), &step.charges) {
                prop_assert_eq!(shown(actual, of.1), shown(expected, of.1), "{:?}", step);
            }
        }
    }
}

/// The part of an answer that is visible to clients or in metrics.
fn shown(decision: Decision, plan: usize) -> Decision {
    // After a denial nothing remains. If the store did not deny, all hits count as over the limit,
    // whatever was used before.
    let remaining = if decision.allowed { decision.remaining } else { 0 };
    let used_before = if decision.allowed && plan < PLANS - 1 { decision.used_before } else { 0 };
    Decision { remaining, used_before, source: Source::Store, ..decision }
}
