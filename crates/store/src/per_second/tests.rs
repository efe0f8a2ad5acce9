use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::conformance::fakes::Fake;
use crate::conformance::{self, DAWN, charge, plan, take, try_read, try_reset};
use crate::memory::MemoryStore;
use crate::{Answer, Entry, Key};
use weir_common::clock::ManualClock;
use weir_limit::{Limit, Op, Plan, Unit};

type Inner = Arc<Fake<MemoryStore<Arc<ManualClock>>>>;

impl Undoable for Inner {
    async fn charge_undoable(&self, batch: Batch<'_>, answers: &mut Answers, undos: &mut Undos) {
        self.charge(batch, answers).await;
        undos.extend(zip(batch.charges, answers.iter()).map(|(charge, answer)| {
            let denied_too = charge.plan.limits()[0].charge_denied;
            let is_made = answer.as_ref().is_ok_and(|it| it.allowed || denied_too);
            // What was reserved is cancelled by its id.
            let made = charge.op.takes().filter(|_| is_made && charge.hold.is_none());
            let hits = made.map_or(0, |hits| hits as u32);
            let undo = Undo { hits, taken: DAWN, limits: 1, replaced: None };
            (hits > 0).then_some(undo).into_iter().collect()
        }));
    }

    fn undo(&self, charges: &[Charge<'_>]) {
        let budget = Duration::from_millis(8);
        let mut answers = Answers::new();
        let made = pin!(self.charge(Batch::new(charges, budget), &mut answers));
        assert!(made.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}

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

async fn used(store: &PerSecond<Inner>, value: &str, plan: &Arc<Plan>) -> u64 {
    take(store, "d", value, plan, 0).await.used_before
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
async fn together_neither_store_keeps_what_the_other_denies() {
    let (store, _) = store();
    let entries = [("key", "a")];
    // By default a batch charged together does not charge denied hits.
    let plan = |n, unit| {
        let mut limit = Limit::fixed_window(n, unit, 1).unwrap();
        limit.charge_denied = false;
        Arc::new(Plan::new(vec![limit]))
    };
    for (second, minute) in [(1, 10), (10, 1)] {
        let (second, minute) = (plan(second, Unit::Second), plan(minute, Unit::Minute));
        let value = [("key", if second.limits()[0].requests_per_unit == 1 { "a" } else { "b" })];
        let both = [of(&value, &second, Role::Enforced), of(&value, &minute, Role::Enforced)];
        for _ in 0..3 {
            charge(&store, &both, true).await;
        }
        assert_eq!(used(&store, value[0].1, &second).await, 1);
        assert_eq!(used(&store, value[0].1, &minute).await, 1);
    }
    // Looks refund nothing, and refunded hits are not taken again.
    let (second, minute) = (plan(1, Unit::Second), plan(10, Unit::Minute));
    let look = Charge { op: Op::Take(0), ..of(&entries, &minute, Role::Enforced) };
    charge(&store, &[of(&entries, &second, Role::Enforced), look], true).await;
    assert_eq!(used(&store, "a", &minute).await, 1);
    let back = Charge { op: Op::Refund(1), ..look };
    charge(&store, &[of(&entries, &second, Role::Enforced), back], true).await;
    assert_eq!(used(&store, "a", &minute).await, 0);
}

#[tokio::test]
async fn quotas_of_both_stores_deny_only_all_together() {
    let (store, _) = store();
    let (second, minute) = (plan(1, Unit::Second), plan(10, Unit::Minute));
    let entries = [("key", "a")];
    let quotas = [of(&entries, &second, Role::Quota), of(&entries, &minute, Role::Quota)];
    for _ in 0..3 {
        charge(&store, &quotas, true).await;
    }
    assert_eq!(used(&store, "a", &minute).await, 3);
    let full = plan(0, Unit::Minute);
    let denied = [of(&entries, &second, Role::Quota), of(&entries, &full, Role::Quota)];
    let minute_too = [denied[0], denied[1], of(&entries, &minute, Role::Enforced)];
    charge(&store, &minute_too, true).await;
    assert_eq!(
        used(&store, "a", &minute).await,
        3,
        "all quotas denied: the enforced charge is refunded"
    );
}

#[tokio::test]
async fn nothing_is_undone_where_the_outcome_is_not_known() {
    let (store, _) = store();
    let (second, minute) = (plan(1, Unit::Second), plan(10, Unit::Minute));
    let (a, b) = ([("key", "a")], [("key", "b")]);
    take(&store, "d", "a", &second, 1).await;
    let charges = [
        of(&a, &second, Role::Enforced),
        of(&a, &minute, Role::Enforced),
        of(&b, &minute, Role::Enforced),
    ];
    store.main.fail(|charge| (charge.key.entries[0].1 == "b").then_some(StoreError::TimedOut));
    let ask = async || {
        let mut answers = Answers::new();
        let budget = Duration::from_millis(8);
        let batch = Batch { together: true, ..Batch::new(&charges, budget) };
        store.charge(batch, &mut answers).await;
        answers
    };
    let answers = ask().await;
    let allowed = |answer: &Answer| answer.clone().map(|decision| decision.allowed);
    let actual: Vec<_> = answers.iter().map(allowed).collect();
    assert_eq!(actual, [Ok(false), Ok(true), Err(StoreError::TimedOut)]);
    assert_eq!(used(&store, "a", &minute).await, 1, "it stays charged");

    // A key of another type is certainly not charged, so the rest must not be either.
    store.main.fail(|_| None);
    per_second_store(&store).fail(|_| Some(StoreError::WrongType));
    ask().await;
    assert_eq!(used(&store, "a", &minute).await, 1, "it was refunded");
    per_second_store(&store).fail(|_| None);

    // A denial in one store and an unknown outcome in the other.
    store.main.fail(|_| Some(StoreError::Unavailable));
    store.main.asked();
    ask().await;
    assert_eq!(store.main.asked(), 2, "no more calls than the charge itself");
}
