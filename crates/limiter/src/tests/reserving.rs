//! Rules that reserve hits before they are known.

use super::limits::entry;
use super::*;

const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: hour, unit: hour, requests_per_unit: 100 }
      - { name: minute, algorithm: sliding_window, unit: minute, requests_per_unit: 50 }
    reserve: { id: request_id, settle: settle, estimate: 10, at_least: 5, at_most: 40, timeout: 10m }
  - key: gateway
    descriptors:
      - key: request_id
        rate_limit: { unit: hour, requests_per_unit: 100 }
        reserve: { id: request_id, estimate: 30 }
  - key: other
    rate_limit: { unit: hour, requests_per_unit: 1 }
";

fn reserve<'a>(entries: &'a [Entry<'a>], hits: Option<u64>) -> Descriptor<'a> {
    entry(entries, hits, false)
}

impl Bench {
    /// Sends one descriptor. Returns whether it is over its limit, and what remains.
    fn one(&self, entries: &[Entry<'_>], hits: Option<u64>) -> (bool, u32) {
        let (over, shown) = self.send(&[reserve(entries, hits)], 0);
        (over, shown[0].2)
    }

    fn reservations(&self, rule: &str) -> (Vec<u64>, Vec<u64>, [u64; 3]) {
        let rule = self.rules.rules().find(|it| &*it.name == rule).expect("a rule of that name");
        let stats = rule.reserve_stats.as_ref().expect("a rule with reserve");
        let counts = stats.counts();
        let numbers = |results: &[(&str, u64)]| results.iter().map(|(_, count)| *count).collect();
        (numbers(&counts.reservations), numbers(&counts.settlements), counts.hits)
    }
}

const ANN: [Entry<'static>; 1] = [("user", "ann")];
const FIRST: [Entry<'static>; 2] = [("user", "ann"), ("request_id", "1")];
const SECOND_ID: [Entry<'static>; 2] = [("user", "ann"), ("request_id", "2")];
const FIRST_END: [Entry<'static>; 3] = [("user", "ann"), ("request_id", "1"), ("settle", "")];

#[test]
fn what_is_reserved_counts_until_it_is_settled() {
    let bench = Bench::new(RULES);
    assert_eq!(bench.one(&FIRST, Some(30)), (false, 20));
    assert_eq!(bench.one(&ANN, Some(0)), (false, 20));
    // What is left is granted, if that is enough.
    assert_eq!(bench.one(&SECOND_ID, Some(40)), (false, 0));
    assert_eq!(bench.one(&[("user", "ann"), ("request_id", "3")], None), (true, 0));
    assert_eq!(bench.one(&FIRST_END, Some(12)), (false, 18));
    // More than was reserved: the next ones pay.
    let end = [("user", "ann"), ("request_id", "2"), ("settle", "x")];
    assert_eq!(bench.one(&end, Some(50)), (false, 0));
    assert_eq!(bench.one(&ANN, Some(0)), (true, 0));
    let (reservations, settlements, hits) = bench.reservations("d.user");
    assert_eq!((reservations, settlements), (vec![2, 1], vec![2, 0, 0, 0]));
    // 12 and 50 of 50 a minute.
    assert_eq!(hits, [50, 62, 12]);
}

#[test]
fn estimates_are_those_of_the_rule_where_the_caller_sends_none() {
    let bench = Bench::new(RULES);
    for (hits, reserved) in [(None, 10), (Some(0), 10), (Some(1), 5), (Some(u64::MAX), 40)] {
        let bench = Bench::new(RULES);
        assert_eq!(bench.one(&FIRST, hits), (false, 50 - reserved), "{hits:?}");
    }
    // The request's hits are those of each descriptor.
    assert_eq!(bench.send(&[reserve(&FIRST, None)], 7).1[0].2, 43);
    assert_eq!(bench.send(&[reserve(&FIRST_END, None)], 9).1[0].2, 41);
}

#[test]
fn hits_without_an_id_are_charged_and_counted() {
    let bench = Bench::new(RULES);
    assert_eq!(bench.one(&ANN, Some(45)), (false, 5));
    assert_eq!(bench.one(&ANN, Some(45)), (false, 0));
    assert_eq!(bench.one(&ANN, Some(0)), (true, 0));
    assert_eq!(bench.one(&FIRST_END, Some(3)), (false, 0));
    let (_, settlements, hits) = bench.reservations("d.user");
    assert_eq!((settlements, hits), (vec![0, 0, 3, 0], [0, 0, 43]));
    // A request without a number is one hit, and asks.
    assert_eq!(bench.one(&ANN, None), (true, 0));
}

#[test]
fn a_denied_request_holds_no_reservation() {
    for together in ["", "charge: together\n"] {
        let bench = Bench::new(&format!("{together}{RULES}"));
        assert_eq!(bench.one(&[("other", "x")], None), (false, 0));
        for _ in 0..1_000 {
            let denied = [reserve(&FIRST, Some(30)), reserve(&[("other", "x")], None)];
            assert!(bench.send(&denied, 0).0);
            assert_eq!(bench.one(&ANN, Some(0)), (false, 50));
        }
        // The end of such a request changes nothing if it is sent with 0.
        assert_eq!(bench.one(&FIRST_END, Some(0)), (false, 50));
        let (reservations, settlements, _) = bench.reservations("d.user");
        assert_eq!(settlements[2], 1);
        if together.is_empty() {
            assert_eq!((reservations[0], settlements[1]), (1_000, 1_000));
        }
    }
}

#[test]
fn a_retried_id_loses_only_what_the_denied_request_was_granted() {
    let bench = Bench::new(RULES);
    assert_eq!(bench.one(&FIRST, Some(20)), (false, 30));
    bench.ask(&[("other", "x")]);
    let denied = [reserve(&FIRST, Some(15)), reserve(&[("other", "x")], None)];
    assert!(bench.send(&denied, 0).0);
    assert_eq!(bench.one(&ANN, Some(0)), (false, 30));
    assert_eq!(bench.one(&FIRST_END, Some(4)), (false, 46));
}

#[test]
fn without_a_mark_the_second_call_settles() {
    let bench = Bench::new(RULES);
    let call = [("gateway", "g"), ("request_id", "1")];
    assert_eq!(bench.one(&call, Some(0)), (false, 70));
    assert_eq!(bench.one(&call, Some(12)), (false, 88));
    assert_eq!(bench.one(&call, Some(5)), (false, 83));
    let (reservations, settlements, hits) = bench.reservations("d.gateway.request_id");
    assert_eq!((reservations, settlements), (vec![1, 0], vec![1, 0, 1, 0]));
    assert_eq!(hits, [30, 12, 0]);
}

#[test]
fn who_must_not_settle_returns_nothing() {
    let bench = Bench::new(RULES);
    let (call, beside) =
        ([("gateway", "g"), ("request_id", "1")], [("user", "bob"), ("request_id", "1")]);
    let ask = |entries, hits| {
        let descriptors = [reserve(&beside, Some(30)), reserve(entries, hits)];
        let no_settling = Some("no settling");
        let request =
            Request { domain: "d", descriptors: &descriptors, no_settling, ..Request::default() };
        bench.decide(&request).map(|decision| decision.over_limit)
    };
    let invalid = Err(RequestError::BadDescriptor(1, "no settling"));
    assert_eq!(bench.one(&FIRST, Some(30)), (false, 20));
    for hits in [None, Some(0), Some(12)] {
        assert_eq!(ask(&FIRST_END, hits), invalid, "{hits:?}");
    }
    assert_eq!(bench.one(&ANN, Some(0)), (false, 20));
    // Without a mark, the second call would settle, whoever made the first.
    assert_eq!(ask(&call, Some(12)), invalid);
    for end in [Some(0), Some(12)] {
        assert_eq!(ask(&call, None), Ok(false));
        assert_eq!(
            bench.one(&[("user", "bob"), ("request_id", "1"), ("settle", "")], Some(0)).1,
            50
        );
        assert_eq!(ask(&call, Some(0)), invalid);
        assert_eq!(bench.one(&call, end).1, 100 - end.unwrap() as u32);
        bench.clock.advance(3_600 * SECOND);
    }
    assert_eq!(bench.one(&call, Some(0)), (false, 70));
    assert_eq!(ask(&call, None), invalid);
    assert_eq!(bench.one(&call, Some(0)), (false, 100));
    // Nothing was kept of what was reserved beside.
    assert_eq!(bench.one(&[("user", "bob")], Some(0)), (false, 50));
    assert_eq!(bench.limiter.counts().invalid.load(Relaxed), 7);
}

#[test]
fn the_reservation_of_a_caller_that_goes_away_is_released() {
    let bench = Bench::new(RULES);
    let descriptors = [reserve(&FIRST, Some(30))];
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let mut holds = Holds::default();
    assert!(!bench.decide_with(&request, &mut holds).unwrap().over_limit && holds.is_some());
    assert_eq!(bench.one(&ANN, Some(0)), (false, 20));
    bench.release(holds);
    assert_eq!(bench.one(&ANN, Some(0)), (false, 50));
    assert_eq!(bench.reservations("d.user").1, [0, 1, 0, 0]);
}

#[test]
fn refunds_do_nothing() {
    let bench = Bench::new(RULES);
    assert_eq!(bench.one(&FIRST, Some(30)), (false, 20));
    for entries in [&ANN[..], &FIRST, &FIRST_END] {
        let (over, shown) = bench.send(&[entry(entries, Some(30), true)], 0);
        assert_eq!((over, shown[0].2), (false, 20));
    }
    assert_eq!(bench.limiter.counts().ignored_refunds.load(Relaxed), 3);
}

#[test]
fn a_denied_request_of_a_program_holds_no_reservation_of_any_rule() {
    let bench = Bench::new(
        "domain: d
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 100 } }
  - { key: one, rate_limit: { unit: hour, requests_per_unit: 1 } }
",
    );
    let by = |id| Budget { id, step: ReservationStep::Reserve(10) };
    let (first, second) = (by("a"), by("b"));
    let one = [("one", "x")];
    let reserve = |entries, budget| Descriptor { budget: Some(budget), ..reserve(entries, None) };
    assert!(!bench.send(&[reserve(&one, &first)], 0).0);
    assert!(bench.send(&[reserve(&ANN, &second), reserve(&one, &second)], 0).0);
    assert_eq!(bench.one(&ANN, Some(0)), (false, 100));
}
