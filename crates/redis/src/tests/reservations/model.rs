//! Random schedules, against the arithmetic of plans.

use std::collections::HashMap;
use std::iter::zip;
use std::num::NonZeroU16;

use proptest::prelude::*;

use super::*;
use weir_common::clock::Clock as _;
use weir_limit::{Ban, BucketedWindow, Otherwise, Reservation, State, Undo};

const KEYS: [&str; 2] = ["a", "b"];
const IDS: [&str; 3] = ["one", "two", ""];

/// How far the clock goes back: less than the shortest period. A state that is further ahead is moved, and
/// expires at once if it is empty.
const MAX_STEP_BACK: Micros = 6 * SECOND;

/// Time passes, or the clock steps back; then a batch is charged.
#[derive(Clone, Debug)]
struct Step {
    pass: i64,
    together: bool,
    charges: Vec<ModelCharge>,
}

/// One charge, by indices of key, plan and id.
#[derive(Clone, Copy, Debug)]
struct ModelCharge {
    key: usize,
    plan: usize,
    id: usize,
    op: Op,
    role: Role,
}

fn plans() -> Vec<Arc<Plan>> {
    let sliding = |n, period| limit(n, Algorithm::SlidingWindow(SlidingWindow { n, period }));
    let bucketed = |n, buckets| {
        limit(n, Algorithm::BucketedWindow(BucketedWindow { n, period: MINUTE, buckets }))
    };
    let denied = |limit| Limit { charge_denied: true, ..limit };
    let shadow = |limit| Limit { shadow_mode: true, ..limit };
    let calendar = Some(Calendar::new(Unit::Day, "Europe/Vienna").unwrap().into());
    let day = FixedWindow { n: 20, period: 1_440 * MINUTE, calendar };
    let day = limit(20, Algorithm::FixedWindow(day));
    let plans = [
        vec![fixed(12)],
        vec![fixed(0)],
        vec![shadow(fixed(5))],
        vec![day, sliding(9, 30 * SECOND)],
        vec![sliding(12, MINUTE)],
        vec![bucketed(12, 6), fixed(30)],
        vec![denied(fixed(12))],
        vec![denied(sliding(12, MINUTE))],
        vec![denied(fixed(0))],
        vec![denied(bucketed(9, 6)), shadow(denied(fixed(6)))],
        vec![fixed(u32::MAX), shadow(sliding(4, MINUTE)), shadow(bucketed(6, 60))],
    ];
    let plans = plans.map(|limits| Plan::new(limits).with_near_limit_ratio(Some(0.5)));
    let ban = |after| Ban {
        after,
        within: MINUTE,
        lengths: [5 * SECOND, MINUTE].into(),
        forget: 10 * MINUTE,
    };
    let banning = [
        Plan::new(vec![denied(fixed(6))]).with_ban(ban(2)),
        Plan::new(vec![fixed(9), sliding(9, MINUTE)]).with_ban(ban(1)),
    ];
    let plans: Vec<Plan> = plans.into_iter().chain(banning).collect();
    assert!(plans.iter().all(Plan::can_reserve));
    plans.into_iter().map(Arc::new).collect()
}

/// Whether Redis counts a plan by a plain counter.
fn is_counter(plan: &Plan) -> bool {
    matches!(plan.limits(), [limit] if limit.charge_denied)
}

fn op() -> impl Strategy<Value = Op> {
    let hits = || prop_oneof![9 => 0_u32..12, 1 => Just(u32::MAX)];
    let reserve = || {
        let timeout = prop_oneof![3 => Just(600), 2 => 0_u32..20];
        (0_u32..4, 0_u32..9, timeout).prop_map(|(least, more, timeout)| Reserve {
            least,
            most: least + more,
            timeout,
        })
    };
    let about = prop_oneof![
        5 => (reserve(), 0..15_u16).prop_map(|(reserve, tag)| {
            // Most add up.
            let once = NonZeroU16::new(tag.saturating_sub(12));
            ReservationOp::Reserve { reserve, once }
        }),
        3 => hits().prop_map(ReservationOp::settle),
        3 => (hits(), reserve()).prop_map(|(used, reserve)| {
            ReservationOp::Settle { used, otherwise: Otherwise::Reserve(reserve) }
        }),
        1 => hits().prop_map(ReservationOp::Cancel),
        1 => hits().prop_map(|used| ReservationOp::Settle { used, otherwise: Otherwise::Nothing }),
    ];
    prop_oneof![6 => about.prop_map(Op::Reservation), 1 => (0_u64..4).prop_map(Op::Take)]
}

fn schedules(together: bool) -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![
        4 => Just(0),
        4 => 0..2_000_000_i64,
        2 => 0..90_000_000_i64,
        1 => -3_000_000..0_i64,
        1 => 0..90_000_000_000_i64,
    ];
    let role =
        || prop_oneof![4 => Just(Role::Enforced), 1 => Just(Role::Quota), 1 => Just(Role::Shadow)];
    let few = prop::collection::vec(0..plans().len(), 1..3);
    let all = self::plans();
    few.prop_flat_map(move |plans| {
        // A plain counter has the start of its window in its key: behind it, another is counted.
        // A ban that is ahead of the clock is moved, also where nothing is charged.
        let has_counter =
            plans.iter().any(|plan| is_counter(&all[*plan]) || all[*plan].ban().is_some());
        let plan = prop::sample::select(plans);
        let charge = (0..KEYS.len(), plan, 0..IDS.len(), op(), role())
            .prop_map(|(key, plan, id, op, role)| ModelCharge { key, plan, id, op, role });
        let charges = prop::collection::vec(charge, 1..5);
        let step = (pass.clone(), any::<bool>(), charges).prop_map(move |(pass, it, charges)| {
            let pass = if has_counter { pass.max(0) } else { pass };
            Step { pass, together: it && together, charges }
        });
        // As in a domain: all batches are charged together, or none is.
        prop::collection::vec(step, 1..40).prop_map(|mut steps| {
            let together = steps[0].together;
            steps.iter_mut().for_each(|step| step.together = together);
            steps
        })
    })
}

/// Counts by key and shape, as far as they were written, and reservations by these and id.
#[derive(Clone, Default)]
struct Model {
    counts: HashMap<(usize, String), State>,
    reservations: HashMap<(usize, String, usize), Option<Reservation>>,
}

impl Model {
    fn make(&mut self, charge: &ModelCharge, plan: &Plan, now: Micros) -> Decision {
        let ModelCharge { key, id, op, .. } = *charge;
        let at = (key, plan.shape().to_owned());
        let mut state = self.counts.get(&at).cloned().unwrap_or_default();
        let (charge, made) = match op {
            Op::Reservation(op) => {
                let reservation =
                    self.reservations.entry((key, plan.shape().to_owned(), id)).or_default();
                let charge = op.charge(reservation.as_ref().filter(|it| it.is_live(now)));
                (charge, plan.charge_reservation(&mut state, reservation, now, op))
            }
            op => (op, plan.charge(&mut state, now, op, None)),
        };
        let decision = made.decision;
        // What changes nothing does not move a window either, which a clock that steps back would show.
        let writes = match charge {
            Op::Undo(Undo { hits, limits, .. }) => {
                hits > 0 && limits > 0 && self.counts.contains_key(&at)
            }
            Op::Add { hits, limits } => hits > 0 && limits > 0,
            _ if plan.ban().is_some() && !decision.allowed => {
                charge.asks() > Some(0) && (!decision.banned || decision.ban_begins)
            }
            Op::Take(1..) if plan.limits().iter().any(|limit| limit.charge_denied) => true,
            charge => {
                let by_any = (decision.would_deny.count_ones() as usize) < plan.limits().len();
                decision.allowed && charge.charged(&decision) > 0 && by_any
            }
        };
        if writes {
            self.counts.insert(at, state);
        }
        decision
    }

    /// Makes a batch.
    fn step(&mut self, step: &Step, plans: &[Arc<Plan>], now: Micros) -> Vec<Decision> {
        let before = self.clone();
        let make = |charge: &ModelCharge| self.make(charge, &plans[charge.plan], now);
        let decisions: Vec<Decision> = step.charges.iter().map(make).collect();
        let with = |role| {
            let of_role = zip(&step.charges, &decisions).filter(move |(it, _)| it.role == role);
            of_role.map(|(_, decision)| decision.allowed)
        };
        let quotas = with(Role::Quota).next().is_some() && !with(Role::Quota).any(|it| it);
        if step.together && (quotas || with(Role::Enforced).any(|it| !it)) {
            *self = before;
            for charge in &step.charges {
                let shape = plans[charge.plan].shape().to_owned();
                let id = (charge.key, shape, charge.id);
                let live = self.reservations.get(&id).copied().flatten();
                let settles = charge.op.returns_hits() && live.is_some_and(|it| it.is_live(now));
                if charge.op.is_unconditional() || settles {
                    self.make(charge, &plans[charge.plan], now);
                }
            }
        }
        decisions
    }
}

/// Lets time pass, or the clock step back behind the latest time.
fn pass(clock: &ManualClock, latest: &mut Micros, pass: i64) {
    let now = clock.now().saturating_add_signed(pass).max(latest.saturating_sub(MAX_STEP_BACK));
    clock.set(now);
    *latest = now.max(*latest);
}

fn charges_of<'a>(
    step: &'a Step,
    plans: &'a [Arc<Plan>],
    (domain, entries): (&'a str, &'a [[(&'a str, &'a str); 1]; 2]),
) -> Vec<Charge<'a>> {
    let charge = |it: &'a ModelCharge| Charge {
        key: Key { domain, entries: &entries[it.key] },
        plan: &plans[it.plan],
        op: it.op,
        hold: matches!(it.op, Op::Reservation(_)).then_some(IDS[it.id]),
        role: it.role,
    };
    step.charges.iter().map(charge).collect()
}

/// Runs schedules, each in a domain of its own.
fn agrees(
    cases: u32,
    schedules: impl Strategy<Value = Vec<Step>>,
    run: impl AsyncFn(&RedisStore, &ManualClock, &str, &[Step]),
) {
    let server = Server::start();
    let runtime = runtime();
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = manual(single(&server), &clock);
    runtime.block_on(store.answered());
    let domains = Cell::new(0);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let ran = runner.run(&schedules, |steps| {
        domains.set(domains.get() + 1);
        clock.set(DAWN);
        runtime.block_on(run(&store, &clock, &format!("random-{}", domains.get()), &steps));
        Ok(())
    });
    ran.unwrap();
}

/// Each step of a schedule is a round trip of its own.
fn agrees_step_by_step(cases: u32, schedules: impl Strategy<Value = Vec<Step>>) {
    let plans = plans();
    let entries = KEYS.map(|value| [("key", value)]);
    agrees(cases, schedules, async |store, clock, domain, steps| {
        let (mut model, mut latest) = (Model::default(), clock.now());
        for step in steps {
            pass(clock, &mut latest, step.pass);
            let expected = model.step(step, &plans, clock.now());
            let charges = charges_of(step, &plans, (domain, &entries));
            let actual = charge(store, &charges, step.together).await;
            assert_eq!(actual, expected, "{step:?}");
        }
    });
}

#[test]
fn agrees_with_the_arithmetic() {
    agrees_step_by_step(400, schedules(true));
}

/// A window starts in which nothing changes; then the clock steps back behind its start.
#[test]
fn what_returns_nothing_moves_no_window() {
    let reserve = |most| ReservationOp::Reserve {
        reserve: Reserve { least: 0, most, timeout: 600 },
        once: None,
    };
    let start = i64::try_from(DAWN.next_multiple_of(MINUTE) + MINUTE - DAWN).unwrap();
    for plan in 0..plans().len() {
        let step = |pass, id, op| {
            let op = Op::Reservation(op);
            let charges = vec![ModelCharge { key: 0, plan, id, op, role: Role::Enforced }];
            Step { pass, together: false, charges }
        };
        let steps = vec![
            step(start - 1, 0, reserve(1)),
            step(0, 1, reserve(0)),
            step(1, 1, ReservationOp::Cancel(u32::MAX)),
            step(-1, 0, reserve(1)),
        ];
        agrees_step_by_step(1, Just(steps));
    }
}

/// A reservation lapses, and a denied batch would settle it; then the clock steps back, and it lives again.
#[test]
fn a_denied_batch_leaves_a_lapsed_reservation() {
    let reserve = |least, most, timeout| Reserve { least, most, timeout };
    let settle =
        |reserve| ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(reserve) };
    let many = ReservationOp::Reserve { reserve: reserve(2, 10, 600), once: None };
    let again = ReservationOp::Reserve { reserve: reserve(0, 0, 600), once: NonZeroU16::new(1) };
    let second = SECOND as i64;
    for plan in 0..plans().len() {
        let step = |pass, ops: &[(usize, ReservationOp)]| {
            let charge = |(id, op): &(usize, ReservationOp)| {
                let op = Op::Reservation(*op);
                ModelCharge { key: 0, plan, id: *id, op, role: Role::Enforced }
            };
            Step { pass, together: true, charges: ops.iter().map(charge).collect() }
        };
        let steps = vec![
            step(0, &[(1, settle(reserve(0, 1, 5)))]),
            step(1, &[(0, ReservationOp::Reserve { reserve: reserve(0, 1, 600), once: None })]),
            step(5 * second, &[(0, many), (1, settle(reserve(20_000, 20_000, 600)))]),
            step(-2 * second, &[(1, again)]),
        ];
        agrees_step_by_step(1, Just(steps));
    }
}

/// Charges of one round trip get the answers that they would have got one after the other.
#[test]
fn agrees_with_the_arithmetic_at_once() {
    let plans = plans();
    let entries = KEYS.map(|value| [("key", value)]);
    agrees(100, schedules(false), async |store, clock, domain, steps| {
        let (mut model, mut latest) = (Model::default(), clock.now());
        for steps in steps.chunks(16) {
            pass(clock, &mut latest, steps[0].pass);
            let expected: Vec<Vec<Decision>> =
                steps.iter().map(|step| model.step(step, &plans, clock.now())).collect();
            let made = steps.iter().map(|step| {
                let charges = charges_of(step, &plans, (domain, &entries));
                async move { charge(store, &charges, false).await }
            });
            let actual = futures_util::future::join_all(made).await;
            assert_eq!(actual, expected, "{steps:?}");
        }
    });
}
