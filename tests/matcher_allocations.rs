//! Allocations of reading a request, of a look-up, and of a decision in memory.

#[path = "support/allocator.rs"]
mod allocator;

use std::fs;
use std::sync::Arc;

use allocator::allocations;
use futures_util::FutureExt;
use prost::Message;
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::rls::service::{self, Descriptors, RateLimit, RequestView, encode_framed};
use weir_common::clock::SystemClock;
use weir_controls::ActiveRules;
use weir_limiter::{Descriptor, Holds, Limiter, Request};
use weir_rules::source::{RuleFile, Selection};
use weir_rules::{Loaded, RuleOptions, RuleSet};
use weir_store::memory::MemoryStore;

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
            let mut descriptors = Descriptors::new();
            let decoded = view.decode(&message, 256, &mut texts, &mut descriptors).unwrap();
            sent = decoded.request.descriptors.len();
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
fn a_decision_in_memory_allocates_its_response_alone() {
    let text = "{domain: d, descriptors: [{key: a, rate_limit: {rate: 1/d}}]}".into();
    let file = RuleFile { name: "rules.yaml".into(), text };
    let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert_eq!(problems, []);
    let store = MemoryStore::new(SystemClock::new(), 1_000);
    let limiter = Arc::new(Limiter::new(store, weir_limiter::LimiterOptions::default()));
    let rules = Arc::new(ActiveRules::of(rules));
    let service = RateLimit::new(limiter, rules, service::ResponseOptions::default());
    let decide = || {
        let entries = ["1", "2", "3", "4"].map(|value| [("a", value)]);
        let descriptors =
            entries.each_ref().map(|entries| Descriptor { entries, ..Descriptor::default() });
        let mut request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let mut holds = Holds::default();
        let decided = service.decide(&mut request, None, &mut holds, encode_framed).now_or_never();
        decided.expect("memory answers at once").unwrap().len()
    };
    // Allowed once, then denied; the first decision of a thread also allocates for the next ones.
    assert!(decide() > 0);
    assert_eq!(allocations(|| assert!(decide() > 0)), 1);
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
    let loaded = Loaded::read(&Selection::of(rules), &RuleOptions::default(), None);
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
