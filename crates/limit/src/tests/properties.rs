//! Properties of every algorithm, over random schedules.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::model::{Kind, Model};
use super::*;

/// A wait and the operation after it.
type Step = (Micros, Op);

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Fixed),
        Just(Kind::Sliding),
        Just(Kind::HitLog),
        (2_u64..12).prop_map(|buckets| Kind::Bucketed { buckets }),
        (1_u64..9, 1_u64..4, any::<bool>()).prop_map(|(capacity, amount, strict)| Kind::Token {
            capacity,
            amount,
            strict
        }),
        (1_u64..9).prop_map(|burst| Kind::Gcra { burst }),
    ]
}

/// Small limits, so that schedules reach them, and odd periods.
pub(super) fn model() -> impl Strategy<Value = Model> {
    let period = prop_oneof![Just(SECOND), Just(60 * SECOND), 3_u64..9, 900_000_u64..2_000_000];
    let n = prop_oneof![9 => 1_u64..9, 1 => Just(0)];
    let debt = prop::option::weighted(0.5, (0_u64..9, any::<bool>()));
    (kind(), n, period, debt).prop_map(|(kind, n, period, debt)| {
        let model = Model::new(kind, n, period);
        match debt {
            Some((debt, true)) => model.charging_denied(debt),
            Some((debt, false)) => model.owing(debt),
            None => model,
        }
    })
}

pub(super) fn up_to() -> impl Strategy<Value = UpTo> {
    let share = (1_u32..4).prop_filter_map("a share", NonZeroU32::new);
    (0_u32..6, 0_u32..12, share).prop_map(|(least, most, share)| UpTo { least, most, share })
}

fn schedule(period: Micros) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        3 => Just(0),
        3 => 0..period / 2 + 1,
        2 => 0..period * 3,
        1 => Just(period),
        1 => 0..period * 50,
    ];
    let op = prop_oneof![
        6 => Just(Op::Take(1)),
        3 => (0_u64..12).prop_map(Op::Take),
        1 => Just(Op::Take(u64::MAX)),
        2 => (0_u64..6).prop_map(Op::Refund),
        1 => (0_u32..12).prop_map(|hits| Op::Add { hits, limits: 1 }),
        2 => up_to().prop_map(Op::UpTo),
    ];
    prop::collection::vec((wait, op), 1..60)
}

fn model_and_schedule() -> impl Strategy<Value = (Model, Vec<Step>)> {
    model().prop_flat_map(|model| {
        let period = model.period;
        (Just(model), schedule(period))
    })
}

/// Checks the predicted waits and resets by trying them.
fn check_durations(driver: &Driver, model: &Model, op: Op, charged: &ChargeOutcome) {
    let decision = &charged.decision;
    let Op::Take(hits) = op else { return };
    let hits = model.hits_to_check(hits.min(u64::from(u32::MAX)));
    match decision.retry_after {
        Some(wait) => {
            assert!(!decision.allowed && wait > 0);
            assert!(driver.would_allow(wait, hits), "waiting {wait} admits");
            assert!(!driver.would_allow(wait - 1, hits), "waiting a microsecond less does not");
        }
        None if !decision.allowed => {
            for periods in [1, 2, 3, 1_000] {
                assert!(!driver.would_allow(model.period * periods, hits), "never is never");
            }
        }
        None => {}
    }
    assert!(decision.remaining <= model.capacity());
    if decision.remaining > 0 {
        assert!(driver.would_allow(0, decision.remaining), "what remains is allowed");
    }
    assert!(!driver.would_allow(0, decision.remaining + 1), "and no more");
    if model.n > 0 && model.capacity() > 0 {
        assert!(
            driver.would_allow(decision.reset_after, model.capacity()),
            "the full allowance is back after the reset"
        );
    }
    // An expired state means the same as no state.
    if charged.expires > driver.now && model.n > 0 {
        let wait = charged.expires - driver.now;
        assert!(driver.would_allow(wait, model.capacity()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_are_those_of_the_model((model, schedule) in model_and_schedule()) {
        let mut model = model;
        let mut driver = Driver::new(vec![model.limit()]);
        for (wait, op) in schedule {
            driver.now += wait;
            let (allowed, granted) = match op {
                Op::Take(hits) => (model.take(driver.now, hits.min(u32::MAX.into())), 0),
                Op::UpTo(up_to) => model.up_to(driver.now, up_to),
                Op::Refund(hits) => {
                    model.refund(driver.now, hits);
                    (true, 0)
                }
                Op::Add { hits, .. } => {
                    model.add(driver.now, hits.into());
                    (true, 0)
                }
                Op::Undo(_) | Op::Reservation(_) => unreachable!("they have tests of their own"),
            };
            let charged = driver.charge(op);
            prop_assert_eq!(charged.decision.allowed, allowed, "{:?} at {}", op, driver.now);
            prop_assert_eq!(u64::from(charged.decision.granted), granted, "{:?}", op);
            check_durations(&driver, &model, op, &charged);
        }
    }

    #[test]
    fn packed_states_decide_the_same((model, schedule) in model_and_schedule()) {
        let mut driver = Driver::new(vec![model.limit()]);
        if !driver.plan.packs() {
            return Ok(());
        }
        let mut packed = [0; 3];
        for (wait, op) in schedule {
            driver.now += wait;
            let charged = driver.charge(op);
            let again = driver.plan.charge_packed(&mut packed, driver.now, op, None);
            prop_assert_eq!(&charged, &again);
            if charged.expires <= driver.now {
                packed = [0; 3];
            }
        }
    }

    #[test]
    fn a_state_may_be_dropped_once_it_has_expired((model, schedule) in model_and_schedule()) {
        let mut driver = Driver::new(vec![model.limit()]);
        let mut forgetful = driver.clone();
        let mut expires = 0;
        for (wait, op) in schedule {
            driver.now += wait;
            forgetful.now = driver.now;
            if expires <= driver.now {
                forgetful.state = State::default();
            }
            let charged = driver.charge(op);
            prop_assert_eq!(&charged, &forgetful.charge(op));
            expires = charged.expires;
        }
    }

    #[test]
    fn looks_and_refunds_create_no_state(model in model(), wait in 0_u64..100) {
        let mut driver = Driver::new(vec![model.limit()]);
        driver.now += wait;
        for op in [Op::Take(0), Op::Refund(3), Op::Add { hits: 0, limits: 1 }] {
            prop_assert!(driver.charge(op).expires <= driver.now);
        }
    }

    /// Counts the admissions themselves, without a model.
    #[test]
    fn each_algorithm_keeps_its_guarantee((model, schedule) in model_and_schedule()) {
        let mut driver = Driver::new(vec![model.limit()]);
        let mut admitted: Vec<(Micros, u64)> = Vec::new();
        for (wait, op) in schedule {
            let Op::Take(hits) = op else { continue };
            driver.now += wait;
            if driver.take(hits).allowed {
                admitted.push((driver.now, hits.min(u32::MAX.into())));
            }
        }
        let (n, p) = (model.n, model.period);
        for &(start, _) in &admitted {
            let within = |length: Micros| -> u64 {
                admitted.iter().filter(|(t, _)| (start..start + length).contains(t)).map(|x| x.1).sum()
            };
            match model.kind {
                Kind::HitLog | Kind::Bucketed { .. } => prop_assert!(within(p) <= n),
                Kind::Fixed => {
                    let window: u64 =
                        admitted.iter().filter(|(t, _)| t / p == start / p).map(|x| x.1).sum();
                    prop_assert!(window <= n && within(p) <= 2 * n);
                }
                Kind::Sliding => prop_assert!(within(p) <= 2 * n),
                _ => {}
            }
        }
    }

    #[test]
    fn buckets_admit_no_more_than_they_hold_and_refill(
        (kind, n) in (
            prop_oneof![
                (1_u64..9, 1_u64..4, any::<bool>())
                    .prop_map(|(capacity, amount, strict)| Kind::Token { capacity, amount, strict }),
                (1_u64..9).prop_map(|burst| Kind::Gcra { burst }),
            ],
            1_u64..9,
        ),
        schedule in schedule(SECOND),
    ) {
        let model = Model::new(kind, n, SECOND);
        let mut driver = Driver::new(vec![model.limit()]);
        let mut admitted: Vec<(Micros, u64)> = Vec::new();
        for (wait, op) in schedule {
            let Op::Take(hits) = op else { continue };
            driver.now += wait;
            if driver.take(hits).allowed {
                admitted.push((driver.now, hits));
            }
        }
        for (i, &(start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(end, hits) in &admitted[i..] {
                sum += hits;
                let span = end - start;
                let most = match kind {
                    Kind::Token { capacity, amount, .. } => {
                        capacity + amount * (span / SECOND + 1)
                    }
                    _ => model.capacity() + (span * n).div_ceil(SECOND),
                };
                prop_assert!(sum <= most, "{} in {} microseconds, at most {}", sum, span, most);
            }
        }
    }

    /// A clock that steps back admits nothing extra, and blocks no longer than the limit can.
    #[test]
    fn clocks_that_step_back_admit_nothing_extra(
        (model, schedule) in model_and_schedule(),
        steps in prop::collection::vec((0_usize..60, 0_u64..200_000_000), 1..5),
    ) {
        let mut driver = Driver::new(vec![model.limit()]);
        // What was left when the state was written.
        let mut written = 0;
        for (i, (wait, op)) in schedule.into_iter().enumerate() {
            driver.now += wait;
            if let Some((_, back)) = steps.iter().find(|(at, _)| *at == i) {
                let before = driver.clone().take(0);
                driver.now -= back;
                let after = driver.clone().take(0);
                // After several steps back, a gcra limit is as it was written, and not as one of them left it.
                let most = match model.kind {
                    Kind::Gcra { .. } => before.remaining.max(written),
                    _ => before.remaining,
                };
                prop_assert!(after.remaining <= most, "{:?} {:?}", before, after);
            }
            let state = driver.state.clone();
            let charged = driver.charge(op);
            if driver.state != state {
                written = driver.clone().take(0).remaining;
            }
            if let (Op::Take(hits), Some(wait)) = (op, charged.decision.retry_after) {
                let hits = model.hits_to_check(hits.min(u32::MAX.into()));
                prop_assert!(driver.would_allow(wait, hits));
                prop_assert!(!driver.would_allow(wait - 1, hits));
                let longest = match model.kind {
                    Kind::Token { capacity, amount, .. } => {
                        model.period * ((capacity + model.max_debt).div_ceil(amount) + 2)
                    }
                    Kind::Gcra { burst } => model.period * (burst + model.max_debt).div_ceil(model.n.max(1)) + model.period,
                    Kind::Bucketed { .. } => model.period * 4,
                    _ => model.period * 3,
                };
                prop_assert!(wait <= longest, "{} is longer than {}", wait, longest);
            }
        }
    }
}

/// Large numbers, where rounding or overflow would show.
fn large() -> impl Strategy<Value = (Kind, u64, Micros)> {
    let n = prop_oneof![
        Just(1_u64),
        Just(1_000_000),
        Just(u64::from(u32::MAX)),
        1_u64..u64::from(u32::MAX),
    ];
    let period = prop_oneof![
        Just(SECOND),
        Just(365 * 86_400 * SECOND),
        Just(MAX_PERIOD_SECONDS * SECOND),
        (1_u64..MAX_PERIOD_SECONDS).prop_map(|seconds| seconds * SECOND),
    ];
    let kind = prop_oneof![
        Just(Kind::Fixed),
        Just(Kind::Sliding),
        (2_u64..3_600).prop_map(|buckets| Kind::Bucketed { buckets }),
        (1_u64..1 << 32, 1_u64..1 << 32).prop_map(|(capacity, amount)| Kind::Token {
            capacity,
            amount,
            strict: false
        }),
        (1_u64..1_000_000).prop_map(|burst| Kind::Gcra { burst }),
    ];
    (kind, n, period)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn large_numbers_neither_overflow_nor_round(
        (kind, n, period) in large(),
        steps in prop::collection::vec((0.0_f64..1.5, 0_u32..=u32::MAX, any::<bool>()), 1..20),
    ) {
        if let Kind::Gcra { burst } = kind {
            prop_assume!(Gcra::new(n as u32, period, burst as u32, 0).is_ok());
        }
        if let Kind::Token { capacity, amount, .. } = kind {
            // Rules with buckets that take longer to fill are rejected.
            prop_assume!(capacity <= (crate::MAX_WAIT / period).saturating_mul(amount));
        }
        let mut model = Model::new(kind, n, period);
        let mut driver = Driver::new(vec![model.limit()]);
        // A tick of more than a microsecond rounds time down; keep to whole ticks.
        let tick = match &driver.plan.limits()[0].algorithm {
            Algorithm::Gcra(gcra) => gcra.tick(),
            _ => 1,
        };
        let scale = if matches!(kind, Kind::Gcra { .. }) { 1_000_000.0 } else { period as f64 };
        for (wait, hits, small) in steps {
            let wait = (wait * scale / tick as f64) as u64 * tick;
            if driver.now + wait > 1 << 52 {
                break;
            }
            driver.now += wait;
            let hits = if small { u64::from(hits) % 10 } else { u64::from(hits) };
            let charged = driver.charge(Op::Take(hits));
            prop_assert_eq!(charged.decision.allowed, model.take(driver.now, hits));
            if let Some(wait) = charged.decision.retry_after {
                let hits = hits.max(1);
                prop_assert!(driver.would_allow(wait, hits));
                prop_assert!(!driver.would_allow(wait - 1, hits));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Holds by id against a list of them.
    #[test]
    fn holds_match_a_list(
        n in 0_u32..5,
        steps in prop::collection::vec((0_u64..3_000_000, 0_u64..3, 0_usize..4, any::<bool>()), 1..60),
    ) {
        const IDS: [&str; 4] = ["a", "b", "c", "d"];
        let timeout = 5 * SECOND;
        let held = Concurrency { n, timeout, hold_id: Some("id".into()) };
        let mut driver = Driver::new(vec![limit(n, Algorithm::Concurrency(held), false)]);
        let mut list: Vec<(Micros, usize)> = Vec::new();
        for (wait, hits, id, start) in steps {
            driver.now += wait;
            list.retain(|(start, _)| start + timeout > driver.now);
            let op = if start { Op::Take(hits) } else { Op::Refund(hits) };
            let charged =
                driver.plan.charge(&mut driver.state, driver.now, op, Some(IDS[id]));
            if start {
                let others = list.iter().filter(|(_, held)| *held != id).count() as u64;
                let allowed = n > 0 && others + hits.max(1) <= n.into();
                prop_assert_eq!(charged.decision.allowed, allowed);
                if allowed && hits > 0 {
                    list.retain(|(_, held)| *held != id);
                    list.extend((0..hits).map(|_| (driver.now, id)));
                }
            } else {
                for _ in 0..hits {
                    if let Some(newest) = list.iter().rposition(|(_, held)| *held == id) {
                        list.remove(newest);
                    }
                }
            }
            prop_assert_eq!(
                charged.decision.remaining,
                u64::from(n).saturating_sub(list.len() as u64)
            );
            if let (true, Some(wait)) = (start, charged.decision.retry_after) {
                let would_allow = |wait| {
                    let Driver { plan, mut state, now } = driver.clone();
                    plan.charge(&mut state, now + wait, Op::Take(hits), Some(IDS[id])).decision.allowed
                };
                prop_assert!(would_allow(wait));
                prop_assert!(!would_allow(wait - 1));
            }
        }
    }

    /// Without ids: a count that denials raise too, cleared by a timeout without traffic.
    #[test]
    fn a_count_without_ids_is_starts_minus_ends(
        n in 0_u32..5,
        steps in prop::collection::vec((0_u64..8_000_000, 0_u64..4, any::<bool>()), 1..60),
    ) {
        let timeout = 5 * SECOND;
        let held = Concurrency { n, timeout, hold_id: None };
        let mut driver = Driver::new(vec![limit(n, Algorithm::Concurrency(held), true)]);
        let (mut level, mut last) = (0_u64, 0);
        for (wait, hits, start) in steps {
            driver.now += wait;
            if last + timeout <= driver.now {
                level = 0;
            }
            let op = if start { Op::Take(hits) } else { Op::Refund(hits) };
            let charged = driver.charge(op);
            if start {
                let allowed = n > 0 && level + hits <= n.into();
                prop_assert_eq!(charged.decision.allowed, allowed);
                level += hits;
            } else {
                level = level.saturating_sub(hits);
            }
            if !start || hits > 0 {
                last = driver.now;
            }
            prop_assert_eq!(charged.decision.remaining, u64::from(n).saturating_sub(level));
        }
    }

    /// What was taken at once comes back within the time that is shown as its window.
    #[test]
    fn a_full_bucket_comes_back_in_its_refill_time(
        n in 1_u32..1_000,
        burst in 1_u32..1_000,
        period in prop::sample::select(vec![SECOND, 60 * SECOND, 86_400 * SECOND, 7]),
    ) {
        for limit in [gcra(n, period, burst), bucket(burst, n, period)] {
            let decision = Driver::new(vec![limit.clone()]).take(burst.into());
            prop_assert!(decision.allowed && decision.remaining == 0);
            prop_assert_eq!(Some(decision.reset_after), limit.refill_time());
            let none = Limit { requests_per_unit: 0, ..limit };
            prop_assert_eq!(none.refill_time(), None);
        }
        prop_assert_eq!(fixed(n, period).refill_time(), None);
    }

    /// A calendar window against the calendar itself.
    #[test]
    fn calendar_windows_admit_n_in_each(
        n in 1_u32..4,
        unit in prop::sample::select(vec![Unit::Day, Unit::Week, Unit::Month, Unit::Year]),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York"]),
        waits in prop::collection::vec(0_u64..40 * 86_400, 1..40),
    ) {
        let calendar = std::sync::Arc::new(Calendar::new(unit, zone).expect("a calendar"));
        let period = unit.period(1).unwrap_or_default();
        let window = FixedWindow { n, period, calendar: Some(calendar.clone()) };
        let mut driver = Driver::new(vec![limit(n, Algorithm::FixedWindow(window), false)]);
        let mut counts = std::collections::HashMap::new();
        for wait in waits {
            driver.now += wait * SECOND;
            let (start, end) = calendar.window(driver.now);
            let count = counts.entry(start).or_insert(0);
            let decision = driver.take(1);
            prop_assert_eq!(decision.allowed, *count < n);
            prop_assert_eq!(decision.reset_after, end - driver.now);
            *count += u32::from(decision.allowed);
        }
    }
}
