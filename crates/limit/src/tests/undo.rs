//! Charges that are undone are as if they had not been made.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::model::{Kind, Model};
use super::properties::model;
use super::*;

impl Driver {
    /// Charges, and returns what undoes it.
    fn charge_undoable(&mut self, op: Op) -> (Decision, Vec<Undo>) {
        let Driver { plan, state, now } = self;
        let (outcome, undos) = plan.charge_undoable(state, *now, op);
        (outcome.decision, undos)
    }

    /// Takes hits, all of which are allowed, and returns what undoes them.
    fn take_undoable(&mut self, hits: u64) -> Vec<Undo> {
        let (decision, undos) = self.charge_undoable(Op::Take(hits));
        assert!(decision.allowed);
        undos
    }

    fn undo(&mut self, undos: &[Undo]) {
        for undo in undos.iter().rev() {
            self.plan.charge_hashed(&mut self.state, self.now, Op::Undo(*undo), 0);
        }
    }

    fn look(&self) -> Decision {
        self.clone().take(0)
    }
}

/// Returns a model of windows in place of one that has none.
fn windows(model: Model) -> Model {
    match model.kind {
        Kind::HitLog | Kind::Token { .. } | Kind::Gcra { .. } => {
            Model::new(Kind::Sliding, model.n, model.period)
        }
        Kind::Fixed | Kind::Sliding | Kind::Bucketed { .. } => model,
    }
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
        let mut model = windows(model);
        let mut driver = Driver::new(vec![model.limit()]);
        let mut due: Vec<(usize, Micros, u64, u64, Vec<Undo>)> = Vec::new();
        for (at, (wait, hits, undone_after)) in steps.into_iter().enumerate() {
            driver.now += wait;
            due.retain(|(when, taken, hits, back, undos)| {
                if *when <= at {
                    model.undo(*taken, *hits, *back);
                    let part = |undo: &Undo| Undo { hits: *back as u32, ..*undo };
                    driver.undo(&undos.iter().map(part).collect::<Vec<_>>());
                }
                *when > at
            });
            let allowed = model.take(driver.now, hits);
            let (decision, undos) = driver.charge_undoable(Op::Take(hits));
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
            let (n, period) = (model.n, model.period);
            (Just(Model::new(windows(model).kind, n, period)), steps(period))
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
                    driver.undo(&undos.iter().map(part).collect::<Vec<_>>());
                }
                *when > at
            });
            let up_to = UpTo { least: 1, most: 2 * hits as u32, share: NonZeroU32::MIN };
            let (decision, undos) = driver.charge_undoable(Op::UpTo(up_to));
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
                    Kind::Bucketed { .. } => n * (span / p + 1),
                    Kind::HitLog | Kind::Token { .. } | Kind::Gcra { .. } => unreachable!("no window"),
                };
                prop_assert!(sum <= most, "{} in {} microseconds, at most {}", sum, span, most);
            }
        }
    }

    /// Whatever others take in between, an undo leaves no more room than if the charge had not been made,
    /// and no less than before. At once it leaves the same.
    #[test]
    fn an_undo_frees_no_more_than_was_taken(
        model in model().prop_map(windows),
        before in prop::collection::vec((0_u64..3_000_000, 1_u64..4), 0..6),
        hits in 1_u64..12,
        between in prop::collection::vec((0_u64..1_500_000, 1_u64..4), 0..6),
        at_once in any::<bool>(),
    ) {
        let mut without = Driver::new(vec![model.limit()]);
        for (wait, hits) in before {
            without.now += wait;
            without.take(hits);
        }
        let mut driver = without.clone();
        let (_, undos) = driver.charge_undoable(Op::Take(hits));
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
        driver.undo(&undos);
        let (undone, never) = (driver.look(), without.look());
        prop_assert!(kept <= undone.remaining, "{:?} {:?}", kept, undone);
        prop_assert!(undone.remaining <= never.remaining, "{:?} {:?}", undone, never);
        if at_once {
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
    let undos = driver.take_undoable(1);
    assert_eq!(driver.used(), [3, 2]);
    driver.undo(&undos);
    assert_eq!(driver.used(), [2, 2]);
    // A denied charge is undone where it was charged.
    let charged = Limit { charge_denied: true, ..fixed(9, 60 * SECOND) };
    let mut driver = Driver::new(vec![fixed(1, 60 * SECOND), charged]);
    let (decision, undos) = driver.charge_undoable(Op::Take(2));
    assert!(!decision.allowed);
    assert_eq!(driver.used(), [0, 2]);
    driver.undo(&undos);
    assert_eq!(driver.used(), [0, 0]);
    // Looks, refunds, undos and hits that are added have nothing to undo.
    let undo = Op::Undo(Undo { limits: 3, ..undos[0] });
    for op in [Op::Take(0), Op::Refund(1), undo, Op::Add { hits: 1, limits: 3 }] {
        assert_eq!(driver.charge_undoable(op).1, []);
    }
}

#[test]
fn a_full_count_is_undone_by_what_it_grew() {
    let all = Limit { charge_denied: true, ..fixed(9, 60 * SECOND) };
    let mut driver = Driver::new(vec![all]);
    driver.take(4);
    let (_, undos) = driver.charge_undoable(Op::Take(u64::MAX));
    assert_eq!(driver.used(), [u64::from(u32::MAX)]);
    driver.undo(&undos);
    assert_eq!(driver.used(), [4]);
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
    ] {
        let mut driver = Driver::new(vec![limit]);
        let undos = driver.take_undoable(2);
        driver.now += wait;
        driver.take(2);
        driver.undo(&undos);
        assert_eq!(driver.used(), [2], "{:?}", driver.plan);
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
    ] {
        let mut driver = Driver::new(vec![limit]);
        driver.take(1);
        driver.now -= SECOND;
        let undos = driver.take_undoable(2);
        driver.undo(&undos);
        assert_eq!(driver.used(), [1], "{:?}", driver.plan);
    }
}
