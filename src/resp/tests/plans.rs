//! Plans that are kept.

use std::sync::Arc;

use crate::resp::plans::{Parameters, Plans};
use weir_limit::ReduceBucket;

fn bucket(max: u32) -> Parameters {
    let bucket = ReduceBucket { max, refill: 1, interval: 1, strict: false, at: None };
    Parameters::Bucket(bucket)
}

#[test]
fn plans_are_built_once_and_never_mixed_up() {
    let plans = Plans::new();
    let first = plans.get(bucket(1)).unwrap();
    let again = plans.get(bucket(1)).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    drop((first, again));
    // Far more than there are places: each gets its own.
    let many: Vec<_> = (1..=10_000).map(|max| (max, plans.get(bucket(max)).unwrap())).collect();
    for (max, plan) in &many {
        assert_eq!(plan.limits()[0].requests_per_unit, *max);
    }
    let held = many.iter().filter(|(_, plan)| Arc::strong_count(plan) > 1).count();
    assert!((1..=1_024).contains(&held), "{held}");
}
