//! The index against comparing all controls one by one.

use std::cmp::Reverse;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::changes::match_of;
use super::super::index::{Index, Row};
use super::super::limits::LimitControls;
use super::super::plans::{ChangedPlans, RulesByKey};
use super::*;
use weir_common::entry::Entry;

fn action() -> impl Strategy<Value = Action> {
    let change = LimitChange { n: 1, burst: None, name: String::new() };
    prop_oneof![
        Just(Action::Block),
        any::<bool>().prop_map(|count| Action::Allow { count }),
        Just(Action::Limit { limit: change }),
    ]
}

prop_compose! {
    fn any_control()(
        domain in prop_oneof![Just("d"), Just("e"), Just("*")],
        entries in vec(("[kl]", prop_oneof!["[ab]{0,2}", "[ab*]{0,3}"]), 0..3),
        exact in any::<bool>(),
        action in action(),
        until in option::of(NOW - 2..NOW + 3),
        at in 0..3u64,
    ) -> Control {
        let entries = entries.into_iter().map(OwnedEntry::from).collect();
        let (reason, by, domain) = (String::new(), String::new(), domain.to_owned());
        Control { id: String::new(), domain, entries, exact, action, until, reason, by, at }
    }
}

/// Returns the newest control that changes limits and matches the same, if the control changes limits.
fn newest<'c>(controls: &'c [Arc<Control>], control: &'c Control) -> &'c Control {
    let is_limit = |control: &Control| matches!(control.action, Action::Limit { .. });
    let is_same = |other: &&Control| is_limit(other) && match_of(other) == match_of(control);
    let same = controls.iter().map(|other| &**other).filter(is_same);
    let newest = same.max_by_key(|other| (other.at, Reverse(&other.id)));
    newest.filter(|_| is_limit(control)).unwrap_or(control)
}

/// Finds the first control that applies by comparing all of them.
fn naive<'c>(
    controls: &'c [Arc<Control>],
    domain: &str,
    entries: &[Entry<'_>],
) -> Option<&'c Arc<Control>> {
    let applies = controls
        .iter()
        .filter(|control| control.matches(domain, entries) && !control.is_expired(NOW));
    let better = |a: &Control, b: &Control| {
        let rank = |control: &Control| match control.action {
            Action::Block => 0,
            Action::Allow { .. } => 1,
            Action::Limit { .. } => 2,
        };
        if rank(a) != rank(b) {
            return rank(a) < rank(b);
        }
        let until = |control: &Control| control.until.unwrap_or(Micros::MAX);
        if rank(a) == 0 && until(a) != until(b) {
            return until(a) > until(b);
        }
        let specificity = |control: &Control| {
            let newest = newest(controls, control);
            let (at, id) = (newest.at, Reverse(newest.id.clone()));
            (control.exact, control.entries.len(), control.domain != "*", at, id)
        };
        match specificity(a) == specificity(b) {
            // They match the same: the first to end.
            true => (until(a), &a.id) < (until(b), &b.id),
            false => specificity(a) > specificity(b),
        }
    };
    applies.reduce(|best, other| if better(other, best) { other } else { best })
}

fn is_limit(control: &Control) -> bool {
    matches!(control.action, Action::Limit { .. })
}

/// Returns the index of controls that change no limits.
fn index(controls: impl Iterator<Item = Arc<Control>>) -> Index {
    let mut index = Index::default();
    for control in controls {
        index.insert(Row::new(control.clone(), control, ChangedPlans::default()));
    }
    index
}

proptest! {
    #[test]
    fn the_index_finds_what_comparing_all_finds(
        controls in vec(any_control(), 0..12),
        requests in vec((prop_oneof![Just("d"), Just("e")], vec(("[kl]", "[ab]{0,2}"), 0..4)), 1..20),
    ) {
        let controls: Vec<_> = controls
            .into_iter()
            .enumerate()
            .map(|(i, control)| Arc::new(Control { id: format!("{i:02}"), ..control }))
            .collect();
        let index = index(controls.iter().filter(|it| !is_limit(it)).cloned());
        let (mut limits, rules) = (LimitControls::default(), RulesByKey::default());
        for control in controls.iter().filter(|control| is_limit(control)) {
            limits.change(&control.id, Some(control.clone()), &rules, u64::MAX);
        }
        for (domain, entries) in &requests {
            let entries: Vec<Entry<'_>> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
            let find = |index: &Index| {
                let row = index.find(domain, &entries, || NOW, |_| true)?;
                Some(row.control.clone())
            };
            let found = find(&index).or_else(|| find(limits.index()));
            let expected = naive(&controls, domain, &entries);
            prop_assert_eq!(found.map(|it| it.id.clone()), expected.map(|it| it.id.clone()));
        }
    }
}

#[test]
fn a_control_is_found_by_its_rarest_exact_entry() {
    let controls = (0..1_000).map(|i| {
        let ip = format!("10.0.0.{i}");
        Arc::new(control(Action::Block, &[("path", "/login"), ("ip", &ip), ("agent", "*")]))
    });
    let index = index(controls);
    assert_eq!(index.most_compared(), 1);
    let find = |ip| {
        let entries = [("agent", "x"), ("ip", ip), ("path", "/login")];
        index.find("d", &entries, || NOW, |_| true).is_some()
    };
    assert!(find("10.0.0.999") && !find("10.0.0.1000"));
}

#[test]
fn controls_end_by_the_clock() {
    let ends = Control { until: Some(NOW + 1), ..control(Action::Block, &[("k", "a")]) };
    let index = index([Arc::new(ends)].into_iter());
    let find = |now| index.find("d", &[("k", "a")], || now, |_| true).is_some();
    assert!(find(NOW) && !find(NOW + 1));
}
