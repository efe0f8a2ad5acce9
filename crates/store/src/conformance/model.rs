//! A model of a store, a map and the arithmetic of plans, to compare stores with.

// A path, because the tests of other packages include this file.
#[path = "model/plans.rs"]
mod plans;

use std::collections::HashMap;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;

use self::plans::{PLANS, plans};
use super::{Charge, Key, Role, States, Store, charge, try_read};
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{Decision, Micros, Op, Plan, SECOND, State, Undo, UpTo};

/// Time passes, then a batch is charged.
#[derive(Clone, Debug)]
pub struct Step {
    pass: Micros,
    together: bool,
    charges: Vec<ModelCharge>,
}

/// One charge, by indices of key, plan and hold.
#[derive(Clone, Debug)]
struct ModelCharge {
    key: usize,
    plan: usize,
    /// To undo a charge, how long ago it was instead of its time.
    op: Op,
    hold: usize,
    role: Role,
}

/// Random schedules over few keys and all kinds of plans, a few plans each.
///
/// `together`: whether some batches are charged together.
pub fn schedules(together: bool) -> impl Strategy<Value = Vec<Step>> {
    schedules_over((0..PLANS).collect(), together)
}

/// Schedules like [`schedules`] with the plans that ban, over and over.
pub fn schedules_of_bans() -> impl Strategy<Value = Vec<Step>> {
    let plans = plans();
    schedules_over((0..PLANS).filter(|&plan| plans[plan].ban().is_some()).collect(), false)
}

fn schedules_over(plans: Vec<usize>, together: bool) -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![
        4 => Just(0),
        4 => 0..SECOND,
        2 => 0..20 * SECOND,
        2 => 0..90 * SECOND,
        1 => 0..3_700 * SECOND,
    ];
    schedules_of(pass.boxed(), plans, together)
}

/// Schedules like [`schedules`] over all representable times, 142 years, with the plans for which
/// `holds` is true.
pub fn long_schedules(
    together: bool,
    holds: impl Fn(&Plan) -> bool,
) -> impl Strategy<Value = Vec<Step>> {
    let year = 365 * 86_400 * SECOND;
    let pass = prop_oneof![
        4 => Just(0),
        2 => 0..2 * SECOND,
        2 => 0..90 * SECOND,
        1 => 0..2 * year,
        1 => 0..40 * year,
        1 => 0..END,
    ];
    let plans = plans();
    let which = (0..PLANS).filter(|&plan| holds(&plans[plan])).collect();
    schedules_of(pass.boxed(), which, together)
}

/// Returns the steps of a schedule as those of one domain: all batches are charged together, or none is.
pub fn of_one_domain(mut steps: Vec<Step>) -> Vec<Step> {
    let together = steps.first().is_some_and(|step| step.together);
    steps.iter_mut().for_each(|step| step.together = together);
    steps
}

/// The end of time: all times are below it.
const END: Micros = 1 << 52;

fn schedules_of(
    pass: BoxedStrategy<Micros>,
    plans: Vec<usize>,
    together: bool,
) -> impl Strategy<Value = Vec<Step>> {
    let few = prop::collection::vec(prop::sample::select(plans), 1..5);
    few.prop_flat_map(move |plans| {
        prop::collection::vec(step(pass.clone(), plans, together), 1..60)
    })
}

fn step(
    pass: BoxedStrategy<Micros>,
    plans: Vec<usize>,
    together: bool,
) -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        1 => Just(Op::Take(0)),
        6 => (1_u64..4).prop_map(Op::Take),
        1 => prop_oneof![Just(u64::from(u32::MAX)), Just(u64::MAX)].prop_map(Op::Take),
        2 => (1_u64..6).prop_map(Op::Refund),
        2 => undo().prop_map(Op::Undo),
        2 => add(),
        4 => up_to().prop_map(Op::UpTo),
    ];
    let role =
        prop_oneof![4 => Just(Role::Enforced), 1 => Just(Role::Quota), 1 => Just(Role::Shadow)];
    let asked = (0..KEYS.len(), prop::sample::select(plans), op, 0..HOLDS.len(), role);
    let asked =
        asked.prop_map(|(key, plan, op, hold, role)| ModelCharge { key, plan, op, hold, role });
    (pass, any::<bool>().prop_map(move |it| it && together), prop::collection::vec(asked, 1..6))
        .prop_map(|(pass, together, charges)| Step { pass, together, charges })
}

/// Returns the undo of hits that may have been taken.
fn undo() -> impl Strategy<Value = Undo> {
    let hits = prop_oneof![9 => 1_u32..4, 1 => Just(u32::MAX)];
    let ago = prop_oneof![3 => Just(0), 2 => 0..20 * SECOND, 1 => 0..200 * SECOND];
    (hits, ago, any::<u16>()).prop_map(|(hits, taken, limits)| Undo { hits, taken, limits })
}

/// Returns hits to take, and more where they are allowed.
fn up_to() -> impl Strategy<Value = UpTo> {
    let some = || prop_oneof![9 => 0_u32..5, 1 => Just(u32::MAX)];
    let share = prop_oneof![3 => Just(1), 2 => 2_u32..5, 1 => Just(u32::MAX)];
    (some(), some(), share.prop_filter_map("a share", NonZeroU32::new))
        .prop_map(|(least, more, share)| UpTo { least, most: least.saturating_add(more), share })
}

/// Returns the adding of hits to some limits.
fn add() -> impl Strategy<Value = Op> {
    let hits = prop_oneof![9 => 0_u32..6, 1 => Just(u32::MAX)];
    let limits = prop_oneof![2 => Just(u16::MAX), 1 => any::<u16>()];
    (hits, limits).prop_map(|(hits, limits)| Op::Add { hits, limits })
}

const KEYS: [&str; 3] = ["a", "b", ""];
const HOLDS: [&str; 3] = ["one", "two", "three"];

/// Key and shape, and the state counted under them.
#[derive(Clone, Default)]
struct Model(HashMap<(&'static str, String), State>);

impl Model {
    fn charge(&mut self, asked: &ModelCharge, plan: &Plan, now: Micros) -> Decision {
        let state = self.0.entry((KEYS[asked.key], plan.shape().to_owned())).or_default();
        plan.charge(state, now, asked.op_at(now), hold(asked, plan)).decision
    }
}

impl ModelCharge {
    /// Returns the operation as of a time.
    fn op_at(&self, now: Micros) -> Op {
        match self.op {
            Op::Take(_) | Op::Refund(_) | Op::UpTo(_) | Op::Add { .. } | Op::Reservation(_) => {
                self.op
            }
            Op::Undo(undo) => Op::Undo(Undo { taken: now.saturating_sub(undo.taken), ..undo }),
        }
    }
}

fn hold(asked: &ModelCharge, plan: &Plan) -> Option<&'static str> {
    plan.hold_id().map(|_| HOLDS[asked.hold])
}

/// Returns the decisions of a store on one step.
async fn of_step(
    store: &impl Store,
    domain: &str,
    plans: &[Arc<Plan>; PLANS],
    step: &Step,
    now: Micros,
) -> Vec<Decision> {
    let entries = KEYS.map(|value| [("key", value)]);
    let charges: Vec<Charge<'_>> = step
        .charges
        .iter()
        .map(|asked| Charge {
            key: Key { domain, entries: &entries[asked.key] },
            plan: &plans[asked.plan],
            op: asked.op_at(now),
            hold: hold(asked, &plans[asked.plan]),
            role: asked.role,
        })
        .collect();
    charge(store, &charges, step.together).await
}

/// Concurrent batches get the answers that they would have got one after the other.
pub async fn agrees_at_once(store: &impl Store, clock: &ManualClock, domain: &str, steps: &[Step]) {
    let plans = plans();
    let mut model = Model::default();
    for steps in steps.chunks(16) {
        clock.set((clock.now() + steps[0].pass).min(END - 1));
        let now = clock.now();
        let expected: Vec<Vec<Decision>> = steps
            .iter()
            .map(|step| {
                let asked = step.charges.iter();
                asked.map(|asked| model.charge(asked, &plans[asked.plan], now)).collect()
            })
            .collect();
        // Polled for the first time, and so sent, in this order.
        let mut asking: Vec<_> = steps
            .iter()
            .map(|step| (Box::pin(of_step(store, domain, &plans, step, now)), None))
            .collect();
        std::future::poll_fn(|context| {
            for (future, actual) in asking.iter_mut().filter(|(_, actual)| actual.is_none()) {
                if let Poll::Ready(decision) = future.as_mut().poll(context) {
                    *actual = Some(decision);
                }
            }
            match asking.iter().all(|(_, actual)| actual.is_some()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        for ((_, actual), (step, expected)) in asking.into_iter().zip(steps.iter().zip(expected)) {
            assert_eq!(actual, Some(expected), "{step:?}");
        }
    }
}

/// A clock that steps back far blocks no client for longer than a period, even if the first request
/// afterwards is denied: the store decides as the arithmetic of plans does.
pub async fn steps_back(store: &impl Store, clock: &ManualClock) {
    const DAY: i64 = 86_400;
    let plans = plans();
    let before = clock.now();
    let begun = [before, 41 * DAY as u64 * SECOND];
    let used = [(-50, Op::Take(2)), (0, Op::Take(1)), (0, Op::Take(90))];
    let refunded = [(0, Op::Take(1)), (0, Op::Refund(1)), (0, Op::Take(0))];
    let cases = begun.into_iter().flat_map(|begun| [(begun, used), (begun, refunded)]);
    for (case, (begun, first)) in cases.enumerate() {
        for (plan, of) in plans.iter().enumerate() {
            let mut model = Model::default();
            let domain = format!("back-{case}-{plan}");
            let after = [
                (-40 * DAY, 90),
                (-40 * DAY, 1),
                (-40 * DAY + 30, 1),
                (-40 * DAY + 61, 1),
                (-40 * DAY + 3_700, 1),
                (-38 * DAY, 1),
            ];
            let after = after.map(|(at, hits)| (at, Op::Take(hits)));
            for (at, op) in first.into_iter().chain(after) {
                clock.set(begun.saturating_add_signed(at * SECOND as i64));
                let asked = ModelCharge { key: 0, plan, op, hold: 0, role: Role::Enforced };
                let expected = model.charge(&asked, of, clock.now());
                let step = Step { pass: 0, together: false, charges: vec![asked] };
                let actual = of_step(store, &domain, &plans, &step, clock.now()).await;
                assert_eq!(actual, [expected], "{of:?}: {op:?} {at} s from {begun}");
            }
        }
    }
    clock.set(before);
}

/// A store answers a schedule as the model does, whatever maintenance it does `between` the steps.
pub async fn agrees(
    store: &impl Store,
    clock: &ManualClock,
    domain: &str,
    steps: &[Step],
    between: impl Fn(),
) {
    let plans = plans();
    let mut model = Model::default();
    for step in steps {
        clock.set((clock.now() + step.pass).min(END - 1));
        between();
        let now = clock.now();
        let before = model.clone();
        let expected: Vec<Decision> =
            step.charges.iter().map(|asked| model.charge(asked, &plans[asked.plan], now)).collect();
        if step.together && denied(step, &expected) {
            model = before;
            for asked in &step.charges {
                if asked.op.is_unconditional() {
                    model.charge(asked, &plans[asked.plan], now);
                }
            }
        }

        let actual = of_step(store, domain, &plans, step, now).await;
        assert_eq!(actual, expected, "{step:?}");
        if step.together {
            let look = |asked: &ModelCharge| ModelCharge { op: Op::Take(0), ..asked.clone() };
            let charges: Vec<ModelCharge> = step.charges.iter().map(look).collect();
            let looked = |asked: &ModelCharge| model.charge(asked, &plans[asked.plan], now);
            let expected: Vec<Decision> = charges.iter().map(looked).collect();
            let looks = Step { pass: 0, together: true, charges };
            let actual = of_step(store, domain, &plans, &looks, now).await;
            assert_eq!(actual, expected, "after {step:?}");
        }
    }
}

/// At each step of a schedule, keys read as the model's states do.
pub async fn reads_agree(store: &impl States, clock: &ManualClock, domain: &str, steps: &[Step]) {
    const SPANS: [Micros; 4] = [1, 7 * SECOND, 59 * SECOND + 1, 600 * SECOND];
    let plans = plans();
    let mut model = Model::default();
    for step in steps {
        clock.set((clock.now() + step.pass).min(END - 1));
        let now = clock.now();
        for asked in &step.charges {
            model.charge(asked, &plans[asked.plan], now);
        }
        of_step(store, domain, &plans, step, now).await;
        let Some(ModelCharge { key, plan, .. }) = step.charges.last() else { continue };
        let plan = &plans[*plan];
        let state = model.0.entry((KEYS[*key], plan.shape().to_owned())).or_default();
        let expected = plan.inspect(state, now, &SPANS);
        let entries = [("key", KEYS[*key])];
        let key = Key { domain, entries: &entries };
        assert_eq!(try_read(store, key, plan, &SPANS).await, Ok(expected), "{plan:?}: {step:?}");
    }
}

fn denied(step: &Step, decision: &[Decision]) -> bool {
    let with = |role: Role| {
        let of_role =
            step.charges.iter().zip(decision).filter(move |(charge, _)| charge.role == role);
        of_role.map(|(_, decision)| decision.allowed)
    };
    let quotas_denied = with(Role::Quota).next().is_some() && !with(Role::Quota).any(|ok| ok);
    quotas_denied || with(Role::Enforced).any(|ok| !ok)
}
