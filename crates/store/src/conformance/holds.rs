//! Holds of concurrency limits.

use std::sync::Arc;

use super::charges::charge;
use crate::charge::{Charge, Key, Role};
use crate::store::Store;
use weir_common::clock::ManualClock;
use weir_limit::{Algorithm, Concurrency, Decision, Limit, Op, Plan, SECOND};

/// A concurrency limit of `n`, with hold ids or without.
pub fn concurrency(n: u32, with_ids: bool) -> Arc<Plan> {
    let hold_id = with_ids.then(|| "id".into());
    let algorithm = Algorithm::Concurrency(Concurrency { n, timeout: 60 * SECOND, hold_id });
    let limit = Limit {
        name: Box::default(),
        requests_per_unit: n,
        unit: None,
        unit_multiplier: 1,
        in_days: false,
        charge_denied: !with_ids,
        shadow_mode: false,
        algorithm,
    };
    Arc::new(Plan::new(vec![limit]))
}

/// Taking an id again replaces its hold: it is counted once, and its time-out starts over.
pub async fn replaces_a_hold_of_the_same_id(store: &impl Store, clock: &ManualClock) {
    let plan = concurrency(2, true);
    let key = Key { domain: "holds", entries: &[("key", "a")] };
    let of = async |op, id| -> Decision {
        let one = Charge { key, plan: &plan, op, hold: Some(id), role: Role::Enforced };
        charge(store, &[one], false).await.swap_remove(0)
    };
    let used = async || of(Op::Take(0), "look").await.used_before;
    for _ in 0..3 {
        assert!(of(Op::Take(1), "a").await.allowed);
        assert_eq!(used().await, 1);
    }
    assert!(of(Op::Take(1), "b").await.allowed);
    assert!(!of(Op::Take(1), "c").await.allowed);
    clock.advance(30 * SECOND);
    assert!(of(Op::Take(1), "a").await.allowed, "it has its place already");
    assert!(!of(Op::Take(2), "a").await.allowed);
    assert_eq!(used().await, 2, "a denial leaves the hold as it was");
    clock.advance(40 * SECOND);
    assert_eq!(used().await, 1, "only the one that was not renewed has lapsed");
    of(Op::Refund(1), "a").await;
    assert_eq!(used().await, 0, "there was one hold");
}
