//! Packed states against unpacked ones, at the bounds of every packed field.

use proptest::prelude::*;

use super::*;

/// Times are below this: about the year 2112.
const END: Micros = 1 << 52;
const YEAR: Micros = 365 * 86_400 * SECOND;

/// A packed state and the same state unpacked.
struct Pair {
    unpacked: Driver,
    packed: Packed,
}

impl Pair {
    fn new(limit: Limit, now: Micros) -> Pair {
        let unpacked = Driver { now, ..Driver::new(vec![limit]) };
        assert!(unpacked.plan.packs());
        Pair { unpacked, packed: Packed::default() }
    }

    /// Charges both forms of the state.
    fn charge(&mut self, op: Op) -> ChargedBoth {
        let unpacked = self.unpacked.charge(op);
        let packed =
            self.unpacked.plan.charge_packed(&mut self.packed, self.unpacked.now, op, None);
        // As stores do.
        if unpacked.expires <= self.unpacked.now {
            self.unpacked.state = State::default();
        }
        if packed.expires <= self.unpacked.now {
            self.packed = Packed::default();
        }
        ChargedBoth { unpacked, packed }
    }
}

#[derive(Debug, PartialEq)]
struct ChargedBoth {
    unpacked: ChargeOutcome,
    packed: ChargeOutcome,
}

impl ChargedBoth {
    fn allowed(&self) -> bool {
        assert_eq!(self.packed, self.unpacked);
        self.packed.decision.allowed
    }
}

#[test]
fn packed_gcra_limits_beyond_the_year_2112() {
    let mut pair = Pair::new(gcra(1, YEAR, 100), NOON);
    let admitted = (0..500).filter(|_| pair.charge(Op::Take(1)).allowed()).count();
    assert_eq!(admitted, 100);
}

#[test]
fn packed_gcra_keeps_debt_beyond_the_year_2112() {
    let algorithm = Gcra::new(1, YEAR, 1, 120).map(Algorithm::Gcra).expect("numbers that fit");
    let mut pair = Pair::new(limit(1, algorithm, true), NOON);
    assert!(!pair.charge(Op::Take(121)).allowed());
    while pair.unpacked.now < END {
        assert!(!pair.charge(Op::Take(0)).allowed());
        pair.unpacked.now += YEAR / 2;
    }
}

/// Small numbers, the largest, and any in between.
fn ends(least: u32) -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(least),
        least..least + 4,
        Just(u32::MAX),
        Just(u32::MAX - 1),
        Just(1 << 31),
        least..=u32::MAX
    ]
}

fn period() -> impl Strategy<Value = Micros> {
    let seconds = prop_oneof![
        Just(1),
        Just(2),
        Just(60),
        Just(86_400),
        Just(MAX_PERIOD_SECONDS),
        Just(MAX_PERIOD_SECONDS - 1),
        1..=MAX_PERIOD_SECONDS,
    ];
    seconds.prop_map(|seconds: u64| seconds * SECOND)
}

/// Every limit whose states are packed.
fn packing() -> impl Strategy<Value = Limit> {
    let numbers = (ends(0), period(), ends(0), ends(1), prop::option::of(ends(0)));
    let kinds = (0_usize..5, any::<bool>(), any::<bool>());
    (numbers, kinds).prop_filter_map(
        "fits",
        |((n, period, burst, amount, debt), (kind, strict, shadow_mode))| {
            let max_debt = debt.unwrap_or(0);
            let algorithm = match kind {
                0 if strict => {
                    let calendar = Calendar::new(Unit::Year, "America/New_York").ok()?;
                    let calendar = Some(std::sync::Arc::new(calendar));
                    Algorithm::FixedWindow(FixedWindow { n, period: YEAR, calendar })
                }
                0 => Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }),
                1 => Algorithm::SlidingWindow(SlidingWindow { n, period }),
                2 => Algorithm::TokenBucket(TokenBucket {
                    capacity: burst,
                    amount,
                    interval: if strict { period } else { period / SECOND },
                    strict,
                    max_debt,
                }),
                3 => Algorithm::Gcra(Gcra::new(n, period, burst, max_debt).ok()?),
                // The largest that fits.
                _ => {
                    let fits = |shift: u32| Gcra::new(n, period, burst >> shift, max_debt >> shift);
                    Algorithm::Gcra((0..32).find_map(|shift| fits(shift).ok())?)
                }
            };
            Some(Limit { shadow_mode, ..limit(n, algorithm, debt.is_some()) })
        },
    )
}

/// Times of a schedule, all within 60 years: at either end of time, or around now.
fn schedule() -> impl Strategy<Value = Vec<(Micros, Op)>> {
    const SPAN: Micros = 60 * YEAR;
    let base = prop_oneof![Just(0), Just(NOON), Just(END - SPAN)];
    base.prop_flat_map(|base| {
        let at = prop_oneof![
            3 => Just(0),
            2 => 0..10 * SECOND,
            2 => 0..SPAN,
            3 => Just(SPAN - 1),
            1 => SPAN - 10 * SECOND..SPAN,
        ];
        let hits = prop_oneof![
            1 => Just(0),
            4 => 1_u64..4,
            2 => Just(u64::from(u32::MAX)),
            1 => 0..u64::from(u32::MAX),
        ];
        let op = (hits, prop::bool::weighted(0.2))
            .prop_map(|(hits, back)| if back { Op::Refund(hits) } else { Op::Take(hits) });
        prop::collection::vec((at.prop_map(move |at| base + at), op), 1..20)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// Time steps forward and back by up to 60 years.
    #[test]
    fn packed_and_unpacked_states_decide_the_same(limit in packing(), schedule in schedule()) {
        let mut pair = Pair::new(limit, 0);
        for (at, op) in schedule {
            pair.unpacked.now = at;
            let charged = pair.charge(op);
            prop_assert_eq!(charged.packed, charged.unpacked, "{:?} at {}", op, at);
        }
    }
}
