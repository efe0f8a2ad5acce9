//! What is counted together by rules with networks and lists.

use std::fs;
use std::sync::Arc;

use super::{Bench, NOW};
use crate::explain::explain;
use crate::{Descriptor, Limiter, Request};
use weir_common::clock::ManualClock;
use weir_rules::source::Selection;
use weir_rules::{Loaded, RuleOptions};
use weir_store::memory::MemoryStore;

/// A bench of rules that may name the list `list.txt`.
fn bench(rules: &str, list: &str) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rules).unwrap();
    fs::write(directory.path().join("list.txt"), list).unwrap();
    let loaded = Loaded::read(&Selection::of(path), &RuleOptions::default(), None);
    assert_eq!(loaded.problems, []);
    let clock = Arc::new(ManualClock::new(NOW));
    let store = MemoryStore::new(clock.clone(), 1_000);
    let limiter = Limiter::new(store, crate::LimiterOptions::default());
    Bench { rules: loaded.rules, limiter, clock }
}

/// What is left after a hit of each value in turn; none if it is not limited.
fn left(bench: &Bench, values: &[&str]) -> Vec<Option<u32>> {
    let hit = |value: &&str| {
        let (_, shown) = bench.ask(&[("ip", *value)]);
        shown[0].1.map(|_| shown[0].2)
    };
    values.iter().map(hit).collect()
}

#[test]
fn an_address_has_one_count_in_all_its_forms() {
    let bench = bench(
        "domain: d\ndescriptors:\n\
         - { key: ip, value: '*', rate_limit: { unit: hour, requests_per_unit: 1 } }\n\
         - { key: ip, network: ['10.0.0.0/8', '::/0'], rate_limit: { unit: hour, requests_per_unit: 9 } }\n\
         - { key: ip, network: 10.9.0.0/16, rate_limit: { unlimited: true } }\n",
        "",
    );
    let forms = ["10.1.2.3", "10.1.2.3:80", "::ffff:10.1.2.3", "10.1.2.4", "10.1.2.3/32"];
    assert_eq!(left(&bench, &forms), [Some(8), Some(7), Some(6), Some(8), Some(5)]);
    let forms = ["2001:db8::1", "[2001:DB8::1]:80", "2001:db8:0:0::1"];
    assert_eq!(left(&bench, &forms), [Some(8), Some(7), Some(6)]);
    // The allow list is stronger than the wildcard, and than the network around it.
    assert_eq!(left(&bench, &["10.9.1.1", "10.9.1.1", "192.0.2.1"]), [None, None, Some(0)]);
    // Several descriptors of one request.
    let (_, shown) = bench.ask(&[("ip", "10.1.2.5:1"), ("ip", "10.9.0.1"), ("ip", "[::5]:1")]);
    assert_eq!(shown.iter().map(|it| it.2).collect::<Vec<_>>(), [8, u32::MAX, 8]);
    assert_eq!(left(&bench, &["10.1.2.5", "::5"]), [Some(7), Some(7)]);
}

#[test]
fn an_address_is_not_counted_by_two_limits() {
    let bench = bench(
        "domain: d\ndescriptors:\n\
         - { key: ip, value: 10.0.0.5, rate_limit: { unit: minute, requests_per_unit: 100 } }\n\
         - { key: ip, network: 10.0.0.0/8, rate_limit: { unit: minute, requests_per_unit: 10 } }\n",
        "",
    );
    let forms = ["10.0.0.5", "10.0.0.5:80", "::ffff:10.0.0.5", "10.0.0.6:80"];
    assert_eq!(left(&bench, &forms), [Some(99), Some(98), Some(97), Some(9)]);
}

#[test]
fn a_group_is_never_larger_than_its_network() {
    let bench = bench(
        "domain: d\ndescriptors:\n\
         - { key: ip, network: 192.0.2.0/24, group: { v4: 24 }, rate_limit: { unit: hour, requests_per_unit: 9 } }\n\
         - { key: ip, network: 192.0.2.0/25, group: { v4: 24 }, rate_limit: { unit: hour, requests_per_unit: 5 } }\n",
        "",
    );
    assert_eq!(left(&bench, &["192.0.2.1", "192.0.2.2"]), [Some(4), Some(3)]);
    assert_eq!(left(&bench, &["192.0.2.128", "192.0.2.129"]), [Some(8), Some(7)]);
}

#[test]
fn groups_and_shared_networks_are_counted_together() {
    let bench = bench(
        "domain: d\ndescriptors:\n\
         - { key: ip, network: ['10.0.0.0/8', '::/0'], group: { v4: 24, v6: 64 }, detailed_metric: true, \
         rate_limit: { unit: hour, requests_per_unit: 9 } }\n\
         - { key: ip, network: 192.0.2.0/24, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 9 } }\n\
         - { key: ip, values_file: list.txt, share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 9 } }\n",
        "198.51.100.0/24\nann\n",
    );
    assert_eq!(left(&bench, &["10.1.2.3", "10.1.2.4", "10.1.3.4"]), [Some(8), Some(7), Some(8)]);
    assert_eq!(
        left(&bench, &["2001:db8::1", "2001:db8::2", "2001:db8:0:1::"]),
        [Some(8), Some(7), Some(8)]
    );
    // A network that is larger than its group counts as itself.
    assert_eq!(left(&bench, &["10.1.0.0/16", "10.1.0.0/16"]), [Some(8), Some(7)]);
    assert_eq!(left(&bench, &["192.0.2.1", "192.0.2.2"]), [Some(8), Some(7)]);
    assert_eq!(left(&bench, &["198.51.100.1", "ann", "bob"]), [Some(8), Some(7), None]);
    // The name of a list is no value of it.
    assert_eq!(left(&bench, &["@list.txt", "ann"]), [None, Some(6)]);
    let entries = [[("ip", "10.1.2.3")], [("ip", "[2001:db8::9]:1")], [("ip", "ann")]];
    let descriptors: Vec<_> =
        entries.iter().map(|entries| Descriptor { entries, ..Descriptor::default() }).collect();
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let explained = explain(&bench.rules, &request, false, "weir:").unwrap();
    let shown: Vec<_> = explained
        .descriptors
        .iter()
        .map(|it| (it.key.as_deref().unwrap(), it.metric.as_deref().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("weir:{d|ip=10.1.2.0/24}f3600", "d.ip_10.1.2.0/24"),
            ("weir:{d|ip=2001:db8::/64}f3600", "d.ip_2001:db8::/64"),
            ("weir:{d|ip=@list.txt}f3600", "d.ip_@list.txt"),
        ]
    );
    let matched = explained.descriptors[2].steps[0].matched.as_ref().unwrap();
    assert_eq!((matched.within.as_deref(), matched.share_threshold), (Some("list.txt:2"), true));
}
