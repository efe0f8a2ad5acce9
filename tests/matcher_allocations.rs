//! Allocations of a look-up.

#[path = "support/allocator.rs"]
mod allocator;

use std::fs;

use allocator::allocations;
use weir_rules::source::Selection;
use weir_rules::{Loaded, Options};

#[test]
fn a_look_up_allocates_nothing() {
    let text = "
domain: d
descriptors:
  - key: path
    value: /a/*
    share_threshold: true
    descriptors:
      - key: user
        value: '*x*'
        share_threshold: true
        rate_limit: { unit: day, requests_per_unit: 1 }
        descriptors:
          - key: role
            value: '*'
            share_threshold: true
            descriptors:
              - key: zone
                value: '*'
                share_threshold: true
                rate_limit: { unit: day, requests_per_unit: 1 }
  - key: path
    value: /b
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: path
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: ip
    network: [10.0.0.0/8, 2001:db8::/32]
    group: { v6: 64 }
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: ip
    values: [bob, c*l, 192.0.2.7]
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: ip
    values_file: blocked.txt
    rate_limit: { unit: day, requests_per_unit: 1 }
";
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    fs::write(&rules, text).unwrap();
    fs::write(directory.path().join("blocked.txt"), "203.0.113.0/24\nann\n::1\n").unwrap();
    let loaded = Loaded::read(&Selection::of(rules), &Options::default(), None);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    let set = loaded.rules;
    let long = "x".repeat(10_000);
    for (entries, found) in [
        (&[("path", "/a/b"), ("user", "axb")][..], true),
        (&[("path", "/a/b"), ("user", long.as_str())], true),
        (&[("path", "/a/b"), ("user", "x"), ("role", "r"), ("zone", "z")], true),
        (&[("path", "/b")], true),
        (&[("path", "/anything")], true),
        (&[("path", long.as_str())], true),
        (&[("ip", "10.1.2.3")], true),
        (&[("ip", "[2001:db8::1%eth0]:443")], true),
        (&[("ip", "203.0.113.7")], true),
        (&[("ip", "0:0::1")], true),
        (&[("ip", "ann")], true),
        (&[("ip", "bob")], true),
        (&[("ip", "carol")], true),
        (&[("ip", "192.0.2.7:80")], true),
        (&[("ip", "192.0.2.1")], false),
        (&[("ip", long.as_str())], false),
        (&[("other", "/a")], false),
        (&[("path", "/a/b"), ("user", "none")], false),
        (&[], false),
    ] {
        let mut outcome = None;
        let count = allocations(|| {
            outcome = set.domain("d").map(|domain| domain.find(entries).is_some());
        });
        assert_eq!(outcome, Some(found), "{entries:?}");
        assert_eq!(count, 0, "{entries:?}");
    }
    assert_ne!(
        allocations(|| drop(std::hint::black_box(Box::new(5)))),
        0,
        "the allocator does not count"
    );
}
