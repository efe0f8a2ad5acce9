//! Random schedules of one replica: leases answer as the store alone does, hit by hit.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(Micros),
    /// One operation a number of times, with this time between them.
    Burst(usize, Op, Micros),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        6 => Just(Op::Take(1)),
        2 => (0_u64..5).prop_map(Op::Take),
        1 => (20_u64..120).prop_map(Op::Take),
        1 => (1_u64..9).prop_map(Op::Refund),
    ];
    let apart = prop_oneof![Just(0), 0..3_000_u64];
    prop_oneof![
        3 => (1_usize..80, op, apart).prop_map(|(times, op, apart)| Step::Burst(times, op, apart)),
        2 => (0..2 * LENGTH).prop_map(Step::Pass),
        1 => (0..90 * SECOND).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
    ]
}

fn plans() -> [Arc<Plan>; 6] {
    [
        // Charges what it denies, as the reference does.
        plan(Limit::fixed_window(500, Unit::Second, 1)),
        plan([fixed(300, Unit::Minute), fixed(2_000, Unit::Hour)]),
        plan([sliding(400, 60 * SECOND)]),
        plan([ring(400, 10 * SECOND), fixed(1_500, Unit::Minute)]),
        plan([calendar(5_000), sliding(200, SECOND)]),
        plan([fixed(70, Unit::Minute)]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_replica_answers_as_without_leases(
        which in 0..6_usize,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let plan = &plans()[which];
        let (shared, alone) = (Shared::new(), Shared::new());
        let replica = leases(&shared);
        let pass = |by| {
            shared.clock.advance(by);
            alone.clock.advance(by);
        };
        for step in steps {
            match step {
                Step::Pass(by) => pass(by),
                Step::Sweep => replica.send(replica.table.sweep()),
                Step::Burst(times, op, apart) => {
                    for _ in 0..times {
                        let decision = charge_now(&replica, plan, "a", op);
                        let expected = charge_now(&alone, plan, "a", op);
                        prop_assert_eq!(Decision { source: Source::Store, ..decision }, expected);
                        pass(apart);
                    }
                }
            }
        }
        // What is charged is what was admitted.
        replica.table.drain();
        replica.send(replica.table.sweep());
        let look = |store: &Shared| charge_now(store, plan, "a", Op::Take(0));
        prop_assert_eq!(look(&shared), look(&alone));
    }
}
