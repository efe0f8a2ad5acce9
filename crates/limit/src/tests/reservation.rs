//! Reservations, against a ledger of hits by window.

use std::collections::HashMap;
use std::num::NonZeroU16;

use proptest::prelude::*;

use super::model::{Kind, Model};
use super::properties::model;
use super::*;
use crate::plan::reservation::KeyCounts;

mod examples;

const MINUTE: Micros = 60 * SECOND;

/// Keys with ids, in one of the forms of a state.
#[derive(Clone, Default)]
struct Ids<S> {
    counts: S,
    reservations: HashMap<u8, Reservation>,
}

impl<S: KeyCounts + Default> Ids<S> {
    fn make(&mut self, plan: &Plan, now: Micros, id: u8, op: ReservationOp) -> ChargeOutcome {
        let mut reservation = self.reservations.remove(&id);
        let made = plan.charge_reservation(&mut self.counts, &mut reservation, now, op);
        // As a store, it keeps no state that means the same as none.
        if made.expires <= now {
            self.counts = S::default();
        }
        self.reservations.extend(reservation.map(|it| (id, it)));
        made
    }
}

fn reserve(least: u32, most: u32) -> ReservationOp {
    ReservationOp::Reserve { reserve: Reserve { least, most, timeout: 600 }, once: None }
}

fn window(n: u32, period: Micros) -> Limit {
    limit(n, Algorithm::SlidingWindow(SlidingWindow { n, period }), false)
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow_mode: true, ..limit }
}

/// As a store, keeps no state that means the same as none.
fn keep(driver: &mut Driver, made: ChargeOutcome) -> Decision {
    if made.expires <= driver.now {
        driver.state = State::default();
    }
    made.decision
}

/// A plan, a key and a clock.
struct Key {
    plan: Plan,
    now: Micros,
    ids: Ids<State>,
}

impl Key {
    fn new(limits: Vec<Limit>) -> Key {
        let key = Key { plan: Plan::new(limits), now: NOON, ids: Ids::default() };
        assert!(key.plan.can_reserve());
        key
    }

    fn make(&mut self, id: u8, op: ReservationOp) -> Decision {
        self.ids.make(&self.plan, self.now, id, op).decision
    }

    /// Reserves hits, which are granted.
    fn reserve(&mut self, id: u8, hits: u32) {
        let decision = self.make(id, reserve(1, hits));
        assert_eq!((decision.allowed, decision.granted), (true, hits));
        assert_eq!(decision.reservation, ReservationResult::Reserved);
    }

    /// Settles a reservation. Returns what it was of.
    fn settle(&mut self, id: u8, used: u32) -> u32 {
        let decision = self.make(id, ReservationOp::settle(used));
        assert_eq!(decision.reservation, ReservationResult::Settled);
        decision.reserved
    }

    fn used(&self) -> Vec<u64> {
        let read = self.plan.inspect(&self.ids.counts, self.now, &[]);
        read.limits.iter().map(|limit| limit.used).collect()
    }
}

fn op() -> impl Strategy<Value = ReservationOp> {
    let hits = || prop_oneof![4 => 0_u32..12, 1 => Just(u32::MAX)];
    let reserve = || {
        let timeout = prop_oneof![3 => Just(600), 1 => 1_u32..3];
        (1_u32..4, 0_u32..9, timeout).prop_map(|(least, more, timeout)| Reserve {
            least,
            most: least + more,
            timeout,
        })
    };
    let otherwise = prop_oneof![
        3 => Just(Otherwise::Charge),
        1 => Just(Otherwise::Nothing),
        1 => reserve().prop_map(Otherwise::Reserve),
    ];
    prop_oneof![
        4 => (reserve(), 0_u16..6).prop_map(|(reserve, tag)| {
            // Half of them add up.
            let once = NonZeroU16::new(tag / 2);
            ReservationOp::Reserve { reserve, once }
        }),
        5 => (hits(), otherwise).prop_map(|(used, otherwise)| ReservationOp::Settle { used, otherwise }),
        1 => hits().prop_map(ReservationOp::Cancel),
    ]
}

fn steps() -> impl Strategy<Value = Vec<(i64, u8, ReservationOp)>> {
    let step = prop_oneof![
        4 => Just(0),
        4 => 0..2_000_000_i64,
        2 => 0..200_000_000_i64,
        1 => -100_000_000..0_i64,
    ];
    prop::collection::vec((step, 0_u8..3, op()), 1..40)
}

/// Hits of a reservation, as the ledger has them.
#[derive(Clone, Copy)]
struct Entry {
    minute: u64,
    hits: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// A window has what was reserved in it and settled while it counted, at most by what was used; all of
    /// what was not settled; and what was used beyond a reservation that was settled in it.
    #[test]
    fn a_window_counts_what_the_ledger_says(
        n in 1_u32..30,
        steps in prop::collection::vec((0_u64..25_000_000, 1_u32..9, 0_u32..12, 0_usize..4), 1..60),
    ) {
        let mut key = Key::new(vec![fixed(n, MINUTE), window(n, MINUTE)]);
        let mut ledger: Vec<Entry> = Vec::new();
        // Reservations with the numbers of steps after which they are settled, and the hits used.
        let mut open: Vec<(usize, u8, u32, usize)> = Vec::new();
        for (i, (wait, most, used, after)) in steps.into_iter().enumerate() {
            key.now += wait;
            let minute = key.now / MINUTE;
            let decision = key.make(i as u8, reserve(1, most));
            prop_assert!(key.used()[0] <= u64::from(n) || !decision.allowed);
            if decision.allowed {
                open.push((i + after, i as u8, used, ledger.len()));
                ledger.push(Entry { minute, hits: decision.granted.into() });
            }
            let (due, later) = open.into_iter().partition(|(at, ..)| *at == i);
            open = later;
            let due: Vec<_> = due;
            for (_, id, used, entry) in due {
                let (used, entry) = (u64::from(used), &mut ledger[entry]);
                prop_assert_eq!(u64::from(key.settle(id, used as u32)), entry.hits);
                let beyond = used.saturating_sub(entry.hits);
                // A sliding window also returns hits to the window before; it is not asked for its sum here.
                entry.hits = entry.hits.min(used);
                ledger.push(Entry { minute, hits: beyond });
            }
            let sum = |minute| {
                let of = ledger.iter().filter(|entry| entry.minute == minute);
                of.map(|entry| entry.hits).sum::<u64>()
            };
            // What was returned after the end of its window was of another minute.
            prop_assert_eq!(key.used()[0], sum(minute));
            let weighted = {
                let left = MINUTE - key.now % MINUTE;
                (sum(minute - 1) as f64 * left as f64 / MINUTE as f64).ceil() as u64
            };
            prop_assert_eq!(key.used()[1], sum(minute) + weighted);
        }
    }

    /// Both forms of a state decide alike, also where the clock steps back.
    #[test]
    fn packed_states_reserve_the_same((model, steps) in (model(), steps())) {
        let limit = Limit { charge_denied: false, ..model.limit() };
        let plan = Plan::new(vec![limit]);
        if !plan.packs() || !plan.can_reserve() {
            return Ok(());
        }
        let (mut boxed, mut packed) = (Ids::<State>::default(), Ids::<Packed>::default());
        let mut now = NOON;
        for (step, id, op) in steps {
            now = now.saturating_add_signed(step);
            let made = boxed.make(&plan, now, id, op);
            prop_assert_eq!(&made, &packed.make(&plan, now, id, op), "{:?}", op);
            prop_assert_eq!(&boxed.reservations, &packed.reservations);
        }
    }

    /// What is returned and what is charged are those of the plain operations, for each limit that took
    /// the hits; nothing is ever returned twice.
    #[test]
    fn reserving_and_settling_are_plain_charges(
        limits in prop::collection::vec((model(), prop::bool::weighted(0.3)), 1..4),
        steps in prop::collection::vec((0_u64..90_000_000, 1_u32..4, 0_u32..9, 0_u32..9), 1..40),
    ) {
        let limits = limits.into_iter().map(|(model, is_watched)| {
            let limit = Limit { charge_denied: false, ..model.limit() };
            if is_watched { shadow(limit) } else { limit }
        });
        let plan = Plan::new(limits.filter(|limit| limit.algorithm.window_end(0).is_some()).collect());
        if plan.limits().is_empty() {
            return Ok(());
        }
        let mut key = Key { plan: plan.clone(), now: NOON, ids: Ids::default() };
        let mut naive = Driver { plan, state: State::default(), now: NOON };
        for (wait, least, more, used) in steps {
            key.now += wait;
            naive.now += wait;
            let decision = key.make(0, reserve(least, least + more));
            let share = std::num::NonZeroU32::MIN;
            let up_to = Op::UpTo(UpTo { least, most: least + more, share });
            let made = naive.charge(up_to);
            let expected = keep(&mut naive, made);
            let reservation = decision.reservation;
            prop_assert_eq!(&decision, &Decision { reservation, ..expected });
            prop_assert_eq!(&key.ids.counts, &naive.state);
            if !decision.allowed {
                continue;
            }
            let taken = naive.now;
            let limits = !decision.would_deny;
            key.now += wait / 2;
            naive.now += wait / 2;
            prop_assert_eq!(key.settle(0, used), decision.granted);
            let op = match decision.granted.checked_sub(used) {
                Some(hits @ 1..) => Op::Undo(Undo { hits, taken, limits }),
                _ => Op::Add { hits: used - decision.granted, limits },
            };
            let made = naive.charge(op);
            keep(&mut naive, made);
            prop_assert_eq!(&key.ids.counts, &naive.state);
            prop_assert!(key.ids.reservations.is_empty());
        }
    }

    /// Wherever the clock steps, settling returns at most what undoing the charge limit by limit does,
    /// now and later; exactly that if the clock has not stepped back. If it has since the hits were reserved, it may
    /// have moved them to another window, where only one of both finds them: then at most the rest is returned.
    #[test]
    fn settling_returns_no_more_than_each_limit_would(
        limits in prop::collection::vec((model(), prop::bool::weighted(0.2)), 1..4),
        steps in prop::collection::vec((clock_step(), 1_u32..9, 0_u32..9, 0_usize..4), 1..40),
    ) {
        let limits = limits.into_iter().map(|(model, is_watched)| {
            let limit = Limit { charge_denied: false, ..model.limit() };
            if is_watched { shadow(limit) } else { limit }
        });
        let plan = Plan::new(limits.filter(|limit| limit.algorithm.window_end(0).is_some()).collect());
        if plan.limits().is_empty() {
            return Ok(());
        }
        let mut key = Key { plan: plan.clone(), now: NOON, ids: Ids::default() };
        let (mut stepped_back, mut last_back) = (false, 0);
        // Reservations with the number of the step after which they are settled.
        let mut open: Vec<(usize, usize, u32, Vec<Undo>)> = Vec::new();
        for (i, (wait, most, used, after)) in steps.into_iter().enumerate() {
            key.now = key.now.saturating_add_signed(wait);
            if wait < 0 {
                (stepped_back, last_back) = (true, i);
            }
            let up_to = UpTo { least: 1, most, share: std::num::NonZeroU32::MIN };
            let mut alone = key.ids.counts.clone();
            let (_, undos) = plan.charge_undoable(&mut alone, key.now, Op::UpTo(up_to));
            if key.make(i as u8, reserve(1, most)).allowed {
                open.push((i + after, i, used, undos));
            }
            let (due, later) = open.into_iter().partition(|(at, ..)| *at <= i);
            open = later;
            let due: Vec<_> = due;
            for (_, made, used, undos) in due {
                let id = made as u8;
                let rest = key.ids.reservations[&id].hits.saturating_sub(used);
                let mut expected = Driver { plan: plan.clone(), state: key.ids.counts.clone(), now: key.now };
                let before = expected.used();
                for undo in undos.iter().filter(|_| rest > 0) {
                    let made = expected.charge(Op::Undo(Undo { hits: rest, ..*undo }));
                    keep(&mut expected, made);
                }
                key.settle(id, used);
                if rest == 0 {
                    continue;
                }
                if !stepped_back {
                    prop_assert_eq!(&key.ids.counts, &expected.state);
                }
                if last_back > made {
                    let after = Driver { state: key.ids.counts.clone(), ..expected.clone() };
                    for (before, after) in before.into_iter().zip(after.used()) {
                        prop_assert!(after + u64::from(rest) >= before, "{after} + {rest} < {before}");
                    }
                    continue;
                }
                for later in [0, 1, SECOND / 3, SECOND, 30 * SECOND, MINUTE] {
                    expected.now = key.now + later;
                    let state = key.ids.counts.clone();
                    let actual = Driver { state, ..expected.clone() };
                    let pairs = actual.used().into_iter().zip(expected.used());
                    for (at, (actual, expected)) in pairs.enumerate() {
                        prop_assert!(actual >= expected, "{at}: {actual} < {expected}, {later}");
                    }
                }
            }
        }
    }
}

/// How far a clock goes in a step.
fn clock_step() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        3 => 0..2_000_000_i64,
        2 => 0..90_000_000_i64,
        1 => -10..0_i64,
        2 => -1_500_000..0_i64,
        1 => -100_000_000..0_i64,
    ]
}
