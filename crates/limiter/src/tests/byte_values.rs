//! Values that are not UTF-8: each is counted by its own bytes.

use proptest::prelude::*;

use super::Bench;
use weir_common::value;
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};

const RULES: &str = "domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: text, value: ÿ, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: text, value: '\\xff', rate_limit: {unit: year, requests_per_unit: 6}}
  - {key: text, values: [a, 'b*'], rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: text, network: 10.0.0.0/8, rate_limit: {unit: year, requests_per_unit: 8}}
  - {key: text, value: '*c', rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: text, rate_limit: {unit: year, requests_per_unit: 10}}
";

#[test]
fn patterns_and_the_rule_of_the_key_match_bytes_and_texts_do_not() {
    let bench = Bench::new(RULES);
    for (sent, n) in [
        ("ÿ".as_bytes(), 5),
        (br"\xff", 6),
        (b"\xff", 10),
        (b"a", 7),
        (b"a\xff", 10),
        (b"\xffa", 10),
        (b"b\xff", 7),
        (b"10.1.2.3", 8),
        (b"10.1.2.3\xff", 10),
        (b"\xffc", 9),
        (b"c\xff", 10),
        ("\u{10ff7f}".as_bytes(), 10),
        ("c\u{10ff7f}".as_bytes(), 10),
    ] {
        let (_, shown) = bench.ask(&[("text", &*value::encode(sent))]);
        assert_eq!(shown[0].1, Some(n), "{sent:?}");
    }
}

#[test]
fn rules_have_no_characters_that_stand_for_bytes() {
    for value in ["value: \"\u{10ff7f}\"", "value: \"a\u{10ffff}*\"", "values: [\"\u{10ff80}\"]"] {
        let text = format!("domain: d\ndescriptors:\n  - key: user\n    {value}\n    rate: 1/s\n");
        let file = RuleFile { name: "test.yaml".into(), text };
        let (_, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
        let is_named = problems.iter().any(|problem| problem.message.contains("U+10FF7F"));
        assert!(is_named, "{value}: {problems:?}");
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let few = prop::sample::select(&b"a\\x\xff\xc3\xbf\xf4\x8f\xbd"[..]);
    prop_oneof![prop::collection::vec(few, 0..6), prop::collection::vec(any::<u8>(), 0..6)]
}

proptest! {
    #[test]
    fn two_values_never_share_a_limit(a in bytes(), b in bytes()) {
        let bench = Bench::new(RULES);
        let [first, second] = [&a, &b].map(|value| value::encode(value));
        let passes = |text: &str| !bench.ask(&[("user", text), ("text", "all")]).0;
        prop_assert!(passes(&first));
        prop_assert_eq!(passes(&second), a != b);
        prop_assert!(!passes(&first));
        // The other limit of these requests counts all of them.
        let (_, shown) = bench.ask(&[("text", "all")]);
        prop_assert_eq!(shown[0].2, 6);
    }
}
