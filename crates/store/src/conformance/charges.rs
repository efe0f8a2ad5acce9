//! The limits and charges of the suite.

use std::sync::Arc;
use std::time::Duration;

use crate::charge::{Answers, Batch, Charge, Key, Role};
use crate::error::StoreError;
use crate::states::{StateKey, States};
use crate::store::Store;
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, Concurrency, Decision, FixedWindow, Gcra, KeyState, Limit,
    Micros, Op, Plan, SECOND, SlidingLog, SlidingWindow, TokenBucket, Unit,
};

/// An instant at which a window of every unit up to a day starts.
pub const DAWN: u64 = 1_700_006_400 * SECOND;

/// Enough for stores that are not slow.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// A lone fixed window.
pub fn plan(n: u32, unit: Unit) -> Arc<Plan> {
    Arc::new(Plan::new(Limit::fixed_window(n, unit, 1).into_iter().collect()))
}

/// Charges a batch; panics where the store fails.
pub async fn charge(store: &impl Store, charges: &[Charge<'_>], together: bool) -> Vec<Decision> {
    let mut answers = Answers::new();
    let batch = Batch { together, ..Batch::new(charges, TIMEOUT) };
    store.charge(&batch, &mut answers).await;
    assert_eq!(answers.len(), charges.len());
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

/// Takes `hits` of one key.
pub async fn take(
    store: &impl Store,
    domain: &str,
    value: &str,
    plan: &Arc<Plan>,
    hits: u64,
) -> Decision {
    let key = Key { domain, entries: &[("key", value)] };
    let charge_ = Charge { key, plan, op: Op::Take(hits), hold: None, role: Role::Enforced };
    charge(store, &[charge_], false).await.swap_remove(0)
}

/// Reads the state of a key; the outcome may be an error.
pub async fn try_read(
    store: &impl States,
    key: Key<'_>,
    plan: &Arc<Plan>,
    spans: &[Micros],
) -> Result<KeyState, StoreError> {
    store.read(StateKey { key, plan, together: false, id: None }, spans, TIMEOUT).await
}

/// Resets the state of a key; the outcome may be an error.
pub async fn try_reset(
    store: &impl States,
    key: Key<'_>,
    plan: &Arc<Plan>,
) -> Result<(), StoreError> {
    store.reset(StateKey { key, plan, together: false, id: None }, TIMEOUT).await
}

/// Returns every algorithm with n hits an hour, or a day of the calendar; the two with numbers of their own as
/// they are given.
pub(super) fn hourly(n: u32, bucket: TokenBucket, gcra: Gcra) -> [Algorithm; 9] {
    let period = Unit::Hour.period(1).unwrap();
    let calendar = Calendar::new(Unit::Day, "UTC").map(Arc::new).ok();
    let held = |hold_id| Concurrency { n, timeout: period, hold_id };
    [
        Algorithm::FixedWindow(FixedWindow { n, period, calendar: None }),
        Algorithm::FixedWindow(FixedWindow { n, period: 24 * period, calendar }),
        Algorithm::SlidingWindow(SlidingWindow { n, period }),
        Algorithm::SlidingLog(SlidingLog { n, period }),
        Algorithm::BucketedWindow(BucketedWindow { n, period, buckets: 6 }),
        Algorithm::TokenBucket(bucket),
        Algorithm::Gcra(gcra),
        Algorithm::Concurrency(held(None)),
        Algorithm::Concurrency(held(Some("id".into()))),
    ]
}
