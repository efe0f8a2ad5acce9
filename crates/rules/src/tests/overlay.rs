//! Overlays, from the text of the files to the rules.

mod fitting;
mod gateway;
mod invalid;
mod misfits;
mod model;
mod overridden;

use super::{describe, file};
use crate::source::RuleFile;
use crate::{Loaded, Overlay, OverlayReport, Problems, RuleOptions, RuleSet};
use weir_common::failure::OnStoreFailure;

/// A valid overlay of these files.
fn overlay(texts: &[&str]) -> Overlay {
    let files = (1..).zip(texts).map(|(i, text)| file(&format!("{i}.overlay.yaml"), text));
    let overlay = Overlay::new(files.collect(), Vec::new(), &RuleOptions::default());
    overlay.unwrap_or_else(|error| panic!("{}", error.render()))
}

fn load(rules: Vec<RuleFile>, overlays: &[&str], merge_domains: bool) -> Loaded {
    let overlay = Some(overlay(overlays));
    let options = RuleOptions { merge_domains, overlay, ..RuleOptions::default() };
    Loaded::compile(rules, Problems::new(100), &options, None)
}

/// Valid rules with an overlay.
pub(super) fn patched(rules: &str, patches: &str) -> (RuleSet, OverlayReport) {
    let loaded = load(vec![file("rules.yaml", rules)], &[patches], false);
    assert!(loaded.problems.is_empty(), "{:#?}", loaded.problems);
    (loaded.rules, loaded.overlay)
}

/// The rules after an overlay that fits.
fn fitted(rules: &str, patches: &str) -> RuleSet {
    let (rules, report) = patched(rules, patches);
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    rules
}

/// The limits of each rule, as `weir check` prints them.
fn limits(rules: &RuleSet) -> Vec<String> {
    let limits = |rule: &crate::Rule| match &rule.plan {
        Some(plan) => {
            let limits: Vec<_> = plan.limits().iter().map(ToString::to_string).collect();
            format!("{}: {}", rule.path(), limits.join(" + "))
        }
        None => format!("{}: unlimited", rule.path()),
    };
    rules.rules().map(limits).collect()
}

const RULES: &str = "
domain: d
descriptors:
- key: a
  rate_limit: { unit: minute, requests_per_unit: 5, name: five }
  descriptors:
  - key: b
    value: x
    rate_limit: { unit: hour, requests_per_unit: 7, name: seven }
- key: several
  rate_limits:
  - { unit: second, requests_per_unit: 1, name: fast }
  - { unit: day, requests_per_unit: 100, name: daily }
";

#[test]
fn keys_of_limits_are_set_and_removed() {
    let all =
        |set: &str| limits(&fitted(RULES, &format!("patches: [{{ match: {{}}, set: {set} }}]")));
    assert_eq!(
        all("{ algorithm: gcra, burst: 20 }"),
        [
            "a: 5 per minute, gcra with a burst of 20",
            "a.b_x: 7 per hour, gcra with a burst of 20",
            "several: 1 per second, gcra with a burst of 20 + 100 per day, gcra with a burst of 20",
        ]
    );
    assert_eq!(
        all("{ unit: null, period: 15m, requests_per_unit: 3 }"),
        [
            "a: 3 per 15 minutes",
            "a.b_x: 3 per 15 minutes",
            "several: 3 per 15 minutes + 3 per 15 minutes",
        ]
    );
}

#[test]
fn a_limit_is_selected_by_its_name() {
    let several = |limit: &str| {
        let patches = format!(
            "patches: [{{ match: {{ entries: [{{ key: several }}] }}, limit: {limit}, \
             set: {{ requests_per_unit: 9 }} }}]"
        );
        limits(&fitted(RULES, &patches)).pop().unwrap()
    };
    assert_eq!(several("fast"), "several: 9 per second + 100 per day");
    assert_eq!(several("daily"), "several: 1 per second + 9 per day");
    assert_eq!(several("null"), "several: 9 per second + 9 per day");
}

#[test]
fn a_limit_is_named_as_in_a_rule_file() {
    for name in ["y", "5", "on"] {
        let limit = format!("{{ unit: day, requests_per_unit: 1, name: {name} }}");
        let rules = format!("domain: d\ndescriptors: [{{ key: a, rate_limit: {limit} }}]\n");
        let patch =
            format!("patches: [{{ match: {{}}, limit: {name}, set: {{ requests_per_unit: 9 }} }}]");
        assert_eq!(limits(&fitted(&rules, &patch)), ["a: 9 per day"], "{name}");
    }
}

#[test]
fn unit_and_period_replace_each_other_and_what_rate_stands_for() {
    for (limit, set, wanted) in [
        ("rate: 300/15m", "unit: day", "300 per day"),
        ("rate: 300/15m", "unit: hour, unit_multiplier: 2", "300 per 2 hours"),
        ("rate: 300/m", "period: 36h", "300 per 36 hours"),
        ("rate_limit: { period: 15m, requests_per_unit: 300 }", "unit: day", "300 per day"),
        (
            "rate_limit: { unit: minute, unit_multiplier: 15, requests_per_unit: 300 }",
            "period: 1h",
            "300 per hour",
        ),
        ("rates: [300/15m]", "unit: day", "300 per day"),
    ] {
        let rules = format!("domain: d\ndescriptors: [{{ key: a, {limit} }}]\n");
        let patch = format!("patches: [{{ match: {{}}, set: {{ {set} }} }}]");
        assert_eq!(limits(&fitted(&rules, &patch)), [format!("a: {wanted}")], "{limit} {set}");
    }
    // The rule has no `period`, so that the error names none.
    let rules = "domain: d\ndescriptors: [{ key: a, rate: 300/15m }]\n";
    let (set, report) = patched(rules, "patches: [{ match: {}, set: { unit_multiplier: 2 } }]");
    assert_eq!(limits(&set), ["a: 300 per 15 minutes"]);
    let [problem] = &report.problems[..] else { panic!("{report:?}") };
    assert!(problem.message.ends_with("invalid rate limit unit ''"), "{problem}");
}

#[test]
fn rate_limits_replace_a_rate_limit_and_the_reverse() {
    let set = |entries: &str, set: &str| {
        let patches = format!("patches: [{{ match: {{ entries: {entries} }}, set: {set} }}]");
        limits(&fitted(RULES, &patches)).join(", ")
    };
    let two = "{ rate_limits: [{ unit: second, requests_per_unit: 2 }, { unit: day }] }";
    assert_eq!(
        set("[{ key: a }]", two),
        "a: 2 per second + 0 per day, a.b_x: 7 per hour, several: 1 per second + 100 per day"
    );
    let one = "{ rate_limit: { unlimited: true } }";
    let wanted = "a: 5 per minute, a.b_x: 7 per hour, several: unlimited";
    assert_eq!(set("[{ key: several }]", one), wanted);
    // Without a limit, a descriptor is only a step to those below it.
    let wanted = "a.b_x: 7 per hour, several: 1 per second + 100 per day";
    assert_eq!(set("[{ key: a }]", "{ rate_limit: null }"), wanted);
}

#[test]
fn keys_of_rules_are_set() {
    let rules = fitted(
        RULES,
        "
patches:
- match: { entries: [{ key: a }] }
  set: { shadow_mode: true, detailed_metric: yes, replaces: [{ name: daily }], metadata: { team: x } }
- match: { entries: [{ key: a }, { key: b }] }
  limit: seven
  set: { shadow_mode: true }
- match: { entries: [{ key: several }] }
  limit: fast
  set: { shadow_mode: true }
",
    );
    let rules: Vec<_> = rules.rules().collect();
    assert!(rules[0].shadow_mode && rules[0].detailed_metric && !rules[0].quota_mode);
    assert_eq!(rules[0].replaces.join(","), "daily");
    assert_eq!(rules[0].metadata.as_ref().unwrap()["team"], "x");
    assert_eq!(rules[0].limit_name(0), "five");
    assert!(rules[1].shadow_mode, "an only limit is the rule");
    let modes = rules[2].plan.as_ref().unwrap().limits().iter().map(|limit| limit.shadow_mode);
    assert_eq!(modes.collect::<Vec<_>>(), [true, false]);
    assert!(!rules[2].shadow_mode);
}

#[test]
fn metadata_is_kept_unless_a_patch_sets_it() {
    let rules = "domain: d\ndescriptors: [{ key: a, metadata: { team: x }, \
                 rate_limit: { unit: day } }]\n";
    let team = |set: &str| {
        let rules = fitted(rules, &format!("patches: [{{ match: {{}}, set: {set} }}]"));
        let rule = rules.rules().next().unwrap();
        rule.metadata.as_ref().map(|metadata| metadata["team"].to_string())
    };
    assert_eq!(team("{ shadow_mode: true }").as_deref(), Some("\"x\""));
    assert_eq!(team("{ metadata: { team: z } }").as_deref(), Some("\"z\""));
    assert_eq!(team("{ metadata: null }"), None);
}

#[test]
fn keys_of_domains_are_set() {
    let rules = fitted(
        RULES,
        "
patches:
- match: { domain: '*' }
  set_domain: { charge: together, on_store_failure: deny }
- match: { domain: d }
  set_domain: { on_store_failure: allow }
",
    );
    let domain = rules.domain("d").unwrap();
    assert!(domain.together);
    assert_eq!(domain.on_store_failure, Some(OnStoreFailure::Allow));
    let lines = domain.patches.iter().map(|origin| origin.position.line());
    assert_eq!(lines.collect::<Vec<_>>(), [Some(3), Some(5)]);
    // The default of `charge_denied` follows the `charge` of the domain.
    let denied = rules.rules().flat_map(|rule| rule.plan.as_ref().unwrap().limits().to_vec());
    assert!(denied.into_iter().all(|limit| !limit.charge_denied));
    let together = RULES.replacen('\n', "\ncharge: together\non_store_failure: deny\n", 1);
    let rules = fitted(
        &together,
        "patches: [{ match: {}, set_domain: { charge: null, on_store_failure: null } }]",
    );
    let domain = rules.domain("d").unwrap();
    assert_eq!((domain.together, domain.on_store_failure), (false, None));
}

#[test]
fn later_patches_win_whatever_their_domain() {
    let patches = |first: &str, second: &str| {
        format!(
            "patches: [{{ match: {{ domain: {first} }}, set: {{ requests_per_unit: 1 }} }}, \
             {{ match: {{ domain: {second} }}, set: {{ requests_per_unit: 2 }} }}, \
             {{ match: {{ domain: {second} }}, set_domain: {{ charge: each }} }}]"
        )
    };
    for (first, second) in [("d", "'*'"), ("'*'", "d")] {
        let rules = fitted(RULES, &patches(first, second));
        assert_eq!(limits(&rules)[0], "a: 2 per minute", "{first} {second}");
        let patches: Vec<_> = rules.rules().map(|rule| rule.patches.len()).collect();
        assert_eq!(patches, [2, 2, 2], "a patch of the domain is none of its rules");
    }
    let (rules, report) = patched(RULES, &patches("'d*'", "'e*'"));
    assert_eq!(limits(&rules)[0], "a: 1 per minute");
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
}

#[test]
fn patches_apply_to_all_files_of_a_merged_domain() {
    let one = |key: &str| {
        let text =
            format!("domain: d\ndescriptors: [{{ key: {key}, rate_limit: {{ unit: day }} }}]");
        file(&format!("{key}.yaml"), &text)
    };
    let patches = "patches: [{ match: { domain: d }, set: { burst: 2, algorithm: gcra } }, \
                   { match: { domain: d }, set_domain: { charge: together } }]";
    let loaded = load(vec![one("a"), one("b")], &[patches], true);
    assert!(loaded.problems.is_empty() && loaded.overlay.problems.is_empty(), "{loaded:?}");
    assert_eq!(loaded.overlay.patched_rules, 2);
    assert!(loaded.rules.domain("d").unwrap().together);
}

#[test]
fn later_patches_win_and_a_rule_knows_its_patches() {
    let first = "patches:\n- { match: {}, set: { requests_per_unit: 1, name: one } }\n\
                 - { match: {}, set: { requests_per_unit: 2 } }\n";
    let second = "patches:\n- { match: { entries: [{ key: a }] }, set: { name: null } }\n";
    let loaded = load(vec![file("rules.yaml", RULES)], &[first, second], false);
    let rules: Vec<_> = loaded.rules.rules().collect();
    let patches: Vec<_> = rules[0].patches.iter().map(ToString::to_string).collect();
    assert_eq!(patches, ["1.overlay.yaml:2:3", "1.overlay.yaml:3:3", "2.overlay.yaml:2:3"]);
    assert_eq!(rules[1].patches.len(), 2);
    assert_eq!((rules[0].limit_name(0), rules[1].limit_name(0)), ("", "one"));
    assert_eq!(limits(&loaded.rules)[0], "a: 2 per minute");
    assert_eq!(loaded.overlay.patched_rules, 3);
    assert_eq!(rules[0].describe().patches[2], "2.overlay.yaml:2:3");
    // Without an overlay, nothing is said about patches.
    let plain = super::good(RULES);
    assert!(plain.rules().all(|rule| rule.patches.is_empty()));
    let plain = serde_json::to_value(plain.rules().next().unwrap().describe()).unwrap();
    assert_eq!(plain.get("patches"), None);
}

#[test]
fn yaml_of_rules_is_read_before_it_is_patched() {
    // Merged maps, a repeated `rate_limit`, and one that is removed again.
    let rules = "
domain: d
descriptors:
- key: a
  rate_limit: &l { unit: day, requests_per_unit: 1 }
- key: b
  rate_limit: { <<: *l, requests_per_unit: 2 }
- key: c
  rate_limit: { unit: hour }
  rate_limit: { requests_per_unit: 3 }
- key: e
  rate_limit: *l
  rate_limit:
- <<: { key: f }
  rate_limit: *l
";
    let rules = fitted(rules, "patches: [{ match: {}, set: { algorithm: gcra, burst: 9 } }]");
    assert_eq!(
        limits(&rules),
        [
            "a: 1 per day, gcra with a burst of 9",
            "b: 2 per day, gcra with a burst of 9",
            "c: 3 per hour, gcra with a burst of 9",
            "f: 1 per day, gcra with a burst of 9",
        ]
    );
}

#[test]
fn rules_with_an_error_are_not_patched() {
    let rules = RULES.replace("hour", "fortnight");
    let patches = "patches: [{ match: {}, set: { unit: day } }, { match: { domain: x }, set: { unit: day } }]";
    let loaded = load(vec![file("rules.yaml", &rules)], &[patches], false);
    let reported: Vec<_> = loaded.problems.iter().map(describe).collect();
    assert_eq!(reported, ["9:25: error: invalid rate limit unit 'fortnight' «fortnight»"]);
    assert!(loaded.overlay.problems.is_empty());
}

#[test]
fn counters_are_carried_over_when_only_the_overlay_changes() {
    let files = || vec![file("rules.yaml", RULES)];
    let before = Loaded::compile(files(), Problems::new(100), &RuleOptions::default(), None).rules;
    let overlay = overlay(&["patches: [{ match: {}, set: { requests_per_unit: 1 } }]"]);
    let options = RuleOptions { overlay: Some(overlay), ..RuleOptions::default() };
    let after = Loaded::compile(files(), Problems::new(100), &options, Some(&before)).rules;
    let stats = |set: &RuleSet| set.rules().next().unwrap().stats.clone();
    assert!(std::sync::Arc::ptr_eq(&stats(&before), &stats(&after)));
}

#[test]
fn reserve_is_set_replaced_and_removed() {
    let rules = "domain: d\ndescriptors:\n- key: a\n  rate_limit: { unit: day, requests_per_unit: 100 }\n\
                 - key: b\n  rate_limit: { unit: day, requests_per_unit: 100 }\n  \
                 reserve: { id: i, settle: s, at_least: 20, at_most: 60 }\n";
    let reserves = |patches: &str| -> Vec<String> {
        let set = fitted(rules, patches);
        let text = |rule: &crate::Rule| match rule.reserve.as_deref() {
            Some(reserve) => reserve.to_string(),
            None => "none".to_owned(),
        };
        set.rules().map(text).collect()
    };
    let delivered = "id: i, settle: s, at_least: 20, at_most: 60, timeout: 3600s";
    let a = "match: { entries: [{ key: a }] }";
    let b = "match: { entries: [{ key: b }] }";
    assert_eq!(
        reserves(&format!("patches: [{{ {a}, set: {{ reserve: {{ id: x, estimate: 9 }} }} }}]")),
        ["id: x, estimate: 9, at_least: 1, at_most: 50, timeout: 3600s", delivered]
    );
    assert_eq!(
        reserves(&format!("patches: [{{ {b}, set: {{ reserve: {{ id: x, estimate: 9 }} }} }}]")),
        ["none", "id: x, estimate: 9, at_least: 1, at_most: 50, timeout: 3600s"]
    );
    assert_eq!(
        reserves(&format!("patches: [{{ {b}, set: {{ reserve: null }} }}]")),
        ["none", "none"]
    );
    // A limit that is lowered cuts what is reserved.
    let lower = |n| format!("patches: [{{ {b}, set: {{ requests_per_unit: {n} }} }}]");
    assert_eq!(
        reserves(&lower(50))[1],
        "id: i, settle: s, at_least: 20, at_most: 50, timeout: 3600s"
    );
    assert_eq!(
        reserves(&lower(10))[1],
        "id: i, settle: s, at_least: 10, at_most: 10, timeout: 3600s"
    );
    assert_eq!(reserves(&lower(0))[1], delivered);
}
