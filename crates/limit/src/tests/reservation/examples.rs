//! Worked examples.

use super::*;

#[test]
fn an_id_that_reserved_twice_settles_a_part_each_time() {
    let mut key = Key::new(vec![fixed(100, MINUTE)]);
    key.reserve(1, 10);
    key.now += SECOND;
    key.reserve(1, 21);
    assert_eq!(key.used(), [31]);
    assert_eq!(key.settle(1, 4), 15);
    assert_eq!(key.used(), [20]);
    assert_eq!(key.settle(1, 20), 16);
    assert_eq!(key.used(), [24]);
    assert!(key.ids.reservations.is_empty());
}

#[test]
fn what_was_reserved_at_the_first_instant_is_returned() {
    let mut key = Key { now: 0, ..Key::new(vec![fixed(100, MINUTE), window(100, MINUTE)]) };
    key.reserve(1, 10);
    key.now += SECOND;
    assert_eq!((key.settle(1, 4), key.used()), (10, vec![4, 4]));
}

#[test]
fn a_window_that_changed_starts_a_new_reservation() {
    let mut key = Key::new(vec![fixed(100, 3_600 * SECOND), fixed(100, MINUTE)]);
    key.reserve(1, 10);
    key.now += MINUTE;
    key.reserve(1, 20);
    // The first one stays charged in both windows.
    assert_eq!(key.used(), [30, 20]);
    assert_eq!(key.settle(1, 5), 20);
    assert_eq!(key.used(), [15, 5]);
    assert_eq!(key.make(1, ReservationOp::settle(3)).reservation, ReservationResult::Unknown);
    assert_eq!(key.used(), [18, 8]);
}

#[test]
fn a_cancelled_reservation_returns_exactly_what_it_was_granted() {
    let mut key = Key::new(vec![fixed(20, MINUTE)]);
    key.reserve(1, 15);
    let decision = key.make(1, reserve(1, 9));
    assert_eq!((decision.granted, key.used()), (5, vec![20]));
    let cancelled = key.make(1, ReservationOp::Cancel(5));
    assert_eq!((cancelled.reservation, cancelled.reserved), (ReservationResult::Settled, 5));
    assert_eq!(key.used(), [15]);
    assert_eq!(key.settle(1, 15), 15);
    let late = key.make(1, ReservationOp::Cancel(5));
    assert_eq!((late.reservation, key.used()), (ReservationResult::Unknown, vec![15]));
}

#[test]
fn what_lapsed_stays_charged() {
    let mut key = Key::new(vec![fixed(100, 3_600 * SECOND)]);
    key.now += 1;
    key.reserve(1, 10);
    // In whole seconds.
    key.now += 600 * SECOND;
    assert!(key.ids.reservations[&1].is_live(key.now));
    key.now += SECOND;
    let decision = key.make(1, ReservationOp::settle(7));
    assert_eq!((decision.reservation, decision.granted), (ReservationResult::Unknown, 7));
    assert_eq!(key.used(), [17]);
}

#[test]
fn only_limits_that_took_the_hits_are_settled() {
    let mut key = Key::new(vec![fixed(100, MINUTE), shadow(fixed(5, MINUTE))]);
    key.reserve(1, 4);
    let decision = key.make(2, reserve(1, 10));
    assert_eq!((decision.granted, decision.would_deny), (10, 0b10));
    assert_eq!(key.used(), [14, 4]);
    assert_eq!(key.settle(2, 3), 10);
    assert_eq!(key.used(), [7, 4]);
    assert_eq!(key.settle(1, 9), 4);
    assert_eq!(key.used(), [12, 9]);
}

#[test]
fn a_call_settles_what_its_id_has_reserved_and_else_reserves() {
    let mut key = Key::new(vec![fixed(100, MINUTE)]);
    let reserve = Reserve { least: 1, most: 40, timeout: 9 };
    let call = |used| ReservationOp::Settle { used, otherwise: Otherwise::Reserve(reserve) };
    assert_eq!(key.make(1, call(0)).reservation, ReservationResult::Reserved);
    assert_eq!(key.used(), [40]);
    assert_eq!(key.make(1, call(12)).reserved, 40);
    assert_eq!(key.used(), [12]);
    // Of what was used before it is known, nothing is charged.
    let again = key.make(1, call(3));
    assert_eq!((again.reservation, again.granted), (ReservationResult::Reserved, 40));
    assert_eq!(key.used(), [52]);
}

#[test]
fn a_repeated_request_reserves_once() {
    let mut key = Key::new(vec![fixed(50, MINUTE)]);
    let reserve = Reserve { least: 1, most: 40, timeout: 9 };
    let once = |tag| ReservationOp::Reserve { reserve, once: NonZeroU16::new(tag) };
    assert_eq!(key.make(1, once(7)).reservation, ReservationResult::Reserved);
    let again = key.make(1, once(7));
    assert_eq!((again.reservation, again.reserved), (ReservationResult::Repeated, 40));
    let other = key.make(1, once(8));
    assert_eq!((other.reservation, other.reserved), (ReservationResult::Conflict, 40));
    assert_eq!(key.used(), [40]);
    // One that adds up is no repetition of it.
    key.reserve(1, 5);
    assert_eq!(key.make(1, once(7)).reservation, ReservationResult::Conflict);
    let known = ReservationOp::Settle { used: 3, otherwise: Otherwise::Nothing };
    assert_eq!(key.make(1, known).reserved, 22);
    assert_eq!(key.make(1, known).reserved, 23);
    let unknown = key.make(1, known);
    assert_eq!((unknown.reservation, unknown.granted), (ReservationResult::Unknown, 0));
    assert_eq!(key.used(), [6]);
}

#[test]
fn a_window_that_begins_within_another_one_returns_hits_after_the_clock_left_it() {
    let mut key = Key::new(vec![fixed(100, 3_600 * SECOND), window(100, MINUTE)]);
    key.now += MINUTE;
    key.reserve(1, 1);
    key.now -= SECOND;
    key.reserve(2, 50);
    key.settle(2, 10);
    assert_eq!(key.used(), [11, 11]);
}

#[test]
fn a_window_never_returns_what_an_earlier_one_has_counted() {
    // The hour stays in the new one, the minute goes back.
    let mut key = Key::new(vec![fixed(100, 3_600 * SECOND), fixed(100, MINUTE)]);
    key.reserve(1, 1);
    key.now -= 150 * SECOND;
    key.reserve(2, 50);
    key.now += MINUTE;
    key.reserve(3, 9);
    assert_eq!(key.used()[1], 9);
    key.settle(2, 10);
    assert_eq!(key.used()[1], 9);
}

#[test]
fn settling_charges_beyond_the_limit() {
    let mut key = Key::new(vec![fixed(20, MINUTE)]);
    key.reserve(1, 20);
    assert!(!key.make(2, reserve(1, 5)).allowed);
    key.settle(1, 50);
    assert_eq!(key.used(), [50]);
}

#[test]
fn what_cannot_be_returned_later_is_not_reserved() {
    let strict = Kind::Token { capacity: 5, amount: 1, strict: true };
    let concurrency = Concurrency { n: 1, timeout: SECOND, hold_id: None };
    for limit in [
        log(5, MINUTE),
        limit(1, Algorithm::Concurrency(concurrency), false),
        Model::new(strict, 5, SECOND).limit(),
        bucket(5, 1, SECOND),
        gcra(5, SECOND, 5),
    ] {
        assert!(!Plan::new(vec![fixed(1, MINUTE), limit]).can_reserve());
    }
    let reduce = ReduceBucket { max: 5, refill: 1, interval: 1, strict: false, at: None };
    assert!(!reduce.plan().can_reserve());
}

#[test]
fn what_is_denied_is_never_charged() {
    let charged = |limit| Limit { charge_denied: true, ..limit };
    for limits in [
        vec![charged(fixed(10, MINUTE))],
        vec![charged(window(10, MINUTE)), charged(fixed(20, MINUTE))],
        vec![fixed(10, MINUTE), shadow(charged(fixed(9, MINUTE)))],
    ] {
        let mut key = Key::new(limits);
        key.reserve(1, 5);
        let before = key.used();
        let six = Reserve { least: 6, most: 6, timeout: 9 };
        for op in [
            reserve(6, 9),
            ReservationOp::Reserve { reserve: six, once: Some(NonZeroU16::MIN) },
            ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(six) },
        ] {
            let denied = key.make(2, op);
            assert!(!denied.allowed, "{op:?} of {:?}", key.plan);
            assert_eq!((denied.remaining, key.used()), (5, before.clone()), "{op:?}");
        }
        // A limit in shadow mode does not charge what it would have denied, which is not returned.
        key.reserve(2, 5);
        key.settle(2, 0);
        assert_eq!(key.used(), before);
        // Packed states do as much.
        let mut packed = Packed::default();
        if key.plan.packs() {
            key.plan.charge_packed(&mut packed, NOON, Op::Take(5), None);
            let denied =
                key.plan.charge_packed(&mut packed, NOON, Op::Reservation(reserve(6, 9)), None);
            assert_eq!((denied.decision.allowed, denied.decision.remaining), (false, 5));
        }
    }
}
