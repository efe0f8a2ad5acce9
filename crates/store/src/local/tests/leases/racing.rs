//! Several replicas whose grants and returns are made and answered late, or never: no window admits more than n.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(Micros),
    /// Requests of a replica.
    Take(usize, usize, u64),
    /// A charge in flight is made, or answered if it is; or it is lost.
    Deliver(usize),
    Lose(usize),
    Sweep(usize),
}

const REPLICAS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let hits = prop_oneof![8 => Just(1_u64), 1 => 2..30_u64];
    prop_oneof![
        6 => (0..REPLICAS, 1..60_usize, hits).prop_map(|(at, times, hits)| Step::Take(at, times, hits)),
        6 => (0..4_usize).prop_map(Step::Deliver),
        1 => (0..4_usize).prop_map(Step::Lose),
        3 => (0..LENGTH / 2).prop_map(Step::Pass),
        1 => (0..2 * LENGTH).prop_map(Step::Pass),
        1 => (0..REPLICAS).prop_map(Step::Sweep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_window_admits_more_than_its_limit(steps in prop::collection::vec(step(), 1..150)) {
        const N: u32 = 600;
        let plan = plan([fixed(N, Unit::Second)]);
        let shared = Shared::delaying();
        let replicas: Vec<_> = (0..REPLICAS).map(|_| leases(&shared)).collect();
        let mut admitted: HashMap<Micros, u64> = HashMap::new();
        let in_flight = shared.in_flight.clone().unwrap();
        for (thread, step) in steps.into_iter().enumerate() {
            // Charges of other steps are made in any order.
            shared.thread.store(thread, Ordering::Relaxed);
            match step {
                Step::Pass(by) => shared.clock.advance(by),
                Step::Sweep(at) => replicas[at].send(replicas[at].table.sweep()),
                Step::Take(at, times, hits) => {
                    for _ in 0..times {
                        if charge_now(&replicas[at], &plan, "a", Op::Take(hits)).allowed {
                            *admitted.entry(shared.clock.now() / SECOND).or_default() += hits;
                        }
                    }
                }
                Step::Lose(which) => {
                    let mut charges = in_flight.lock();
                    let lost = (which < charges.len()).then(|| charges.remove(which));
                    drop(charges);
                    drop(lost);
                }
                Step::Deliver(which) => {
                    let mut charges = in_flight.lock();
                    let Some(it) = charges.get_mut(which) else { continue };
                    match it.made.take() {
                        None => it.made = Some(shared.make(&it.charge)),
                        Some(answer) => {
                            let it = charges.remove(which);
                            drop(charges);
                            shared.answer(&it.charge, answer);
                        }
                    }
                }
            }
        }
        prop_assert!(admitted.values().all(|sum| *sum <= N.into()), "{admitted:?}");
    }
}
