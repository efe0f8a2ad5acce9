//! What `weir check` warns about: patches that a later one overrides.

use super::{RULES, file, overlay};
use crate::{Loaded, Problems, RuleOptions};

/// The warnings about patches, an item each from line 2.
fn warnings(patches: &[&str], lint: bool) -> Vec<String> {
    let items: String = patches.iter().map(|patch| format!("- {{ {patch} }}\n")).collect();
    let overlay = Some(overlay(&[&format!("patches:\n{items}")]));
    let options = RuleOptions { overlay, lint, ..RuleOptions::default() };
    let loaded = Loaded::compile(vec![file("r.yaml", RULES)], Problems::new(100), &options, None);
    assert_eq!(loaded.problems, []);
    loaded.overlay.problems.iter().map(ToString::to_string).collect()
}

/// Whether the first of two patches is warned about.
fn is_overridden(earlier: &str, later: &str) -> bool {
    let warnings = warnings(&[earlier, later], true);
    assert!(warnings.iter().all(|warning| warning.contains("2:3: warning: ")), "{warnings:?}");
    !warnings.is_empty()
}

#[test]
fn a_patch_that_a_later_one_overrides_is_warned_about() {
    let patches = [
        "match: { entries: several }, set: { requests_per_unit: 2, shadow_mode: true }",
        "match: { entries: '**' }, set: { shadow_mode: false, requests_per_unit: 3, unit: hour }",
    ];
    assert_eq!(
        warnings(&patches, true),
        [
            "1.overlay.yaml:2:3: warning: the patch changes nothing: the later one at 1.overlay.yaml:3:3 \
             overrides all of it"
        ]
    );
    assert_eq!(warnings(&patches, false), [""; 0], "only `weir check` warns");
}

#[test]
fn a_later_patch_overrides_one_if_it_sets_the_same_in_the_same_rules() {
    let all = |set: &str| format!("match: {{}}, set: {{ {set} }}");
    for (earlier, later, wanted) in [
        ("burst: 2, algorithm: gcra", "algorithm: gcra, burst: 3", true),
        ("burst: 2, algorithm: gcra", "algorithm: gcra", false),
        ("shadow_mode: true", "requests_per_unit: 3", false),
        ("rate: 3/s", "rate: 5/m", true),
        ("rate: 3/s, burst: 2", "rate: 5/m, burst: 3", true),
        ("rates: [1/s, 9/m]", "rates: [2/s, 9/h]", true),
        ("rates: [1/s, 9/m]", "requests_per_unit: 3", false),
        ("unit: day", "unit: minute", true),
        ("burst: null", "algorithm: gcra, burst: 3", true),
        ("charge_denied: null", "charge_denied: true", true),
    ] {
        assert_eq!(is_overridden(&all(earlier), &all(later)), wanted, "{earlier} {later}");
    }
    let set = "set: { requests_per_unit: 3 }";
    for (earlier, later, wanted) in [
        ("match: { entries: 'a,b=x' }", "match: { entries: '**' }", true),
        ("match: { entries: '**' }", "match: { entries: several }", false),
        ("match: { entries: several }, limit: fast", "match: { entries: several }", true),
        (
            "match: { entries: several }, limit: fast",
            "match: { entries: several }, limit: fast",
            true,
        ),
        (
            "match: { entries: several }, limit: fast",
            "match: { entries: several }, limit: daily",
            false,
        ),
        ("match: { entries: several }", "match: { entries: several }, limit: daily", false),
        ("set_domain: { charge: each }, match: {}", "match: {}", false),
    ] {
        let (earlier, later) = (format!("{earlier}, {set}"), format!("{later}, {set}"));
        assert_eq!(is_overridden(&earlier, &later), wanted, "{earlier} {later}");
    }
}

#[test]
fn a_patch_that_another_one_may_need_is_not_warned_about() {
    let patches = [
        "match: {}, set: { algorithm: gcra }",
        "match: {}, set: { burst: 3 }",
        "match: {}, set: { algorithm: token_bucket }",
    ];
    assert_eq!(warnings(&patches, true), [""; 0]);
}

#[test]
fn a_patch_that_changes_another_rule_is_not_warned_about() {
    let set = "set: { requests_per_unit: 3 }";
    let patches = ["match: {}", "match: { entries: a }", "match: { entries: several }"];
    let patches = patches.map(|patch| format!("{patch}, {set}"));
    assert_eq!(warnings(&patches.each_ref().map(String::as_str), true), [""; 0]);
}
