//! Hits that are charged whatever the limits say.

use super::*;

const MINUTE: Micros = 60 * SECOND;

/// All limits.
const ALL: u16 = u16::MAX;

impl Driver {
    fn add(&mut self, hits: u32, limits: u16) -> Decision {
        self.charge(Op::Add { hits, limits }).decision
    }
}

fn owing(max_debt: u32) -> [Limit; 2] {
    let bucket = TokenBucket { capacity: 4, amount: 1, interval: SECOND, strict: false, max_debt };
    let gcra = Gcra::new(1, SECOND, 4, max_debt).expect("numbers that fit");
    [Algorithm::TokenBucket(bucket), Algorithm::Gcra(gcra)].map(|it| limit(4, it, false))
}

#[test]
fn added_hits_are_never_denied_and_deny_later_ones() {
    let mut driver = Driver::new(vec![fixed(3, MINUTE), fixed(100, 60 * MINUTE)]);
    assert!(driver.take(2).allowed);
    let decision = driver.add(4, ALL);
    assert!(decision.allowed && decision.retry_after.is_none());
    assert_eq!((decision.limit, decision.used_before, decision.remaining), (0, 2, 0));
    assert_eq!(driver.used(), [6, 6]);
    assert!(!driver.take(1).allowed);
}

#[test]
fn only_the_named_limits_are_charged() {
    let watch = Limit { shadow_mode: true, ..fixed(1, MINUTE) };
    let mut driver = Driver::new(vec![fixed(9, MINUTE), watch, fixed(9, 60 * MINUTE)]);
    driver.add(2, 0b101);
    assert_eq!(driver.used(), [2, 0, 2]);
    assert_eq!(driver.add(1, 0b010).would_deny, 0);
    assert_eq!(driver.used(), [2, 1, 2]);
    driver.add(7, 0);
    assert_eq!(driver.used(), [2, 1, 2]);
}

#[test]
fn buckets_owe_as_much_as_their_debt() {
    for limit in owing(3) {
        let mut driver = Driver::new(vec![limit]);
        driver.add(1_000, ALL);
        assert_eq!(driver.used(), [7], "{:?}", driver.plan);
        driver.now += 4 * SECOND;
        assert!(driver.take(1).allowed);
        assert!(!driver.take(1).allowed);
    }
}

#[test]
fn a_limit_of_zero_counts_them_where_its_algorithm_counts() {
    let zero = |limit: Limit| Limit { requests_per_unit: 0, ..limit };
    let none = Gcra::new(0, SECOND, 4, 4).expect("numbers that fit");
    let [bucket, _] = owing(3);
    let gcra = limit(0, Algorithm::Gcra(none), false);
    let mut driver = Driver::new(vec![fixed(0, MINUTE), zero(bucket), gcra]);
    assert!(driver.add(2, ALL).allowed);
    assert_eq!(driver.used(), [2, 0, 0]);
}

#[test]
fn a_log_keeps_only_what_was_admitted() {
    let mut driver = Driver::new(vec![log(3, MINUTE), fixed(9, MINUTE)]);
    driver.take(1);
    driver.add(5, ALL);
    assert_eq!(driver.used(), [1, 6]);
}

#[test]
fn limits_that_added_hits_bring_near_are_reported() {
    let mut driver = Driver::new(vec![fixed(4, MINUTE), fixed(10, 60 * MINUTE)]);
    driver.plan = driver.plan.with_near_limit_ratio(Some(0.5));
    let near = |decision: Decision| -> Vec<_> {
        let near = decision.near.iter().flat_map(|limits| limits.iter());
        near.map(|near| (near.limit, near.used)).collect()
    };
    assert_eq!(near(driver.add(4, ALL)), []);
    assert_eq!(near(driver.add(1, 0b10)), [(1, 5)]);
    assert_eq!(near(driver.add(1, 0b01)), [], "it was near before, and took nothing");
}
