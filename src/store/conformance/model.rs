//! A store that is nothing but a map and a plan's own arithmetic, to compare stores with.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{charge, plan};
use crate::clock::{Clock, ManualClock};
use crate::limit::{Judged, Micros, Op, Plan, SECOND, State, Unit};
use crate::store::{Charge, Key, Role, Store};

/// Time passes, then a batch is charged.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pass: Micros,
    together: bool,
    charges: Vec<(usize, usize, Op, Role)>,
}

/// Random schedules over few keys and plans.
pub(crate) fn schedules() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![
        4 => Just(0),
        4 => 0..SECOND,
        2 => 0..90 * SECOND,
        1 => 0..3_700 * SECOND,
    ];
    let op = prop_oneof![
        1 => Just(Op::Take(0)),
        6 => (1_u64..4).prop_map(Op::Take),
        1 => prop_oneof![Just(u64::from(u32::MAX)), Just(u64::MAX)].prop_map(Op::Take),
        2 => (1_u64..6).prop_map(Op::GiveBack),
    ];
    let role = prop_oneof![4 => Just(Role::Binds), 1 => Just(Role::Quota), 1 => Just(Role::Shadow)];
    let charges = prop::collection::vec((0..KEYS.len(), 0..PLANS, op, role), 1..6);
    let step = (pass, any::<bool>(), charges);
    let step = step.prop_map(|(pass, together, charges)| Step { pass, together, charges });
    prop::collection::vec(step, 1..60)
}

const KEYS: [&str; 3] = ["a", "b", ""];
const PLANS: usize = 5;

fn plans() -> [Arc<Plan>; PLANS] {
    // The first two have one shape, so they share their counts.
    [
        plan(3, Unit::Second),
        plan(2, Unit::Second),
        plan(5, Unit::Minute),
        plan(8, Unit::Hour),
        plan(0, Unit::Minute),
    ]
}

/// Key and shape, and the state counted under them.
#[derive(Clone, Default)]
struct Model(HashMap<(&'static str, Vec<u8>), State>);

impl Model {
    fn charge(&mut self, key: &'static str, plan: &Plan, now: Micros, op: Op) -> Judged {
        let state = self.0.entry((key, plan.shape().to_vec())).or_default();
        plan.charge(state, now, op, None).judged
    }
}

/// A store answers a schedule as the model does, whatever it tidies up `between` the steps.
pub(crate) async fn agrees(
    store: &impl Store,
    clock: &ManualClock,
    domain: &str,
    steps: &[Step],
    between: impl Fn(),
) {
    let plans = plans();
    let mut model = Model::default();
    for step in steps {
        clock.advance(step.pass);
        between();
        let now = clock.now();
        let before = model.clone();
        let expected: Vec<Judged> = step
            .charges
            .iter()
            .map(|&(key, plan, op, _)| model.charge(KEYS[key], &plans[plan], now, op))
            .collect();
        if step.together && denied(step, &expected) {
            model = before;
            for &(key, plan, op, _) in &step.charges {
                if let Op::GiveBack(_) = op {
                    model.charge(KEYS[key], &plans[plan], now, op);
                }
            }
        }

        let entries = KEYS.map(|value| [("key", value)]);
        let charges: Vec<Charge<'_>> = step
            .charges
            .iter()
            .map(|&(key, plan, op, role)| Charge {
                key: Key { domain, entries: &entries[key] },
                plan: &plans[plan],
                op,
                hold: None,
                role,
            })
            .collect();
        assert_eq!(charge(store, &charges, step.together).await, expected, "{step:?}");
    }
}

fn denied(step: &Step, judged: &[Judged]) -> bool {
    let with = |role: Role| {
        let of_role = step.charges.iter().zip(judged).filter(move |(charge, _)| charge.3 == role);
        of_role.map(|(_, judged)| judged.allowed)
    };
    let quotas_denied = with(Role::Quota).next().is_some() && !with(Role::Quota).any(|ok| ok);
    quotas_denied || with(Role::Binds).any(|ok| !ok)
}
