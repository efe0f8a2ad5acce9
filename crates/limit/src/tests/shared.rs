//! Plans of one shape with other numbers on one key, as replicas have them while a rule changes.

use proptest::prelude::*;

use super::*;

const DAY: Micros = 86_400 * SECOND;
const MINUTE: Micros = 60 * SECOND;

/// A key that several plans charge, as a store keeps it.
#[derive(Clone)]
struct Key {
    now: Micros,
    state: State,
    packed: Packed,
    expires: Micros,
}

impl Key {
    fn new() -> Key {
        Key { now: NOON, state: State::default(), packed: Packed::default(), expires: 0 }
    }

    fn charge(&mut self, plan: &Plan, op: Op) -> Decision {
        if self.expires <= self.now {
            (self.state, self.packed) = (State::default(), Packed::default());
        }
        let charged = plan.charge(&mut self.state, self.now, op, Some("id"));
        if plan.packs() {
            assert_eq!(plan.charge_packed(&mut self.packed, self.now, op, None), charged);
        }
        // As the memory store does.
        self.expires = match op {
            Op::Take(1..) if charged.decision.allowed => charged.expires,
            Op::Refund(_) => charged.expires,
            _ => self.expires.max(charged.expires),
        };
        charged.decision
    }

    fn take(&mut self, plan: &Plan, hits: u64) -> bool {
        self.charge(plan, Op::Take(hits)).allowed
    }

    /// Returns how many hits single ones find allowed.
    fn admits(&mut self, plan: &Plan) -> u64 {
        (0..10_000).take_while(|_| self.take(plan, 1)).count() as u64
    }

    /// Asks the plans in turn, every 2.5 ms of 5 s. Returns how many hits were admitted.
    fn in_turn(&mut self, plans: &[Plan; 2]) -> u64 {
        let mut admitted = 0;
        for i in 0..2_000 {
            admitted += u64::from(self.take(&plans[i % 2], 1));
            self.now += 2_500;
        }
        admitted
    }
}

fn one(limit: Limit) -> Plan {
    Plan::new(vec![limit])
}

#[test]
fn two_replicas_of_a_gcra_keep_both_bursts_and_the_faster_rate() {
    for (plans, most) in [
        ([gcra(10, DAY, 50), gcra(10, DAY, 5)], 50),
        ([gcra(60, MINUTE, 20), gcra(600, MINUTE, 20)], 20 + 20 + 51),
        ([gcra(10, DAY, 5), gcra(1_000, DAY, 5)], 5 + 5 + 1),
        ([gcra(7, DAY, 50), gcra(3_000_001, DAY, 5)], 50 + 5 + 174),
    ] {
        let plans = plans.map(one);
        let admitted = Key::new().in_turn(&plans);
        assert!(admitted <= most, "{admitted} of {most}: {plans:?}");
    }
}

#[test]
fn looks_and_denials_of_other_numbers_free_nothing() {
    let slow = bucket(5, 10, DAY);
    let fast = Limit { algorithm: bucket(5, 1_000, DAY).algorithm, ..slow.clone() };
    for (before, after) in [(gcra(10, DAY, 5), gcra(1_000, DAY, 5)), (slow, fast)] {
        let (before, after) = (one(before), one(after));
        for op in [Op::Take(0), Op::Take(1), Op::Take(u64::MAX)] {
            let mut key = Key::new();
            assert_eq!(key.admits(&before), 5);
            let unseen = key.clone();
            assert!(!key.charge(&after, op).allowed);
            assert_eq!(key.state, unseen.state, "{op:?}");
            assert_eq!(key.packed, unseen.packed, "{op:?}");
            assert_eq!(key.admits(&before), 0, "{op:?}: {before:?}");
        }
    }
}

/// What has come by one amount is not stored by a look of a larger one.
#[test]
fn a_look_of_another_amount_refills_nothing() {
    let slow = one(bucket(100, 1, SECOND));
    let fast = one(bucket(100, 90, SECOND));
    for op in [Op::Take(0), Op::Take(200)] {
        let mut key = Key::new();
        assert_eq!(key.admits(&slow), 100);
        key.now += 2 * SECOND;
        assert_eq!(key.charge(&fast, op).allowed, op == Op::Take(0));
        assert_eq!(key.admits(&slow), 2, "{op:?}");
    }
}

#[test]
fn beyond_the_top_waits_are_exact() {
    for (large, small) in [
        (gcra(10, DAY, 50), gcra(10, DAY, 5)),
        (gcra(10, DAY, 50), gcra(999_983, DAY, 7)),
        (gcra(1, MINUTE, 1_000), gcra(3_000_017, MINUTE, 3)),
    ] {
        let (large, small) = (one(large), one(small));
        let mut key = Key::new();
        key.admits(&large);
        let denied = key.charge(&small, Op::Take(2));
        let wait = denied.retry_after.expect("a wait");
        assert!(!denied.allowed && denied.remaining == 0);
        let after = |wait| Key { now: key.now + wait, ..key.clone() }.take(&small, 2);
        assert!(after(wait) && !after(wait - 1), "{small:?}");
    }
}

#[test]
fn a_refund_beyond_the_top_lowers_by_what_the_hits_raised() {
    for (n, period, refund) in [(10, DAY, 3), (7, DAY, 4), (999_983, DAY, 9), (10, DAY, 49)] {
        let (large, small) = (one(gcra(10, DAY, 50)), one(gcra(n, period, 5)));
        let mut key = Key::new();
        assert_eq!(key.admits(&large), 50);
        let before = key.charge(&small, Op::Take(0)).reset_after;
        let after = key.charge(&small, Op::Refund(refund)).reset_after;
        let ticks = refund * period / u64::from(n);
        assert!((ticks..=ticks + 1).contains(&(before - after)), "{n}: {before} {after}");
        // Together as one after the other.
        let mut once = key.clone();
        once.charge(&small, Op::Refund(2));
        key.charge(&small, Op::Refund(1));
        key.charge(&small, Op::Refund(1));
        assert_eq!(key.state, once.state);
    }
}

#[test]
fn a_refund_to_a_limit_of_zero_frees_nothing() {
    let (limit, zero) = (one(gcra(10, DAY, 5)), one(gcra(0, DAY, 5)));
    let mut key = Key::new();
    assert_eq!(key.admits(&limit), 5);
    let used = key.state.clone();
    key.charge(&zero, Op::Refund(3));
    assert_eq!(key.state, used);
    assert_eq!(key.admits(&limit), 0);
}

/// The state of other numbers too is blocked for at most one period more.
#[test]
fn a_clock_that_stepped_back_heals_within_one_period() {
    for (written, asking) in [
        (gcra(10, DAY, 5), gcra(10, DAY, 5)),
        (gcra(10, DAY, 50), gcra(10, DAY, 5)),
        (gcra(10, DAY, 5), gcra(1_000, DAY, 5)),
        (gcra(60, MINUTE, 1), gcra(60, MINUTE, 20)),
    ] {
        let (written, asking) = (one(written), one(asking));
        for back in [SECOND, MINUTE / 2, MINUTE, DAY / 2, DAY, DAY + SECOND, 400 * DAY, 9_000 * DAY]
        {
            let mut key = Key::new();
            key.admits(&written);
            let reset = key.charge(&asking, Op::Take(0)).reset_after;
            let left = key.charge(&asking, Op::Take(0)).remaining;
            key.now -= back;
            let look = key.charge(&asking, Op::Take(0));
            let Algorithm::Gcra(gcra) = &asking.limits()[0].algorithm else { unreachable!() };
            assert!(look.reset_after >= reset && look.remaining <= left, "{back}: {asking:?}");
            assert!(look.reset_after <= reset + gcra.period(), "{back}: {asking:?}");
            // Time goes on from there.
            key.now += look.reset_after;
            assert_eq!(key.charge(&asking, Op::Take(0)).remaining, gcra.burst());
        }
    }
}

/// All bits of the remainder are needed: nothing is known about the clock, and nothing comes back.
#[test]
fn without_room_for_what_is_known_nothing_comes_back() {
    let plan = one(gcra(3_000_017, DAY, 50));
    let mut key = Key::new();
    assert!(key.take(&plan, 50));
    let reset = key.charge(&plan, Op::Take(0)).reset_after;
    key.now -= 3 * DAY;
    assert_eq!(key.charge(&plan, Op::Take(0)).reset_after, reset + 3 * DAY);
}

/// Two limits of one shape, and what they may admit together.
#[derive(Clone, Debug)]
struct Pair {
    plans: [Plan; 2],
    bursts: f64,
    /// Hits a microsecond.
    rate: f64,
    period: Micros,
}

fn pair() -> impl Strategy<Value = Pair> {
    let n = || prop_oneof![4 => 1_u32..9, 1 => 1_u32..1_000];
    let burst = || prop_oneof![4 => 1_u32..9, 1 => 1_u32..60];
    let period = prop_oneof![Just(SECOND), Just(7 * SECOND), Just(MINUTE)];
    let kind = (0_usize..9, any::<bool>(), any::<bool>());
    (kind, [n(), n()], [burst(), burst()], [0_u32..5, 0..5], period).prop_map(
        |((kind, denied, strict), n, bursts, debts, period)| {
            let first = n[0];
            let limits = [0, 1].map(|i| {
                let (n, burst, max_debt) = (n[i], bursts[i], if denied { debts[i] } else { 0 });
                let algorithm = match kind {
                    0 => Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }),
                    1 => Algorithm::SlidingWindow(SlidingWindow { n, period }),
                    2 => Algorithm::SlidingLog(SlidingLog { n, period }),
                    3 => Algorithm::BucketedWindow(BucketedWindow { n, period, buckets: 5 }),
                    4 => Algorithm::TokenBucket(TokenBucket {
                        capacity: burst,
                        amount: n,
                        interval: period,
                        strict,
                        max_debt,
                    }),
                    5 | 8 => Algorithm::Gcra(Gcra::new(n, period, burst, max_debt).expect("fits")),
                    6 => Algorithm::Concurrency(Concurrency {
                        n,
                        timeout: period,
                        hold_id: strict.then(|| "id".into()),
                    }),
                    // Its numbers are part of its shape.
                    _ => {
                        let (max, refill, interval) = (bursts[0], first.min(8), period / 1_000);
                        let strict = strict && i == 0;
                        Algorithm::ReduceBucket(ReduceBucket {
                            max,
                            refill,
                            interval,
                            strict,
                            at: None,
                        })
                    }
                };
                limit(n, algorithm, denied && kind != 2)
            });
            let (amount, n) = (n[0].max(n[1]), n.map(f64::from));
            let bursts = match kind {
                4 | 7 => f64::from(bursts[0].max(bursts[1]) + amount),
                // To within a tick for each change, here well below a hit.
                5 | 8 => f64::from(bursts[0] + bursts[1]) + 1e-2,
                _ => 2.0 * n[0].max(n[1]),
            };
            Pair { plans: limits.map(one), bursts, rate: n[0].max(n[1]) / period as f64, period }
        },
    )
}

/// A wait, which plan, and the hits; 0 looks.
fn asked(period: Micros) -> impl Strategy<Value = Vec<(Micros, usize, u64)>> {
    let wait = prop_oneof![5 => Just(0), 4 => 0..period / 5, 1 => 0..period * 2];
    let hits = prop_oneof![2 => Just(0_u64), 8 => 1_u64..4, 1 => Just(2_000)];
    prop::collection::vec((wait, 0_usize..2, hits), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    /// Whatever two plans of one shape are asked, they never admit more than both bursts and the faster rate.
    #[test]
    fn two_plans_keep_both_bursts_and_the_faster_rate(
        (pair, asked) in pair().prop_flat_map(|pair| {
            let period = pair.period;
            (Just(pair), asked(period))
        }),
    ) {
        let [one, two] = &pair.plans;
        prop_assert_eq!(one.shape(), two.shape());
        let mut key = Key::new();
        let mut admitted: Vec<(Micros, u64)> = Vec::new();
        for (i, (wait, plan, hits)) in asked.into_iter().enumerate() {
            key.now += wait;
            let plan = &pair.plans[plan];
            // Every hold is another one.
            let id = i.to_string();
            let allowed = match plan.hold_id() {
                Some(_) => {
                    let hold = Some(id.as_str());
                    plan.charge(&mut key.state, key.now, Op::Take(hits), hold).decision.allowed
                }
                None => key.take(plan, hits),
            };
            if allowed {
                admitted.push((key.now, hits));
            }
        }
        for (i, &(start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(end, hits) in &admitted[i..] {
                sum += hits;
                let most = pair.bursts + pair.rate * (end - start) as f64;
                prop_assert!(sum as f64 <= most + 1e-6, "{} of {}: {:?}", sum, most, pair);
            }
        }
    }
}
