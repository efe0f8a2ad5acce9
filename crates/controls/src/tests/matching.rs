//! The index against comparing all controls one by one.

use std::cmp::Reverse;
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::changes::match_of;
use super::super::index::{Index, Row};
use super::super::limits::LimitControls;
use super::super::plans::{ChangedPlans, RulesByKey};
use super::*;
use weir_common::entry::Entry;
use weir_common::glob::Glob;

/// Values of controls: networks, and texts that are nearly some.
const NETWORKS: [&str; 11] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.0/24",
    "10.1.2.3/32",
    "0.0.0.0/0",
    "2001:db8::/32",
    "2001:DB8::/33",
    "::/0",
    "10.1.2.3",
    "10.1.2.3/8",
    "10.1.0.0/33",
];

/// Values of requests, and the address or the network that each is.
const VALUES: [(&str, &str); 12] = [
    ("10.1.2.3", "10.1.2.3/32"),
    ("10.1.2.3:80", "10.1.2.3/32"),
    ("::ffff:10.1.2.3", "10.1.2.3/32"),
    ("[::ffff:10.1.2.3]:80", "10.1.2.3/32"),
    ("10.2.0.1", "10.2.0.1/32"),
    ("10.1.0.0/16", "10.1.0.0/16"),
    ("10.0.0.0/8", "10.0.0.0/8"),
    ("10.1.2.3/8", "10.0.0.0/8"),
    ("2001:db8::1", "2001:db8::1/128"),
    ("[2001:db8:8000::1%eth0]:443", "2001:db8:8000::1/128"),
    ("2001:DB8::/33", "2001:db8::/33"),
    ("10.1.2", ""),
];

fn action() -> impl Strategy<Value = Action> {
    let change = LimitChange { n: 1, burst: None, name: String::new(), rate: None };
    prop_oneof![
        Just(Action::Block),
        any::<bool>().prop_map(|count| Action::Allow { count }),
        Just(Action::Limit { limit: change }),
    ]
}

fn control_value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab]{0,2}",
        "[ab*]{0,3}",
        Just("10.1.*".to_owned()),
        select(&NETWORKS).prop_map(String::from)
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", select(&VALUES).prop_map(|(value, _)| value.to_owned())]
}

prop_compose! {
    fn any_control()(
        domain in prop_oneof![Just("d"), Just("e"), Just("*")],
        entries in vec(("[kl]", control_value()), 0..3),
        exact in any::<bool>(),
        text in prop::bool::weighted(0.2),
        action in action(),
        until in option::of(NOW - 2..NOW + 3),
        at in 0..3u64,
    ) -> Control {
        let entries = entries.into_iter().map(OwnedEntry::from).collect();
        let (reason, by, domain) = (String::new(), String::new(), domain.to_owned());
        let except = Vec::new();
        Control { id: String::new(), domain, entries, exact, text, action, except, until, reason, by, at }
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

/// Returns the bits before the end of a prefix, each as a character, after the kind of address; and the bits
/// after it.
fn bits(network: &str) -> Option<(String, String)> {
    let (address, prefix_len) = network.split_once('/')?;
    let (kind, octets) = match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) => ('4', v4.octets().to_vec()),
        IpAddr::V6(v6) => ('6', v6.octets().to_vec()),
    };
    let bits: String = octets.iter().map(|octet| format!("{octet:08b}")).collect();
    let (prefix, rest) = bits.split_at_checked(prefix_len.parse().unwrap())?;
    Some((format!("{kind}{prefix}"), rest.to_owned()))
}

/// Returns the bits of the network that a value of a control is, and how many it leaves open.
fn network_bits(control: &Control, value: &str) -> Option<(String, usize)> {
    let (prefix, rest) = bits(value).filter(|_| !control.text)?;
    rest.bytes().all(|bit| bit == b'0').then_some((prefix, rest.len()))
}

/// Returns whether a control matches a descriptor.
fn naive_match(control: &Control, domain: &str, entries: &[Entry<'_>]) -> bool {
    let is_same_entry = |mine: &OwnedEntry, (key, value): &Entry<'_>| {
        mine.key == *key
            && match network_bits(control, &mine.value) {
                Some((prefix, _)) => {
                    let is =
                        VALUES.iter().find(|(text, _)| text == value).and_then(|(_, is)| bits(is));
                    is.is_some_and(|(bits, _)| bits.starts_with(&prefix))
                }
                None => Glob::new(&mine.value).matches(value),
            }
    };
    let has_entry = |mine: &OwnedEntry| entries.iter().any(|theirs| is_same_entry(mine, theirs));
    let is_same = || {
        let mut pairs = std::iter::zip(&control.entries, entries);
        control.entries.len() == entries.len()
            && pairs.all(|(mine, theirs)| is_same_entry(mine, theirs))
    };
    ["*", domain].contains(&control.domain.as_str())
        && control.entries.iter().all(has_entry)
        && (!control.exact || is_same())
}

/// Returns how little the values of a control say.
fn vagueness(control: &Control) -> (usize, usize, usize) {
    let networks = control.entries.iter().filter_map(|entry| network_bits(control, &entry.value));
    let open: Vec<usize> = networks.map(|(_, open)| open).collect();
    let globs = control.entries.iter().filter(|entry| entry.value.contains('*')).count();
    (globs, open.len(), open.iter().sum())
}

/// Finds the first control that applies by comparing all of them.
fn naive<'c>(
    controls: &'c [Arc<Control>],
    domain: &str,
    entries: &[Entry<'_>],
) -> Option<&'c Arc<Control>> {
    let applies = controls
        .iter()
        .filter(|control| naive_match(control, domain, entries) && !control.is_expired(NOW));
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
            let (named, vagueness) = (control.domain != "*", Reverse(vagueness(control)));
            (control.exact, control.entries.len(), named, vagueness, at, id)
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
        requests in vec((prop_oneof![Just("d"), Just("e")], vec(("[kl]", value()), 0..4)), 1..20),
    ) {
        let controls: Vec<_> = controls
            .into_iter()
            .enumerate()
            .map(|(i, control)| Arc::new(Control { id: format!("{i:02}"), ..control }))
            .collect();
        let index = index(controls.iter().filter(|it| !is_limit(it)).cloned());
        let (mut limits, rules) = (LimitControls::default(), RulesByKey::default());
        for control in controls.iter().filter(|control| is_limit(control)) {
            limits.change(&control.id, Some(control.clone()), &rules);
        }
        for (domain, entries) in &requests {
            let entries: Vec<Entry<'_>> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
            let find = |index: &Index| {
                let row = index.find(domain, &entries, || NOW, |_| true)?;
                Some(row.control.clone())
            };
            let found = find(&index).or_else(|| find(&limits.index));
            for control in &controls {
                let expected = naive_match(control, domain, &entries);
                prop_assert_eq!(control.matches(domain, &entries), expected, "{:?}", control);
            }
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
