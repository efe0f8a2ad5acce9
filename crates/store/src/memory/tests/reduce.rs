//! The bucket of `RL.REDUCE`.

use super::*;
use crate::conformance::reduce;
use weir_limit::ReduceBucket;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // An expired state may be swept before a clock steps back to where it would still count.
    #[test]
    fn buckets_agree_with_the_model(schedule in reduce::schedules(false)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (store, clock) = store(10_000);
        runtime.block_on(reduce::agrees(&store, &clock, "reduce", &schedule, true));
    }
}

const MINUTE: ReduceBucket =
    ReduceBucket { max: 10, refill: 10, interval: 60_000, strict: false, at: None };

/// Takes tokens, and returns those before.
async fn reduce(store: &Memory, bucket: ReduceBucket, hits: u64) -> u64 {
    let decision = take(store, "", "a", &Arc::new(bucket.plan()), hits).await;
    bucket.tokens_before(hits, &decision)
}

#[tokio::test]
async fn looks_neither_make_nor_keep_a_bucket() {
    let (store, clock) = store(1_000);
    assert_eq!(reduce(&store, MINUTE, 0).await, 10);
    assert_eq!(store.stats().keys, 0);
    assert_eq!(reduce(&store, MINUTE, 4).await, 10);
    clock.advance(59 * SECOND);
    assert_eq!(reduce(&store, MINUTE, 0).await, 6);
    // It starts over a minute after it was charged.
    clock.advance(SECOND);
    assert_eq!(reduce(&store, MINUTE, 0).await, 10);
    assert_eq!(store.stats().keys, 0);
}

#[tokio::test]
async fn a_bucket_that_is_charged_keeps_its_refills_when_it_is_full() {
    let (store, clock) = store(1_000);
    assert_eq!(reduce(&store, MINUTE, 1).await, 10);
    clock.advance(59 * SECOND);
    assert_eq!(reduce(&store, MINUTE, 1).await, 9);
    // Full since second 60; a look changes nothing.
    clock.advance(31 * SECOND);
    assert_eq!(reduce(&store, MINUTE, 0).await, 10);
    assert_eq!(reduce(&store, MINUTE, 7).await, 10);
    clock.advance(29 * SECOND);
    assert_eq!(reduce(&store, MINUTE, 0).await, 3);
    clock.advance(SECOND);
    assert_eq!(reduce(&store, MINUTE, 0).await, 10);
}

#[tokio::test]
async fn a_callers_time_refills_but_does_not_keep_or_expire() {
    let (store, clock) = store(1_000);
    let bucket_at = |at| ReduceBucket { at: Some(at), ..MINUTE };
    assert_eq!(reduce(&store, bucket_at(5_000), 10).await, 10);
    assert_eq!(reduce(&store, bucket_at(64_999), 0).await, 0);
    assert_eq!(reduce(&store, bucket_at(65_000), 4).await, 10);
    // An older time neither refills nor moves the next refill.
    assert_eq!(reduce(&store, bucket_at(0), 1).await, 6);
    assert_eq!(reduce(&store, bucket_at(124_999), 0).await, 5);
    assert_eq!(reduce(&store, bucket_at(125_000), 0).await, 10);
    // The caller's time stands still, and the store's does not.
    clock.advance(60 * SECOND);
    assert_eq!(reduce(&store, bucket_at(65_000), 0).await, 10);
}

#[tokio::test]
async fn a_strict_charge_at_an_older_time_brings_nothing_back() {
    let (store, _clock) = store(1_000);
    let bucket_at = |at, strict| ReduceBucket { at: Some(at), strict, ..MINUTE };
    assert_eq!(reduce(&store, bucket_at(100_000_000, true), 10).await, 10);
    assert_eq!(reduce(&store, bucket_at(0, true), 1).await, 0);
    assert_eq!(reduce(&store, bucket_at(100_000_000, false), 10).await, 0);
}
