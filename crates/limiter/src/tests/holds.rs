//! Hits of concurrency limits that a cancelled call releases.

use std::future::{Future, Pending};
use std::num::NonZeroU32;

use super::limits::entry;
use super::*;
use weir_limit::{Decision, Op, ReservationResult, Source, UpTo};
use weir_store::{Answers, Batch, Charge, Key, Role, Store};

const RULES: &str = "domain: d
descriptors:
  - key: user
    descriptors:
      - key: id
        rate_limit: { algorithm: concurrency, requests_per_unit: 2, hold_id: id }
  - key: level
    rate_limit: { algorithm: concurrency, requests_per_unit: 2 }
  - key: strict
    rate_limit: { algorithm: concurrency, requests_per_unit: 2, charge_denied: false }
  - key: window
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: several
    descriptors:
      - key: id
        rate_limits:
          - { unit: hour, requests_per_unit: 2 }
          - { algorithm: concurrency, requests_per_unit: 9, hold_id: id }
";

/// Decides a request and returns its holds.
fn holds(bench: &Bench, descriptors: &[Descriptor<'_>]) -> Holds {
    let request = Request { domain: "d", descriptors, ..Request::default() };
    let mut holds = Holds::default();
    let _ = bench.decide_with(&request, &mut holds);
    holds
}

fn take(bench: &Bench, entries: &[Entry<'_>]) -> Holds {
    let entries = Descriptor { entries, hits_addend: Some(1), ..Default::default() };
    holds(bench, &[entries])
}

/// Returns what remains according to a look.
fn left(bench: &Bench, entries: &[Entry<'_>]) -> u32 {
    let look = Descriptor { entries, hits_addend: Some(0), ..Default::default() };
    let request = Request { domain: "d", descriptors: &[look], ..Request::default() };
    bench.decide(&request).unwrap().statuses[0].remaining
}

#[test]
fn holds_with_an_id_are_released_and_nothing_else() {
    let bench = Bench::new(RULES);
    let first = take(&bench, &[("user", "ann"), ("id", "1")]);
    let second = take(&bench, &[("user", "ann"), ("id", "2")]);
    let denied = take(&bench, &[("user", "ann"), ("id", "3")]);
    assert_eq!([first.is_some(), second.is_some(), denied.is_some()], [true, true, false]);
    bench.release(second);
    assert_eq!(left(&bench, &[("user", "ann"), ("id", "look")]), 1);
    bench.release(denied);
    bench.release(first);
    assert_eq!(left(&bench, &[("user", "ann"), ("id", "look")]), 2);
}

#[test]
fn without_ids_denials_that_were_charged_are_released_too() {
    let bench = Bench::new(RULES);
    for (key, charges_denied) in [("level", true), ("strict", false)] {
        let entries = [(key, "")];
        let taken: Vec<Holds> = (0..3).map(|_| take(&bench, &entries)).collect();
        let takes: Vec<bool> = taken.iter().map(Holds::is_some).collect();
        assert_eq!(takes, [true, true, charges_denied], "{key}");
        taken.into_iter().for_each(|holds| bench.release(holds));
        assert_eq!(left(&bench, &entries), 2, "{key}");
    }
}

#[test]
fn other_limits_looks_and_releasing_take_no_holds() {
    let bench = Bench::new(RULES);
    assert!(take(&bench, &[("window", "")]).is_none());
    let entries = [("user", "ann"), ("id", "1")];
    for (hits, back) in [(0, false), (1, true)] {
        assert!(holds(&bench, &[entry(&entries, Some(hits), back)]).is_none(), "{hits} {back}");
    }
    // Next to other limits, only the hold of the concurrency limit is released.
    let taken = take(&bench, &[("several", "a"), ("id", "1")]);
    bench.release(taken);
    assert_eq!(left(&bench, &[("several", "a"), ("id", "look")]), 1, "of the window");
    // All holds of a request.
    let both = [entry(&entries, Some(2), false), entry(&[("level", "")], Some(1), false)];
    let taken = holds(&bench, &both);
    bench.release(taken);
    assert_eq!(left(&bench, &entries), 2);
    assert_eq!(left(&bench, &[("level", "")]), 2);
}

#[test]
fn a_batch_that_is_denied_as_a_whole_has_nothing_to_release() {
    let rules = "domain: d
charge: together
descriptors:
  - key: user
    descriptors:
      - key: id
        rate_limit: { algorithm: concurrency, requests_per_unit: 2, hold_id: id }
  - key: none
    rate_limit: { unit: hour, requests_per_unit: 0 }
";
    let bench = Bench::new(rules);
    let id = [("user", "ann"), ("id", "1")];
    assert!(take(&bench, &id).is_some());
    let denied = [entry(&id, Some(1), false), entry(&[("none", "")], Some(1), false)];
    let taken = holds(&bench, &denied);
    assert!(taken.is_none(), "the hold of the first request stays");
    // The keys of such a domain are others in Redis.
    let released = Released::default();
    let other = Bench::new(RULES);
    for bench in [&bench, &other] {
        let taken = take(bench, &id).expect("a hold");
        taken.release(&released).now_or_never().expect("it answers now");
    }
    assert_eq!(*released.0.lock(), [true, false]);
}

/// Notes whether what is released is of a domain whose charges are made together.
#[derive(Default)]
struct Released(parking_lot::Mutex<Vec<bool>>);

impl Store for Released {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.0.lock().push(batch.together);
        None::<Pending<Answers>>
    }
}

#[test]
fn if_the_outcome_is_unknown_only_holds_with_an_id_are_released() {
    let decision = Decision {
        banned: false,
        ban_begins: false,
        allowed: true,
        limit: 0,
        would_deny: 0,
        used_before: 0,
        remaining: 1,
        reset_after: 0,
        retry_after: None,
        source: Source::Store,
        granted: 3,
        reserved: 0,
        reservation: ReservationResult::None,
        near: None,
    };
    let degraded = Decision { source: Source::Degraded, ..decision.clone() };
    let bench = Bench::new(RULES);
    let plan = |name: &str| {
        let rule = bench.rules.rules().find(|rule| rule.name.ends_with(name)).unwrap();
        rule.plan.clone().unwrap()
    };
    let (with_id, level) = (plan("user.id"), plan("level"));
    let charge_of = |plan, hold, op| Charge {
        key: Key { domain: "d", entries: &[] },
        plan,
        op,
        hold,
        role: Role::Enforced,
    };
    for (answer, by_id, without) in [
        (Ok(decision), true, true),
        (Ok(degraded), true, false),
        (Err(StoreError::TimedOut), true, false),
        (Err(StoreError::CallerDeadline), true, false),
        (Err(StoreError::Unavailable), true, false),
        (Err(StoreError::Corrupt), false, false),
    ] {
        let may_hold = |plan, hold| charge_of(plan, hold, Op::Take(1)).held(&answer) == Some(1);
        assert_eq!(may_hold(&with_id, Some("1")), by_id, "{answer:?}");
        assert_eq!(may_hold(&level, None), without, "{answer:?}");
        for op in [Op::Take(0), Op::Refund(1), Op::Add { hits: 1, limits: 0 }] {
            assert_eq!(charge_of(&with_id, Some("1"), op).held(&answer), None);
        }
        // What was granted, or may have been.
        let granted = answer.as_ref().is_ok_and(|it| it.source == Source::Store);
        let up_to = Op::UpTo(UpTo { least: 1, most: 5, share: NonZeroU32::MIN });
        let held = charge_of(&with_id, Some("1"), up_to).held(&answer);
        assert_eq!(held, by_id.then_some(if granted { 3 } else { 5 }), "{answer:?}");
    }
}
