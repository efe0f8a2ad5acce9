//! Compares a store with the model of the bucket of `RL.REDUCE`.

use std::sync::Arc;

pub use self::model::{Model, Schedule, schedules};
use super::{Charge, Key, Role, Store, charge};
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{Op, Plan};

#[path = "../../../../tests/support/reduce.rs"]
mod model;

/// A store answers a schedule as the model does. `expires`: whether states expire by `clock`.
pub async fn agrees(
    store: &impl Store,
    clock: &ManualClock,
    domain: &str,
    (buckets, steps): &Schedule,
    expires: bool,
) {
    let mut model = Model::new(expires);
    for step in steps {
        let (bucket, expected) = model.step(clock, buckets, step);
        let plan: Arc<Plan> = Arc::new(bucket.plan());
        let entries = [("key", step.key())];
        let (key, hold, role) = (Key { domain, entries: &entries }, None, Role::Enforced);
        let charge_of = |&take| Charge { key, plan: &plan, op: Op::Take(take), hold, role };
        let charges: Vec<Charge<'_>> = step.takes.iter().map(charge_of).collect();
        let decisions = charge(store, &charges, false).await;
        let pairs = || step.takes.iter().zip(&decisions);
        let actual: Vec<i128> =
            pairs().map(|(&take, decision)| bucket.tokens_before(take, decision).into()).collect();
        assert_eq!(actual, expected, "{bucket:?} at {}: {step:?}", clock.now());
        for ((take, decision), before) in pairs().zip(actual) {
            // The largest counts are one to a store.
            let take = i128::from(u32::try_from(*take).unwrap_or(u32::MAX));
            assert_eq!(decision.allowed, before >= take, "{decision:?}");
        }
    }
}
