use super::*;

#[test]
fn deadlines_of_callers_are_not_failures_of_the_store() {
    let outage = Outage::default();
    let fail = |now, kind| outage.fail(now, 1, kind);
    fail(SECOND, StoreError::CallerDeadline);
    assert_eq!((outage.last_by_store.load(Relaxed), outage.failed.load(Relaxed)), (0, 0));
    assert!(outage.is_active() && !outage.end_if_over(QUIET), "what is counted locally is kept");
    assert!(!outage.has_failed(SECOND, None));
    fail(2 * SECOND, StoreError::TimedOut);
    fail(3 * SECOND, StoreError::TimedOut);
    assert!(outage.has_failed(5 * SECOND, None) && !outage.has_failed(3 * SECOND + QUIET, None));
    // Its connections came up before the last failure, or after it.
    let ago = |ms| Some(Duration::from_millis(ms));
    assert!(outage.has_failed(5 * SECOND, ago(2_001)));
    assert!(!outage.has_failed(5 * SECOND, ago(1_999)));
    fail(QUIET, StoreError::CallerDeadline);
    assert_eq!(outage.failed.load(Relaxed), 2);
    assert!(!outage.end_if_over(3 * SECOND + QUIET));
    assert_eq!(outage.failed.load(Relaxed), 0, "its end is logged");
    assert!(outage.end_if_over(2 * QUIET) && !outage.is_active());
}

#[test]
fn an_outage_ends_once_and_only_after_quiet() {
    let outage = Outage::default();
    assert!(!outage.is_active() && !outage.end_if_over(QUIET));
    outage.fail(SECOND, 1, StoreError::TimedOut);
    assert!(outage.is_active() && !outage.end_if_over(SECOND + QUIET - 1));
    assert!(outage.end_if_over(SECOND + QUIET));
    assert!(!outage.is_active() && !outage.end_if_over(SECOND + QUIET));
}
