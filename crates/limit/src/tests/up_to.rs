//! Taking some hits, and more where they are allowed, against trying every number of hits.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::properties::{model, up_to};
use super::*;

const MINUTE: Micros = 60 * SECOND;

impl Driver {
    fn up_to(&mut self, least: u32, most: u32, share: u32) -> Decision {
        let share = NonZeroU32::new(share).expect("a share");
        self.charge(Op::UpTo(UpTo { least, most, share })).decision
    }

    /// Returns the largest number of hits, from `least` on and up to `most`, that a take would be allowed.
    fn largest(&self, least: u64, most: u64) -> u64 {
        let allowed = |hits: &u64| *hits == least || self.would_allow(0, *hits);
        (least..=most).take_while(allowed).last().unwrap_or(least)
    }
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow_mode: true, ..limit }
}

fn concurrency(n: u32, hold_id: Option<&str>) -> Limit {
    let hold_id = hold_id.map(Into::into);
    limit(n, Algorithm::Concurrency(Concurrency { n, timeout: MINUTE, hold_id }), false)
}

fn step() -> impl Strategy<Value = (Micros, Op)> {
    let wait = prop_oneof![2 => Just(0), 2 => 0..2 * SECOND, 1 => 0..90 * SECOND];
    let op = prop_oneof![
        4 => (1_u64..4).prop_map(Op::Take),
        1 => (1_u64..4).prop_map(Op::Refund),
        1 => (0_u32..9).prop_map(|hits| Op::Add { hits, limits: u16::MAX }),
        2 => up_to().prop_map(Op::UpTo),
    ];
    (wait, op)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// Denied it is `Take(least)`, and allowed `Take(granted)`: the largest that is allowed, or a share of
    /// that.
    #[test]
    fn it_takes_what_trying_every_number_finds(
        limits in prop::collection::vec((model(), prop::bool::weighted(0.3)), 1..4),
        flight in prop::option::weighted(0.2, 1_u32..6),
        steps in prop::collection::vec(step(), 0..12),
        asked in up_to(),
    ) {
        let watched = |(model, is_watched): &(model::Model, bool)| {
            if *is_watched { shadow(model.limit()) } else { model.limit() }
        };
        let mut limits: Vec<Limit> = limits.iter().map(watched).collect();
        limits.extend(flight.map(|n| concurrency(n, None)));
        let mut driver = Driver::new(limits);
        for (wait, op) in steps {
            driver.now += wait;
            driver.charge(op);
        }
        let (least, share) = (u64::from(asked.least), u64::from(asked.share.get()));
        let mut naive = driver.clone();
        let decision = driver.charge(Op::UpTo(asked)).decision;
        if least > 0 && !naive.would_allow(0, least) {
            prop_assert_eq!(&decision, &naive.take(least));
            prop_assert_eq!(&driver.state, &naive.state);
            return Ok(());
        }
        let more = u64::from(asked.most).saturating_sub(least);
        let left = naive.largest(least, least + more.max(share) * share) - least;
        let part = left / share;
        let granted = least + if part < share { 0 } else { part.min(more) };
        prop_assert!(decision.allowed);
        prop_assert_eq!(u64::from(decision.granted), granted);
        let expected = naive.take(granted);
        if granted > 0 {
            prop_assert_eq!(decision, Decision { granted: granted as u32, ..expected });
        }
        prop_assert_eq!(&driver.state, &naive.state);
    }

    /// One to n is the largest take that is allowed, also for an id that has a hold already.
    #[test]
    fn a_hold_takes_the_largest_number_that_fits(
        n in 1_u32..6,
        held in prop::collection::vec((0_u64..3, 1_u64..3), 0..4),
        least in 0_u32..3,
    ) {
        let mut driver = Driver::new(vec![concurrency(n, Some("id")), fixed(5, MINUTE)]);
        for (hold, hits) in held {
            driver.plan.charge_hashed(&mut driver.state, driver.now, Op::Take(hits), hold);
        }
        let charge = |op| {
            let Driver { plan, mut state, now } = driver.clone();
            (plan.charge_hashed(&mut state, now, op, 1).decision, state)
        };
        let largest = (1..=9).take_while(|&hits| charge(Op::Take(hits)).0.allowed).last();
        let share = NonZeroU32::MIN;
        let (decision, state) = charge(Op::UpTo(UpTo { least, most: 9, share }));
        match largest {
            Some(largest) if largest >= least.into() => {
                prop_assert_eq!(u64::from(decision.granted), largest);
                prop_assert_eq!(state, charge(Op::Take(largest)).1);
            }
            _ => prop_assert_eq!((decision.allowed, decision.granted), (least == 0, 0)),
        }
    }
}

#[test]
fn the_last_part_of_a_limit_is_granted() {
    let mut driver = Driver::new(vec![fixed(10, MINUTE)]);
    let decision = driver.up_to(2, 7, 1);
    assert_eq!((decision.granted, decision.used_before, decision.remaining), (7, 0, 3));
    let decision = driver.up_to(2, 7, 1);
    assert_eq!((decision.allowed, decision.granted, decision.remaining), (true, 3, 0));
    let decision = driver.up_to(2, 7, 1);
    assert_eq!((decision.allowed, decision.granted), (false, 0));
    assert_eq!(decision.retry_after, Some(MINUTE));
}

#[test]
fn at_most_a_share_of_what_is_left_is_granted() {
    let mut driver = Driver::new(vec![fixed(20, MINUTE), gcra(60, MINUTE, 60)]);
    // A third of those that are left after the least.
    assert_eq!(driver.up_to(1, 4, 3).granted, 4);
    assert_eq!(driver.up_to(1, 20, 3).granted, 6);
    assert_eq!(driver.up_to(0, 20, 3).granted, 3);
    // Of the last seven, a part is too small.
    assert_eq!(driver.up_to(0, 20, 3).granted, 0);
    assert_eq!(driver.up_to(1, 20, 3).granted, 1);
    // The most may be less than the least.
    driver.now += MINUTE;
    assert_eq!(driver.up_to(2, 1, 1).granted, 2);
}

#[test]
fn a_least_of_zero_is_never_denied_and_may_take_nothing() {
    let zero = Limit { requests_per_unit: 0, ..fixed(0, MINUTE) };
    for limits in [vec![fixed(2, MINUTE)], vec![zero], vec![log(2, MINUTE), bucket(2, 1, SECOND)]] {
        let mut driver = Driver::new(limits);
        driver.take(2);
        assert!(!driver.take(0).allowed);
        let state = driver.state.clone();
        let decision = driver.up_to(0, 5, 1);
        assert_eq!((decision.allowed, decision.granted, decision.remaining), (true, 0, 0));
        assert_eq!(driver.state, state);
    }
}

#[test]
fn a_denial_is_that_of_the_least() {
    let charged = Limit { charge_denied: true, ..fixed(9, MINUTE) };
    let mut driver = Driver::new(vec![fixed(1, MINUTE), charged]);
    assert!(!driver.up_to(2, 8, 1).allowed);
    assert_eq!(driver.used(), [0, 2]);
    let strict =
        TokenBucket { capacity: 2, amount: 1, interval: 10 * SECOND, strict: true, max_debt: 0 };
    let mut driver = Driver::new(vec![limit(2, Algorithm::TokenBucket(strict), false)]);
    driver.take(2);
    driver.now += 6 * SECOND;
    assert!(driver.up_to(0, 2, 1).allowed);
    assert_eq!(driver.take(0).retry_after, Some(4 * SECOND));
    assert_eq!(driver.up_to(1, 2, 1).retry_after, Some(10 * SECOND));
}

#[test]
fn a_limit_in_shadow_mode_charges_what_it_would_admit_as_a_whole() {
    let mut driver = Driver::new(vec![fixed(9, MINUTE), shadow(fixed(4, MINUTE))]);
    let decision = driver.up_to(1, 3, 1);
    assert_eq!((decision.granted, decision.would_deny), (3, 0));
    let decision = driver.up_to(1, 3, 1);
    assert_eq!((decision.granted, decision.would_deny), (3, 0b10));
    assert_eq!(driver.used(), [6, 3]);
    // Alone it limits nothing.
    let mut driver = Driver::new(vec![shadow(fixed(4, MINUTE))]);
    let decision = driver.up_to(1, 6, 1);
    assert_eq!((decision.allowed, decision.granted, decision.would_deny), (true, 6, 1));
    assert_eq!(driver.used(), [0]);
}

#[test]
fn limits_near_their_n_are_those_after_what_was_granted() {
    let mut driver = Driver::new(vec![fixed(4, MINUTE), fixed(8, 60 * MINUTE)]);
    driver.plan = driver.plan.with_near_limit_ratio(Some(0.5));
    let decision = driver.up_to(1, 9, 1);
    let near = decision.near.iter().flat_map(|limits| limits.iter());
    let near: Vec<_> = near.map(|near| (near.limit, near.used)).collect();
    assert_eq!((decision.granted, near), (4, vec![(1, 4)]));
}

#[test]
fn what_was_granted_is_undone_in_windows() {
    let others = [log(9, MINUTE), gcra(60, MINUTE, 9), bucket(9, 1, MINUTE)];
    let limits = [(fixed(9, MINUTE), 4)].into_iter().chain(others.map(|limit| (limit, 7)));
    for (limit, left) in limits {
        let mut driver = Driver::new(vec![limit, fixed(7, 60 * MINUTE)]);
        driver.take(2);
        let op = Op::UpTo(UpTo { least: 1, most: 20, share: NonZeroU32::MIN });
        let Driver { plan, state, now } = &mut driver;
        let (outcome, undos) = plan.charge_undoable(state, *now, op);
        assert_eq!(outcome.decision.granted, 5);
        assert!(undos.iter().all(|undo| undo.hits == 5), "{undos:?}");
        // A part is returned, as where less was used than reserved.
        for undo in undos {
            driver.charge(Op::Undo(Undo { hits: 3, ..undo }));
        }
        assert_eq!(driver.used(), [left, 4], "{:?}", driver.plan);
    }
}
