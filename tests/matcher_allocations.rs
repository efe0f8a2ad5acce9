//! Allocations of a look-up.

#[path = "support/allocator.rs"]
mod allocator;

use allocator::allocations;
use weir_rules::source::RuleFile;
use weir_rules::{Options, RuleSet};

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
";
    let file = RuleFile { name: "rules.yaml".into(), text: text.into() };
    let (set, problems) = RuleSet::compile(&[file], &Options::default(), None);
    assert!(problems.is_empty(), "{problems:?}");
    let long = "x".repeat(10_000);
    for (entries, found) in [
        (&[("path", "/a/b"), ("user", "axb")][..], true),
        (&[("path", "/a/b"), ("user", long.as_str())], true),
        (&[("path", "/a/b"), ("user", "x"), ("role", "r"), ("zone", "z")], true),
        (&[("path", "/b")], true),
        (&[("path", "/anything")], true),
        (&[("path", long.as_str())], true),
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
