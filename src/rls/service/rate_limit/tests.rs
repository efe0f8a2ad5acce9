//! The timeout of callers: how it is read, and what of it the first rules and the store have.

use super::*;
use crate::health::Required;
use weir_common::clock::SystemClock;
use weir_store::memory::MemoryStore;

#[test]
fn grpc_timeouts_are_parsed() {
    assert_eq!(parse_grpc_timeout(b"20m"), Some(Duration::from_millis(20)));
    assert_eq!(parse_grpc_timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
    assert_eq!(parse_grpc_timeout(b"1S"), Some(Duration::from_secs(1)));
    assert_eq!(parse_grpc_timeout(b"250u"), Some(Duration::from_micros(250)));
    for bad in ["", "m", "20", "20x", "999999999m", "-1m", " 1m"] {
        assert_eq!(parse_grpc_timeout(bad.as_bytes()), None, "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_the_first_rules_within_their_timeout() {
    let health = Arc::new(Health::new(Required { rules: true, ..Required::default() }));
    let store = MemoryStore::new(SystemClock::new(), 1_000);
    let limiter = Arc::new(Limiter::new(store, Default::default()));
    let service = RateLimit::new(limiter, Rules::default(), ResponseOptions::default());
    let waits = async |service: &RateLimit<_>, timeout| {
        let started = Instant::now();
        (service.first_rules(timeout).await, started.elapsed())
    };
    assert_eq!(waits(&service, Some(ms(50))).await, (Some(ms(50)), ms(0)), "unless asked to");
    let service = service.awaiting_rules(health.clone(), ms(1_000));
    assert_eq!(waits(&service, None).await, (None, ms(1_000)));
    assert_eq!(waits(&service, Some(ms(50))).await, (Some(ms(3)), ms(47)));
    let rejected = async {
        tokio::time::sleep(ms(20)).await;
        health.rules_rejected();
    };
    let (waited, ()) = tokio::join!(waits(&service, Some(ms(50))), rejected);
    assert_eq!(waited, (Some(ms(30)), ms(20)));
    assert_eq!(waits(&service, None).await, (None, ms(0)), "not again");
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn the_store_timeout_follows_from_the_callers() {
    let cases = [(1_000, 50), (53, 50), (52, 49), (20, 17), (5, 2), (4, 1), (3, 1), (0, 1)];
    for (timeout, expected) in cases {
        assert_eq!(store_timeout(None, Some(ms(timeout))), ms(expected), "{timeout}");
    }
    assert_eq!(store_timeout(None, None), ms(15));
}

#[test]
fn the_setting_caps_the_store_timeout() {
    for (timeout, expected) in [(100, 8), (11, 8), (10, 7), (0, 1)] {
        assert_eq!(store_timeout(Some(ms(8)), Some(ms(timeout))), ms(expected), "{timeout}");
    }
    assert_eq!(store_timeout(Some(ms(8)), None), ms(8));
    assert_eq!(store_timeout(Some(ms(60)), None), ms(60));
    assert_eq!(store_timeout(Some(ms(60)), Some(ms(1_000))), ms(60));
    assert_eq!(store_timeout(Some(ms(0)), None), ms(1));
}

#[test]
fn only_a_timeout_below_10_ms_is_the_callers_deadline() {
    for cap in [None, Some(ms(0)), Some(ms(5)), Some(ms(60))] {
        let below = caller_deadline_below(cap);
        assert!(store_timeout(cap, None) >= below, "{cap:?}");
        for timeout in 10..100 {
            assert!(store_timeout(cap, Some(ms(timeout))) >= below, "{cap:?} {timeout}");
        }
    }
    for timeout in 0..10 {
        assert!(store_timeout(None, Some(ms(timeout))) < caller_deadline_below(None), "{timeout}");
    }
}
