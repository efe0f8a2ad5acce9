//! Hits that are granted ahead of their use, and returned.

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::future::join4;

use super::charges::{TIMEOUT, charge, plan, take, try_read};
use crate::charge::{Batch, Charge, Key, Role};
use crate::states::{Grant, States};
use weir_common::clock::{Clock, ManualClock};
use weir_common::entry::Entry;
use weir_limit::{
    Algorithm, BucketedWindow, Decision, Limit, Micros, Op, Plan, SECOND, SlidingWindow, State,
    Undo, Unit, UpTo,
};

const DOMAIN: &str = "grants";

/// At its multiples all windows here start.
const DAY: Micros = 86_400 * SECOND;

/// Runs the part of the suite about grants.
pub async fn conforms(store: &impl States, clock: &ManualClock) {
    let before = clock.now();
    grants_as_it_charges(store, clock).await;
    returns_what_was_granted(store, clock).await;
    clock.set(before);
    charges_all_of_concurrent_grants(store).await;
}

/// Plans of limits with windows, each with its period.
fn plans() -> Vec<(Arc<Plan>, Micros)> {
    let (n, hour) = (6, 3_600 * SECOND);
    let fixed = |unit| Limit { charge_denied: false, ..Limit::fixed_window(n, unit, 1).unwrap() };
    let with = |algorithm| Limit { algorithm, ..fixed(Unit::Hour) };
    let sliding = with(Algorithm::SlidingWindow(SlidingWindow { n, period: hour }));
    let ring = with(Algorithm::BucketedWindow(BucketedWindow { n, period: hour, buckets: 6 }));
    let hourly = [
        vec![fixed(Unit::Hour)],
        vec![Limit { charge_denied: true, ..fixed(Unit::Hour) }],
        vec![sliding.clone()],
        vec![ring.clone()],
        vec![fixed(Unit::Hour), sliding, ring],
    ];
    let second = (vec![fixed(Unit::Second)], SECOND);
    let all = hourly.map(|limits| (limits, hour)).into_iter().chain([second]);
    all.map(|(limits, period)| (Arc::new(Plan::new(limits)), period)).collect()
}

fn charge_of<'a>(entries: &'a [Entry<'a>], plan: &'a Arc<Plan>, op: Op) -> Charge<'a> {
    Charge { key: Key { domain: DOMAIN, entries }, plan, op, hold: None, role: Role::Enforced }
}

async fn one(store: &impl States, value: &str, plan: &Arc<Plan>, op: Op) -> Decision {
    charge(store, &[charge_of(&[("key", value)], plan, op)], false).await.swap_remove(0)
}

async fn grant(store: &impl States, value: &str, plan: &Arc<Plan>, op: Op) -> Grant {
    let entries = [("key", value)];
    store.grant(&Batch::new(&[charge_of(&entries, plan, op)], TIMEOUT)).await.unwrap()
}

/// Undoes up to `most` of the hits of each part of a grant.
async fn undo(store: &impl States, value: &str, plan: &Arc<Plan>, granted: &Grant, most: u32) {
    for undo in granted.undos.iter().rev() {
        let part = Undo { hits: undo.hits.min(most), ..*undo };
        assert!(one(store, value, plan, Op::Undo(part)).await.allowed);
    }
}

fn up_to(least: u32, most: u32, share: u32) -> Op {
    Op::UpTo(UpTo { least, most, share: NonZeroU32::new(share).unwrap() })
}

/// A grant is decided as a charge is, at the time of the store. Hits that were not granted are not to be undone.
pub async fn grants_as_it_charges(store: &impl States, clock: &ManualClock) {
    for (i, (plan, period)) in plans().into_iter().enumerate() {
        clock.set(clock.now().next_multiple_of(DAY));
        let [granting, charging] = [format!("granted {i}"), format!("charged {i}")];
        let mut model = State::default();
        let steps = [
            (up_to(1, 4, 1), period / 2),
            // Less than a share is left.
            (up_to(0, 9, 2), period - period / 2 - 1),
            (up_to(1, 9, 1), 0),
            (up_to(3, 9, 1), 0),
            (up_to(0, 9, 1), 1),
            (up_to(2, 9, 1), 0),
            (up_to(0, 9, 1), 2 * period),
            (up_to(1, 9, 1), 0),
        ];
        for (at, (op, pass)) in steps.into_iter().enumerate() {
            let (expected, undos) = plan.charge_undoable(&mut model, clock.now(), op);
            let granted = grant(store, &granting, &plan, op).await;
            let what = format!("{at}: {op:?} of {}", plan.shape());
            assert_eq!(granted.decision, expected.decision, "{what}");
            assert_eq!(granted.decision, one(store, &charging, &plan, op).await, "{what}");
            assert_eq!(granted.now, clock.now(), "{what}");
            let undos = if granted.decision.granted > 0 { undos } else { Vec::new() };
            assert_eq!(granted.undos, undos, "{what}");
            assert_eq!(undos.is_empty(), granted.decision.granted == 0, "{what}");
            clock.advance(pass);
        }
    }
}

/// Undone in part or wholly, a grant was one of fewer hits. Hits of an ended window are not returned to the next one.
pub async fn returns_what_was_granted(store: &impl States, clock: &ManualClock) {
    for (i, (plan, period)) in plans().into_iter().enumerate() {
        let last = period - 1;
        let times = [(0, 0), (0, last), (0, period), (0, 3 * period), (last, 0), (last, 1)];
        let cases = times.into_iter().flat_map(|times| [1, 3].map(|returned| (times, returned)));
        for ((start, wait), returned) in cases {
            clock.set(clock.now().next_multiple_of(DAY) + start);
            let value = format!("returned {i} {start} {wait} {returned}");
            let mut model = State::default();
            let mut expect = |hits| plan.charge(&mut model, clock.now(), Op::Take(hits), None);
            expect(1);
            one(store, &value, &plan, Op::Take(1)).await;
            expect(3 - u64::from(returned));
            let granted = grant(store, &value, &plan, up_to(1, 3, 1)).await;
            assert_eq!(granted.decision.granted, 3, "{value}");
            clock.advance(wait);
            expect(2);
            assert!(one(store, &value, &plan, Op::Take(2)).await.allowed, "{value}");
            undo(store, &value, &plan, &granted, returned).await;
            let key = Key { domain: DOMAIN, entries: &[("key", value.as_str())] };
            let expected = plan.inspect(&model, clock.now(), &[]);
            let read = try_read(store, key, &plan, &[]).await;
            assert_eq!(read, Ok(expected), "{value} of {}", plan.shape());
        }
    }
}

/// Of concurrent charges of a key, each grant is charged, and undone, once.
pub async fn charges_all_of_concurrent_grants(store: &impl States) {
    let (hour, value) = (plan(100, Unit::Hour), "concurrent");
    let take = |hits| take(store, DOMAIN, value, &hour, hits);
    let grant = || grant(store, value, &hour, up_to(2, 3, 1));
    for round in 1..4 {
        let (_, first, _, second) = join4(take(1), grant(), take(1), grant()).await;
        for granted in [&first, &second] {
            assert_eq!(granted.decision.granted, 3);
        }
        assert_eq!(take(0).await.used_before, 2 * round + 6);
        undo(store, value, &hour, &second, 3).await;
        undo(store, value, &hour, &first, 3).await;
        assert_eq!(take(0).await.used_before, 2 * round);
    }
}
