use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::conformance::fakes::Fake;
use crate::conformance::{self, DAWN, charge, plan, take, try_read, try_reset};
use crate::memory::MemoryStore;
use crate::{Charge, Entry, Key, Role};
use weir_common::clock::ManualClock;
use weir_limit::{Limit, Op, Plan, Unit};

type Inner = Arc<Fake<MemoryStore<Arc<ManualClock>>>>;

fn store() -> (PerSecond<Inner>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(DAWN));
    let inner = || Fake::new(MemoryStore::new(clock.clone(), 1_000));
    (PerSecond::new(inner(), Some(inner())), clock.clone())
}

fn of<'a>(entries: &'a [Entry<'a>], plan: &'a Arc<Plan>, role: Role) -> Charge<'a> {
    Charge { key: Key { domain: "d", entries }, plan, op: Op::Take(1), hold: None, role }
}

fn per_second_store(store: &PerSecond<Inner>) -> &Inner {
    store.per_second.as_ref().unwrap()
}

#[test]
fn a_plan_is_per_second_where_each_of_its_limits_is() {
    let of = |limits: &[(Unit, u32)]| {
        let limit = |&(unit, multiplier)| Limit::fixed_window(1, unit, multiplier).unwrap();
        Plan::new(limits.iter().map(limit).collect()).per_second()
    };
    assert!(of(&[(Unit::Second, 1)]));
    assert!(of(&[(Unit::Second, 1), (Unit::Second, 1)]));
    assert!(!of(&[(Unit::Second, 2)]));
    assert!(!of(&[(Unit::Minute, 1)]));
    assert!(!of(&[(Unit::Second, 1), (Unit::Minute, 1)]));
}

#[tokio::test]
async fn conforms() {
    let (store, clock) = store();
    conformance::admits_n_in_each_window(&store, &clock).await;
    conformance::counts_each_key_separately(&store).await;
    conformance::looks_and_refunds(&store).await;
    conformance::charges_all_or_none(&store).await;
    conformance::charges_now_or_not_at_all(&store).await;
    conformance::reservations::conforms(&store, &clock).await;
}

#[tokio::test]
async fn states_are_read_and_reset_where_they_are() {
    let (store, clock) = store();
    conformance::states::conforms(&store, &clock).await;
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let (second, minute) = (plan(9, Unit::Second), plan(9, Unit::Minute));
    let used =
        async |store: &Inner, plan| try_read(store, key, plan, &[]).await.unwrap().limits[0].used;
    for (plan, keeps, other) in [
        (&second, per_second_store(&store), store.main()),
        (&minute, store.main(), per_second_store(&store)),
    ] {
        take(&store, "d", "a", plan, 2).await;
        take(other, "d", "a", plan, 5).await;
        assert_eq!(try_read(&store, key, plan, &[]).await.unwrap().limits[0].used, 2);
        try_reset(&store, key, plan).await.unwrap();
        assert_eq!((used(keeps, plan).await, used(other, plan).await), (0, 5));
    }
}

#[tokio::test]
async fn each_charge_goes_to_its_store_and_answers_keep_their_order() {
    let (store, _) = store();
    let (second, minute) = (plan(1, Unit::Second), plan(5, Unit::Minute));
    let (a, b) = ([("key", "a")], [("key", "b")]);
    take(&store, "d", "a", &second, 1).await;
    assert_eq!((store.main.asked(), per_second_store(&store).asked()), (0, 1));
    take(&store, "d", "a", &minute, 1).await;
    assert_eq!((store.main.asked(), per_second_store(&store).asked()), (1, 0));

    let charges = [
        of(&a, &minute, Role::Enforced),
        of(&a, &second, Role::Enforced),
        of(&b, &minute, Role::Enforced),
        of(&b, &second, Role::Enforced),
        of(&a, &minute, Role::Enforced),
    ];
    let decision = charge(&store, &charges, false).await;
    let actual: Vec<_> =
        decision.iter().map(|decision| (decision.allowed, decision.used_before)).collect();
    assert_eq!(actual, [(true, 1), (false, 1), (true, 0), (true, 0), (true, 2)]);
    assert_eq!((store.main.asked(), per_second_store(&store).asked()), (3, 2));
}

#[tokio::test]
async fn what_is_charged_together_is_in_the_main_store() {
    let (store, _) = store();
    let (second, minute) = (plan(1, Unit::Second), plan(10, Unit::Minute));
    let entries = [("key", "a")];
    let both = [of(&entries, &second, Role::Enforced), of(&entries, &minute, Role::Enforced)];
    for (decisions, used) in [([true, true], [0, 0]), ([false, true], [1, 1])] {
        let decided = charge(&store, &both, true).await;
        assert_eq!([decided[0].allowed, decided[1].allowed], decisions);
        assert_eq!([decided[0].used_before, decided[1].used_before], used);
    }
    let looks = both.map(|charge| Charge { op: Op::Take(0), ..charge });
    assert!(charge(&store, &looks, true).await.iter().all(|look| look.used_before == 1));
    assert_eq!((store.main.asked(), per_second_store(&store).asked()), (6, 0));
    let key = StateKey { key: both[0].key, plan: &second, together: true, id: None };
    let budget = Duration::from_millis(8);
    assert_eq!(store.read(key, &[], budget).await.unwrap().limits[0].used, 1);
    store.reset(key, budget).await.unwrap();
    assert_eq!(charge(&store, &looks, true).await[0].used_before, 0);
}
