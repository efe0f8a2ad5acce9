//! Random schedules of one replica, whose lease charges take their time: it answers as the store alone does, hit by hit.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(Micros),
    /// Requests on a thread, with this time between them.
    Burst(usize, Asked, Micros, usize),
    Sweep,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    /// Hits, or a look.
    Hits(u64),
    /// A hundredth of the limit, times this number.
    Percent(u64),
    Refund(u64),
}

impl Asked {
    fn op(self, plan: &Plan) -> Op {
        let n = u64::from(plan.limits()[0].requests_per_unit);
        match self {
            Asked::Hits(hits) => Op::Take(hits),
            Asked::Percent(percent) => Op::Take((n * percent / 100).max(1)),
            Asked::Refund(hits) => Op::Refund(hits),
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let asked = prop_oneof![
        8 => Just(Asked::Hits(1)),
        2 => (0_u64..5).prop_map(Asked::Hits),
        2 => (1_u64..=100).prop_map(Asked::Percent),
        1 => (1_u64..9).prop_map(Asked::Refund),
    ];
    let times = prop_oneof![2 => 1_usize..4, 3 => 1_usize..80];
    let apart = prop_oneof![Just(0), 0..3_000_u64];
    let burst = (times, asked, apart, 0_usize..2);
    prop_oneof![
        8 => burst.prop_map(|(times, asked, apart, thread)| Step::Burst(times, asked, apart, thread)),
        2 => (0..2 * LENGTH).prop_map(Step::Pass),
        1 => (0..90 * SECOND).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
    ]
}

fn plans() -> [Arc<Plan>; 8] {
    [
        // Charges what it denies, as the reference does.
        plan(Limit::fixed_window(500, Unit::Second, 1)),
        plan([fixed(400, Unit::Year)]),
        plan([fixed(300, Unit::Minute), fixed(2_000, Unit::Hour)]),
        plan([sliding(400, 60 * SECOND)]),
        plan([ring(600, 60 * SECOND)]),
        plan([ring(400, 10 * SECOND), fixed(1_500, Unit::Minute)]),
        plan([calendar(5_000), sliding(200, SECOND)]),
        plan([fixed(70, Unit::Minute)]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// More than 100 000 requests; half of the time, denials are repeated too.
    #[test]
    fn one_replica_answers_as_without_leases(
        which in 0..8_usize,
        denies in any::<bool>(),
        trip in prop_oneof![Just(0), 0..LENGTH / 2],
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let plan = &plans()[which];
        let shared = Shared::delaying();
        let alone = Shared { clock: shared.clock.clone(), ..Shared::new() };
        // A window that charges what it denies misses the hits of repeated denials.
        let denies = denies && which > 0;
        let deny_locally_for = if denies { Duration::from_secs(3_600) } else { Duration::ZERO };
        let options = LocalOptions { deny_locally_for, ..leasing() };
        let replica = Local::new(shared.clone(), shared.clock.clone(), options);
        // What is sent is made at once, and answered after a trip: so it is known what the store's clock says.
        let arrives = || {
            let in_flight = shared.in_flight.as_ref()?.lock();
            in_flight.first().map(|it| it.sent + trip)
        };
        let pass_until = |time: Micros| {
            shared.make_all(None);
            while let Some(arrives) = arrives().filter(|arrives| *arrives <= time) {
                shared.clock.advance(arrives.saturating_sub(shared.clock.now()));
                shared.answer_all();
            }
            shared.clock.advance(time.saturating_sub(shared.clock.now()));
        };
        let pass = |by| pass_until(shared.clock.now() + by);
        let answer = || pass_until(arrives().expect("something to wait for"));
        for step in steps {
            match step {
                Step::Pass(by) => pass(by),
                Step::Sweep => replica.send(replica.table.sweep()),
                Step::Burst(times, asked, apart, thread) => {
                    let op = asked.op(plan);
                    for i in 0..times {
                        shared.thread.store(thread ^ i & 1, Ordering::Relaxed);
                        let decision = charge_with(&replica, plan, "a", op, answer);
                        let expected = charge_now(&alone, plan, "a", op);
                        prop_assert_eq!(shown(decision, denies), shown(expected, denies));
                        pass(apart);
                    }
                }
            }
        }
        // What is charged is what was admitted.
        replica.table.drain();
        replica.send(replica.table.sweep());
        shared.answer_all();
        let look = |store: &Shared| charge_now(store, plan, "a", Op::Take(0));
        prop_assert_eq!(look(&shared), look(&alone));
    }
}

/// The part of an answer that is the same where denials are repeated: after one nothing remains, and the hits used
/// before are those of the first.
fn shown(decision: Decision, denies: bool) -> Decision {
    let decision = Decision { source: Source::Store, ..decision };
    if decision.allowed || !denies {
        return decision;
    }
    Decision { used_before: 0, remaining: 0, near: None, ..decision }
}
