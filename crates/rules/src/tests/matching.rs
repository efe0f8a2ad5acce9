//! Tests of which rule a descriptor matches: the same as in the reference, to the letter.

use super::{find, good};
use crate::RuleSet;

const L: &str = "rate_limit: { unit: minute, requests_per_unit: 1 }";

/// A domain `d` of these descriptors; `L` is replaced by a rate limit.
fn rules(descriptors: &str) -> RuleSet {
    good(&format!("domain: d\ndescriptors:\n{}", descriptors.replace('L', L)))
}

/// By entry, the patterns that the key has for values.
fn shared(set: &RuleSet, entries: &[(&str, &str)]) -> Vec<(usize, String)> {
    let domain = set.domain("d").unwrap();
    let found = domain.find(entries).unwrap();
    let shared = domain.key_values(entries).into_iter();
    let shared: Vec<_> = shared.map(|(i, pattern)| (i, pattern.into_owned())).collect();
    assert_eq!(found.replaces_values, !shared.is_empty());
    shared
}

#[test]
fn a_value_precedes_a_wildcard_and_a_key() {
    let set = rules(
        "- { key: k, L }\n- { key: k, value: ab*, L }\n- { key: k, value: a*, L }\n\
         - { key: k, value: abc, L }\n",
    );
    assert_eq!(find(&set, &[("k", "abc")]), Some("k_abc"));
    assert_eq!(find(&set, &[("k", "abd")]), Some("k_ab*"));
    assert_eq!(find(&set, &[("k", "ax")]), Some("k_a*"));
    assert_eq!(find(&set, &[("k", "x")]), Some("k"));
    assert_eq!(find(&set, &[("K", "x")]), None, "letter case counts");
    assert_eq!(find(&set, &[("other", "abc")]), None);
}

#[test]
fn wildcards_are_tried_in_file_order() {
    let set = rules("- { key: k, value: a*, L }\n- { key: k, value: ab*, L }\n");
    assert_eq!(find(&set, &[("k", "abc")]), Some("k_a*"), "the first, not the longest");
}

#[test]
fn key_and_value_are_one_text() {
    let set = rules("- { key: a_b, L }\n- { key: x, value: y_z, L }\n");
    assert_eq!(find(&set, &[("a", "b")]), Some("a_b"));
    assert_eq!(find(&set, &[("a_b", "anything")]), Some("a_b"));
    assert_eq!(find(&set, &[("x_y", "z")]), Some("x_y_z"));
    assert_eq!(find(&set, &[("x", "y")]), None);
}

#[test]
fn the_depths_must_be_equal() {
    let set = rules(
        "- key: a\n  L\n  descriptors:\n  - { key: b, L }\n- key: c\n  descriptors:\n  - { key: b, L }\n",
    );
    assert_eq!(find(&set, &[("a", "1")]), Some("a"));
    assert_eq!(find(&set, &[("a", "1"), ("b", "2")]), Some("a.b"));
    assert_eq!(find(&set, &[("a", "1"), ("b", "2"), ("c", "3")]), None);
    assert_eq!(find(&set, &[("b", "2")]), None);
    assert_eq!(find(&set, &[("b", "2"), ("a", "1")]), None, "entries keep their order");
    assert_eq!(find(&set, &[("c", "1")]), None, "no rate_limit: nothing is limited");
    assert_eq!(find(&set, &[]), None);
}

#[test]
fn there_is_no_backtracking() {
    let set = rules(
        "- key: a\n  value: b\n- key: a\n  value: b*\n  descriptors:\n  - { key: c, L }\n\
         - key: a\n  L\n  descriptors:\n  - { key: c, L }\n",
    );
    assert_eq!(find(&set, &[("a", "b")]), None, "allowed outright: the key alone is not tried");
    assert_eq!(find(&set, &[("a", "b"), ("c", "1")]), None);
    assert_eq!(find(&set, &[("a", "bb"), ("c", "1")]), Some("a_b*.c"));
    assert_eq!(find(&set, &[("a", "bb")]), None);
    assert_eq!(find(&set, &[("a", "x"), ("c", "1")]), Some("a.c"));
}

#[test]
fn empty_values() {
    let set = rules("- { key: k, value: \"*\", L }\n- { key: j, L }\n- { key: i_, L }\n");
    assert_eq!(find(&set, &[("k", "")]), Some("k_*"));
    assert_eq!(find(&set, &[("j", "")]), Some("j"));
    assert_eq!(find(&set, &[("i", "")]), Some("i_"));
    assert_eq!(find(&set, &[("", "")]), None);
}

#[test]
fn a_star_that_a_client_sends_is_a_value() {
    let set = rules("- { key: k, value: \"*\", share_threshold: true, L }\n");
    assert_eq!(find(&set, &[("k", "*")]), Some("k_*"));
    assert!(shared(&set, &[("k", "*")]).is_empty(), "an exact match, not a wildcard");
    assert_eq!(shared(&set, &[("k", "x")]), [(0, "*".to_owned())]);
}

#[test]
fn a_star_matches_any_text_anywhere() {
    let set = rules("- { key: k, value: \"/a/*/b*c*\", L }\n");
    for (value, matches) in [
        ("/a//bc", true),
        ("/a/x/b-c-", true),
        ("/a/x/y/b/c", true),
        ("/a/bc", false),
        ("/a/x/b", false),
        ("x/a/x/bc", false),
        ("/a/x/cb", false),
    ] {
        assert_eq!(find(&set, &[("k", value)]).is_some(), matches, "{value}");
    }
    let set = rules("- { key: k, value: aba*aba, L }\n");
    assert_eq!(find(&set, &[("k", "ababa")]), None, "head and tail may not overlap");
    assert!(find(&set, &[("k", "abaaba")]).is_some());
    let set = rules("- { key: k, value: \"a?.[b]*\", L }\n");
    assert_eq!(find(&set, &[("k", "ax.b")]), None, "no other letter is special");
    assert!(find(&set, &[("k", "a?.[b]")]).is_some());
}

#[test]
fn a_key_may_have_a_star() {
    let set =
        rules("- { key: \"foo*\", L }\n- { key: \"*bar\", value: x, share_threshold: true, L }\n");
    assert_eq!(find(&set, &[("foot", "any")]), Some("foo*"));
    assert_eq!(find(&set, &[("foo", "")]), Some("foo*"));
    assert_eq!(find(&set, &[("crowbar", "x")]), Some("*bar_x"));
    assert_eq!(shared(&set, &[("crowbar", "x")]), [(0, "*bar_x".to_owned())]);
}

#[test]
fn share_threshold_counts_at_the_leaf_and_above_it() {
    let set = rules(
        "- key: dir\n  value: a*\n  share_threshold: true\n  descriptors:\n  - key: file\n    \
         value: \"*.txt\"\n    share_threshold: true\n    L\n  - key: file\n    value: \"*.md\"\n    L\n",
    );
    assert_eq!(
        shared(&set, &[("dir", "ab"), ("file", "x.txt")]),
        [(0, "a*".to_owned()), (1, "*.txt".to_owned())]
    );
    assert_eq!(shared(&set, &[("dir", "ab"), ("file", "x.md")]), [(0, "a*".to_owned())]);
}

#[test]
fn a_domain_without_descriptors_limits_nothing() {
    let set = good("domain: d\n");
    assert!(set.domain("d").is_some());
    assert_eq!(find(&set, &[("a", "b")]), None);
    assert!(set.domain("D").is_none());
}

#[test]
fn characters_of_several_bytes_match() {
    let set = rules("- { key: k, value: \"ä*ö\", L }\n");
    assert!(find(&set, &[("k", "äxö")]).is_some());
    assert!(find(&set, &[("k", "äö")]).is_some());
    assert!(find(&set, &[("k", "äx")]).is_none());
}

#[test]
fn adjacent_stars_count_as_one() {
    let set = rules("- { key: k, value: 'a**b***', L }\n- { key: 'm***', L }\n");
    assert_eq!(find(&set, &[("k", "ab")]), Some("k_a**b***"));
    assert_eq!(find(&set, &[("k", "a-b-c")]), Some("k_a**b***"));
    assert_eq!(find(&set, &[("k", "ba")]), None);
    assert_eq!(find(&set, &[("m", "")]), Some("m***"));
}
