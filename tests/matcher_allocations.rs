//! Allocations of reading a request, and of a look-up.

#[path = "support/allocator.rs"]
mod allocator;

use std::fs;

use allocator::allocations;
use prost::Message;
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::rls::service::{Descriptors, RequestView};
use weir_rules::source::Selection;
use weir_rules::{Loaded, Options};

#[test]
fn to_read_valid_text_allocates_nothing() {
    let read = |value: &str| {
        let entry = Entry { key: "user".to_owned(), value: value.to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry; 2], ..Default::default() };
        let (domain, descriptors) = ("shop".to_owned(), vec![descriptor; 3]);
        let message = RateLimitRequest { domain, descriptors, hits_addend: 0 }.encode_to_vec();
        let mut sent = 0;
        let count = allocations(|| {
            let (mut texts, mut view) = (Vec::new(), RequestView::default());
            view.decode(&message, 256, &mut texts).unwrap();
            sent = view.request(&mut Descriptors::new()).descriptors.len();
        });
        assert_eq!(sent, 3);
        count
    };
    for value in ["ann", "", "äöü\u{fffd}\u{10ffff}", &"x".repeat(10_000)] {
        assert_eq!(read(value), 0, "{value:.99}");
    }
    // Text that looks as that of bytes is encoded as they are.
    assert!(read("\u{10ff7f}") > 0);
}

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
