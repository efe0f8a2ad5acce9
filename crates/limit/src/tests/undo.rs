//! Charges that are undone are as if they had not been made.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::model::{Kind, Model};
use super::properties::model;
use super::*;

impl Driver {
    /// Charges, and returns what undoes it.
    fn charge_undoable(&mut self, op: Op, hold: u64) -> (Decision, Vec<Undo>) {
        let Driver { plan, state, now } = self;
        let (outcome, undos) = plan.charge_undoable(state, *now, op, hold);
        (outcome.decision, undos)
    }

    /// Takes hits, all of which are allowed, and returns what undoes them.
    fn take_undoable(&mut self, hits: u64, hold: u64) -> Vec<Undo> {
        let (decision, undos) = self.charge_undoable(Op::Take(hits), hold);
        assert!(decision.allowed);
        undos
    }

    fn undo(&mut self, undos: &[Undo], hold: u64) {
        for undo in undos.iter().rev() {
            self.plan.charge_hashed(&mut self.state, self.now, Op::Undo(*undo), hold);
        }
    }

    fn look(&self) -> Decision {
        self.clone().take(0)
    }
}

fn concurrency(n: u32, hold_id: Option<&str>) -> Limit {
    let hold_id = hold_id.map(Into::into);
    limit(n, Algorithm::Concurrency(Concurrency { n, timeout: 60 * SECOND, hold_id }), false)
}

/// A wait, hits to take, and after how many more steps how many of them are undone, if ever.
type Step = (Micros, u64, Option<(usize, u64)>);

fn steps(period: Micros) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        3 => Just(0),
        3 => 0..period / 2 + 1,
        2 => 0..period * 3,
        1 => Just(period),
    ];
    prop::collection::vec((wait, 1_u64..5, prop::option::of((0_usize..6, 1_u64..5))), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// Limits that decide from the history decide as if hits that were undone were not in it, however
    /// late they are undone.
    #[test]
    fn undone_hits_are_not_in_the_history(
        (model, steps) in model().prop_flat_map(|model| {
            let period = model.period;
            (Just(model), steps(period))
        }),
    ) {
        let mut model = match model.kind {
            Kind::Token { .. } | Kind::Gcra { .. } => Model::new(Kind::HitLog, model.n, model.period),
            _ => model,
        };
        let mut driver = Driver::new(vec![model.limit()]);
        let mut due: Vec<(usize, Micros, u64, u64, Vec<Undo>)> = Vec::new();
        for (at, (wait, hits, undone_after)) in steps.into_iter().enumerate() {
            driver.now += wait;
            due.retain(|(when, taken, hits, back, undos)| {
                if *when <= at {
                    model.undo(*taken, *hits, *back);
                    let part = |undo: &Undo| Undo { hits: *back as u32, ..*undo };
                    driver.undo(&undos.iter().map(part).collect::<Vec<_>>(), 0);
                }
                *when > at
            });
            let allowed = model.take(driver.now, hits);
            let (decision, undos) = driver.charge_undoable(Op::Take(hits), 0);
            prop_assert_eq!(decision.allowed, allowed);
            prop_assert_eq!(undos.is_empty(), !allowed && !model.charge_denied);
            if let Some((after, back)) = undone_after.filter(|_| !undos.is_empty()) {
                due.push((at + 1 + after, driver.now, hits, back.min(hits), undos));
            }
        }
    }

    /// What was admitted and not undone, counted by itself: undoing a part of some hits, as long after they
    /// were taken as may be, never lets a limit of windows admit more than it guarantees.
    #[test]
    fn undoing_a_part_keeps_every_guarantee(
        (model, steps) in model().prop_flat_map(|model| {
            let period = model.period;
            let kind = match model.kind {
                Kind::Token { .. } | Kind::Gcra { .. } => Kind::Sliding,
                kind => kind,
            };
            (Just(Model::new(kind, model.n, period)), steps(period))
        }),
    ) {
        let mut driver = Driver::new(vec![model.limit()]);
        let mut admitted: Vec<(Micros, u64)> = Vec::new();
        let mut due: Vec<(usize, usize, u64, Vec<Undo>)> = Vec::new();
        for (at, (wait, hits, undone_after)) in steps.into_iter().enumerate() {
            driver.now += wait;
            due.retain(|(when, made, back, undos)| {
                if *when <= at {
                    admitted[*made].1 -= *back;
                    let part = |undo: &Undo| Undo { hits: *back as u32, ..*undo };
                    driver.undo(&undos.iter().map(part).collect::<Vec<_>>(), 0);
                }
                *when > at
            });
            let up_to = UpTo { least: 1, most: 2 * hits as u32, share: NonZeroU32::MIN };
            let (decision, undos) = driver.charge_undoable(Op::UpTo(up_to), 0);
            if decision.allowed {
                let granted = u64::from(decision.granted);
                if let Some((after, back)) = undone_after {
                    due.push((at + 1 + after, admitted.len(), back.min(granted), undos));
                }
                admitted.push((driver.now, granted));
            }
        }
        let (n, p) = (model.n, model.period);
        for (i, &(start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(end, hits) in &admitted[i..] {
                sum += hits;
                let span = end - start;
                let most = match model.kind {
                    Kind::Fixed => n * (end / p - start / p + 1),
                    // Near n in each period: never more than that in the windows that it touches.
                    Kind::Sliding => n * (end / p - start / p + 1),
                    Kind::HitLog | Kind::Bucketed { .. } => n * (span / p + 1),
                    Kind::Token { .. } | Kind::Gcra { .. } => unreachable!("no window"),
                };
                prop_assert!(sum <= most, "{} in {} microseconds, at most {}", sum, span, most);
            }
        }
    }

    /// Whatever others take in between, an undo leaves no more room than if the charge had not been made,
    /// and no less than before. At once it leaves the same.
    #[test]
    fn an_undo_frees_no_more_than_was_taken(
        mut model in model(),
        before in prop::collection::vec((0_u64..3_000_000, 1_u64..4), 0..6),
        hits in 1_u64..12,
        between in prop::collection::vec((0_u64..1_500_000, 1_u64..4), 0..6),
        at_once in any::<bool>(),
    ) {
        // The wait of a strict bucket that a denial has restarted stays so.
        if let Kind::Token { strict, .. } = &mut model.kind {
            *strict = false;
        }
        // What a bucket refunds may have drained.
        let at_once = at_once || matches!(model.kind, Kind::Token { .. } | Kind::Gcra { .. });
        let mut without = Driver::new(vec![model.limit()]);
        for (wait, hits) in before {
            without.now += wait;
            without.take(hits);
        }
        let mut driver = without.clone();
        let (_, undos) = driver.charge_undoable(Op::Take(hits), 0);
        for (wait, hits) in between {
            let wait = if at_once { 0 } else { wait };
            driver.now += wait;
            without.now += wait;
            if driver.would_allow(0, hits) {
                prop_assert!(driver.take(hits).allowed);
                prop_assert!(without.take(hits).allowed);
            }
        }
        let kept = driver.look().remaining;
        driver.undo(&undos, 0);
        let (undone, never) = (driver.look(), without.look());
        prop_assert!(kept <= undone.remaining, "{:?} {:?}", kept, undone);
        prop_assert!(undone.remaining <= never.remaining, "{:?} {:?}", undone, never);
        let in_debt = model.charge_denied && matches!(model.kind, Kind::Gcra { .. });
        if at_once && !in_debt {
            prop_assert_eq!(undone, never);
        }
    }
}

#[test]
fn only_limits_that_charged_are_undone() {
    let watch = Limit { shadow_mode: true, ..fixed(2, 60 * SECOND) };
    let mut driver = Driver::new(vec![fixed(5, 60 * SECOND), watch]);
    driver.take(2);
    // The watched limit would deny, and charges nothing.
    let undos = driver.take_undoable(1, 0);
    assert_eq!(driver.used(), [3, 2]);
    driver.undo(&undos, 0);
    assert_eq!(driver.used(), [2, 2]);
    // A denied charge is undone where it was charged.
    let charged = Limit { charge_denied: true, ..fixed(9, 60 * SECOND) };
    let mut driver = Driver::new(vec![fixed(1, 60 * SECOND), charged]);
    let (decision, undos) = driver.charge_undoable(Op::Take(2), 0);
    assert!(!decision.allowed);
    assert_eq!(driver.used(), [0, 2]);
    driver.undo(&undos, 0);
    assert_eq!(driver.used(), [0, 0]);
    // Looks, refunds, undos and hits that are added have nothing to undo.
    let undo = Op::Undo(Undo { limits: 3, ..undos[0] });
    for op in [Op::Take(0), Op::Refund(1), undo, Op::Add { hits: 1, limits: 3 }] {
        assert_eq!(driver.charge_undoable(op, 0).1, []);
    }
}

#[test]
fn a_full_count_is_undone_by_what_it_grew() {
    let all = Limit { charge_denied: true, ..fixed(9, 60 * SECOND) };
    let owed = TokenBucket { capacity: 5, amount: 1, interval: SECOND, strict: false, max_debt: 2 };
    let owed = limit(5, Algorithm::TokenBucket(owed), true);
    let mut driver = Driver::new(vec![all, owed]);
    driver.take(4);
    let (_, undos) = driver.charge_undoable(Op::Take(u64::MAX), 0);
    assert_eq!(driver.used(), [u64::from(u32::MAX), 7]);
    driver.undo(&undos, 0);
    assert_eq!(driver.used(), [4, 4]);
}

#[test]
fn a_log_loses_the_undone_stamps_and_not_the_newest() {
    let mut driver = Driver::new(vec![log(3, 10 * SECOND)]);
    let first = driver.take_undoable(2, 0);
    driver.now += 4 * SECOND;
    driver.take(1);
    driver.undo(&first, 0);
    assert_eq!(driver.take(3).retry_after, Some(10 * SECOND));
    assert!(driver.take(2).allowed);
}

#[test]
fn hits_that_no_longer_count_are_not_undone() {
    let minute = 60 * SECOND;
    for (limit, wait) in [
        (fixed(5, minute), minute),
        (
            limit(5, Algorithm::SlidingWindow(SlidingWindow { n: 5, period: minute }), false),
            2 * minute,
        ),
        (log(5, minute), minute),
        (concurrency(5, None), minute),
    ] {
        let mut driver = Driver::new(vec![limit]);
        let undos = driver.take_undoable(2, 0);
        driver.now += wait;
        driver.take(2);
        driver.undo(&undos, 0);
        assert_eq!(driver.used(), [2], "{:?}", driver.plan);
    }
}

#[test]
fn an_undone_hold_makes_place_for_the_one_before() {
    let mut driver = Driver::new(vec![concurrency(9, Some("id"))]);
    let (a, b) = (1, 2);
    let state = |driver: &Driver| {
        let read = driver.plan.inspect(&driver.state, driver.now, &[]);
        (read.limits[0].used, driver.look().reset_after)
    };
    driver.take_undoable(2, a);
    driver.now += 10 * SECOND;
    driver.take_undoable(1, b);
    let before = driver.clone();
    driver.now += 10 * SECOND;
    // Twice in one request: undone last to first.
    let retries = [driver.take_undoable(3, a), driver.take_undoable(1, a)];
    assert_eq!(state(&driver), (2, 60 * SECOND));
    driver.undo(&retries[1], a);
    driver.undo(&retries[0], a);
    assert_eq!(state(&driver), (3, 50 * SECOND));
    // It expires when it would have.
    let mut later = Driver { now: before.now + 50 * SECOND, ..driver.clone() };
    assert_eq!(state(&later), (1, 10 * SECOND));
    // The hold was ended, or replaced again: nothing to undo.
    for op in [Op::Refund(1), Op::Take(4)] {
        driver.now += SECOND;
        let retry = driver.take_undoable(1, a);
        driver.now += SECOND;
        driver.plan.charge_hashed(&mut driver.state, driver.now, op, a);
        let ended = state(&driver);
        driver.undo(&retry, a);
        assert_eq!(state(&driver), ended);
    }
    // A hold that would have expired by now does not return.
    let retry = driver.take_undoable(1, b);
    driver.now += 59 * SECOND;
    driver.undo(&retry, b);
    assert_eq!(driver.used(), [4]);
    // A new one goes.
    let new = later.take_undoable(1, 3);
    later.undo(&new, 3);
    assert_eq!(state(&later), (1, 10 * SECOND));
}

#[test]
fn hits_in_flight_without_ids_change_as_long_ago_as_before() {
    let mut driver = Driver::new(vec![concurrency(9, None)]);
    driver.take(1);
    driver.now += 20 * SECOND;
    let undos = driver.take_undoable(3, 0);
    driver.now += SECOND;
    driver.undo(&undos, 0);
    assert_eq!((driver.used(), driver.look().reset_after), (vec![1], 39 * SECOND));
}

#[test]
fn more_hits_in_flight_than_32_bits_count_change_as_long_ago_as_before() {
    let mut driver = Driver::new(vec![Limit { charge_denied: true, ..concurrency(9, None) }]);
    for _ in 0..2 {
        driver.take(u32::MAX.into());
    }
    driver.now += 20 * SECOND;
    let (_, undos) = driver.charge_undoable(Op::Take(3), 0);
    driver.undo(&undos, 0);
    assert_eq!(driver.used(), [2 * u64::from(u32::MAX)]);
    assert_eq!(driver.look().reset_after, 40 * SECOND);
}

#[test]
fn an_undo_never_leaves_a_hold_without_hits() {
    let mut driver = Driver::new(vec![concurrency(9, Some("id"))]);
    driver.take_undoable(2, 1);
    let replaced = Some(Replaced { at: driver.now, hits: 0 });
    driver.undo(&[Undo { hits: 2, taken: driver.now, limits: 1, replaced }], 1);
    let holds = driver.plan.inspect(&driver.state, driver.now, &[]).holds;
    assert_eq!(holds.and_then(|holds| holds.ids), Some(0));
}

#[test]
fn hits_in_flight_that_others_took_at_the_same_time_stay() {
    let mut driver = Driver::new(vec![concurrency(2, None)]);
    let undos = driver.take_undoable(1, 0);
    assert!(driver.take(1).allowed);
    driver.now += SECOND;
    driver.undo(&undos, 0);
    assert_eq!((driver.used(), driver.look().reset_after), (vec![1], 59 * SECOND));
}

#[test]
fn undoing_many_charges_takes_off_what_has_drained_once() {
    // A hundred hits a second come back.
    for limit in [gcra(100, SECOND, 1_000), bucket(1_000, 100, SECOND)] {
        let mut driver = Driver::new(vec![limit]);
        let undos: Vec<_> = (0..10).map(|_| driver.take_undoable(100, 0)).collect();
        driver.now += SECOND;
        for undos in undos {
            driver.undo(&undos, 0);
        }
        assert_eq!(driver.look().remaining, 1_000, "{:?}", driver.plan);
    }
}

#[test]
fn hits_counted_while_the_clock_had_stepped_back_are_undone() {
    let minute = 60 * SECOND;
    for limit in [
        fixed(9, minute),
        limit(9, Algorithm::SlidingWindow(SlidingWindow { n: 9, period: minute }), false),
        limit(
            9,
            Algorithm::BucketedWindow(BucketedWindow { n: 9, period: minute, buckets: 6 }),
            false,
        ),
        log(9, minute),
        bucket(9, 1, minute),
    ] {
        let mut driver = Driver::new(vec![limit]);
        driver.take(1);
        driver.now -= SECOND;
        let undos = driver.take_undoable(2, 0);
        driver.undo(&undos, 0);
        assert_eq!(driver.used(), [1], "{:?}", driver.plan);
    }
}
