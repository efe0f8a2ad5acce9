//! Controls of rules that reserve.

use super::*;
use crate::tests::limits::entry;

/// Sends a descriptor of one of the rules. Returns whether it is over its limit, and what remains.
fn one(bench: &Controlled, further: &[Entry<'_>], hits: u64) -> (bool, u32) {
    let (over, shown) = bench.send("d", &[entry(further, Some(hits), false)]);
    (over, shown[0].2)
}

const LOOK: [Entry<'static>; 1] = [("budget", "b")];
const START: [Entry<'static>; 2] = [("budget", "b"), ("id", "1")];
const END: [Entry<'static>; 3] = [("budget", "b"), ("id", "1"), ("settle", "")];
const PAIR: [Entry<'static>; 2] = [("pair", "b"), ("id", "1")];

/// A bench with what was reserved before the control.
fn bench(action: Action) -> Controlled {
    let bench = single(Vec::new());
    assert_eq!(one(&bench, &START, 40), (false, 60));
    assert_eq!(one(&bench, &PAIR, 0), (false, 70));
    let both = [("budget", "b"), ("pair", "b")];
    let controls = both.map(|entry| control("d", &[entry], action.clone()));
    let numbered = controls.into_iter().enumerate();
    let controls = numbered.map(|(i, it)| Arc::new(Control { id: i.to_string(), ..it }));
    bench.active.set_controls(controls.collect());
    bench
}

#[test]
fn a_block_reserves_nothing_and_lets_settle() {
    let bench = bench(Action::Block);
    assert_eq!(one(&bench, &START, 40), (true, 0));
    assert_eq!(one(&bench, &LOOK, 0), (true, 0));
    assert!(!one(&bench, &END, 15).0);
    assert!(!one(&bench, &PAIR, 12).0);
    bench.active.set_controls(Vec::new());
    assert_eq!(one(&bench, &LOOK, 0), (false, 85));
    assert_eq!(one(&bench, &[("pair", "b")], 0), (false, 88));
}

#[test]
fn a_block_ends_what_a_call_without_hits_has_reserved() {
    let bench = bench(Action::Block);
    assert!(one(&bench, &PAIR, 0).0);
    bench.active.set_controls(Vec::new());
    assert_eq!(one(&bench, &[("pair", "b")], 0), (false, 100));
}

#[test]
fn an_allowance_reserves_nothing_and_charges_what_was_used() {
    let bench = bench(Action::Allow { count: true });
    assert_eq!(one(&bench, &START, 40), (false, 60));
    // Of what was reserved before.
    assert_eq!(one(&bench, &END, 15), (false, 85));
    assert_eq!(one(&bench, &END, 25), (false, 60));
    assert_eq!(one(&bench, &PAIR, 12), (false, 88));
    assert_eq!(one(&bench, &PAIR, 0), (false, 88));
    assert_eq!(one(&bench, &PAIR, 8), (false, 80));
}

#[test]
fn an_allowance_that_does_not_count_returns_what_was_reserved() {
    let bench = bench(Action::Allow { count: false });
    assert!(!one(&bench, &START, 40).0);
    assert!(!one(&bench, &END, 15).0);
    assert!(!one(&bench, &END, 15).0);
    assert!(!one(&bench, &PAIR, 12).0);
    bench.active.set_controls(Vec::new());
    assert_eq!(one(&bench, &LOOK, 0), (false, 100));
    assert_eq!(one(&bench, &[("pair", "b")], 0), (false, 100));
}

#[test]
fn a_limit_below_the_least_reserves_that() {
    let bench = bench(limit(50, ""));
    assert_eq!(one(&bench, &END, 0), (false, 50));
    bench.active.set_controls(vec![Arc::new(control("d", &[("budget", "b")], limit(7, "")))]);
    assert_eq!(one(&bench, &START, 1), (false, 0));
    assert_eq!(one(&bench, &END, 3), (false, 4));
    assert_eq!(one(&bench, &START, 1), (true, 0));
}
