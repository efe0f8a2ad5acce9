//! Plans that are kept.

use std::sync::Arc;

use crate::limit::Plan;
use crate::resp::plans::Plans;

#[test]
fn plans_are_built_once_and_never_mixed_up() {
    let plans = Plans::new();
    let plan = || Some(Plan::new(Vec::new()));
    let first = plans.get(1, plan).unwrap();
    let again = plans.get(1, || unreachable!()).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    drop((first, again));
    assert!(plans.get(2, || None).is_none());
    // Far more than there are places: each gets its own.
    let many: Vec<_> = (0..10_000_u32).map(|i| plans.get(i, plan).unwrap()).collect();
    let held = many.iter().filter(|plan| Arc::strong_count(plan) > 1).count();
    assert!((1..=1_024).contains(&held), "{held}");
}
