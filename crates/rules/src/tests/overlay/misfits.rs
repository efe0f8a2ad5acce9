//! Patches that do not fit a rule: the rule loads without them.

use super::{RULES, file, fitted, limits, load, overlay, patched};
use crate::{Loaded, OverlayReport, Problems, RuleOptions};

/// The problems, each as place and message.
fn lines(report: &OverlayReport) -> Vec<String> {
    report.problems.iter().map(|problem| problem.to_string()).collect()
}

#[test]
fn a_rule_loads_without_the_patch_that_does_not_fit() {
    let patches = "
patches:
- match: { entries: [{ key: several }] }
  set: { burst: 3 }
- match: {}
  set: { requests_per_unit: 8 }
- match: { entries: [{ any: true }] }
  limit: daily
  set: { unit: hour }
";
    let (rules, report) = patched(RULES, patches);
    assert_eq!(
        limits(&rules),
        ["a: 8 per minute", "a.b_x: 8 per hour", "several: 8 per second + 8 per hour"]
    );
    assert_eq!(
        lines(&report),
        [
            "1.overlay.yaml:4:17: error: rule 'd.several' (rules.yaml:10:3) loads without this patch: \
             fixed_window takes no `burst`",
            "1.overlay.yaml:8:10: error: rule 'd.a' (rules.yaml:4:3) and one more load without this \
             patch: there is no limit named 'daily', the rule has one limit",
        ]
    );
    assert_eq!((report.failed_patches, report.patched_rules), (2, 3));
    let origins: Vec<_> = rules.rules().map(|rule| rule.patches.len()).collect();
    assert_eq!(origins, [1, 1, 2]);
    assert!(overlay(&[patches]).render(&report).contains("\n 4 |   set: { burst: 3 }\n"));
}

#[test]
fn an_error_of_a_key_of_the_rule_is_at_the_patch() {
    // The unit is that of the rule.
    let (_, report) = patched(RULES, "patches:\n- match: {}\n  set: { algorithm: concurrency }\n");
    let problem = &report.problems[0];
    assert_eq!(problem.position.unwrap().line(), Some(2), "{problem}");
    assert!(problem.message.ends_with("concurrency takes no `unit`"), "{problem}");
    assert!(problem.message.contains("and 2 more load without"), "{problem}");
    assert!(problem.help.ends_with("`KEY: null` in `set` removes a key of the rule"), "{problem}");
    let set = "{ algorithm: concurrency, unit: null }";
    let rules = fitted(RULES, &format!("patches: [{{ match: {{}}, set: {set} }}]"));
    assert_eq!(limits(&rules)[0], "a: 5 at once, concurrency");
}

#[test]
fn each_patch_has_to_fit_what_those_before_it_have_made_of_the_rule() {
    let [burst, gcra] = ["{ burst: 3 }", "{ algorithm: gcra }"];
    for ([first, second], limit, failed) in [
        ([burst, gcra], "a: 5 per minute, gcra with a burst of 5", 1),
        ([gcra, burst], "a: 5 per minute, gcra with a burst of 3", 0),
    ] {
        let patches = format!(
            "patches:\n- {{ match: {{}}, set: {first} }}\n- {{ match: {{}}, set: {second} }}\n"
        );
        let (rules, report) = patched(RULES, &patches);
        assert_eq!((limits(&rules)[0].as_str(), report.failed_patches), (limit, failed));
    }
    let (rules, report) = patched(
        RULES,
        "
patches:
- { match: {}, set: { burst: 3, requests_per_unit: 6 } }
- { match: {}, set: { buckets: 3 } }
- { match: {}, set: { algorithm: gcra, requests_per_unit: 7 } }
",
    );
    assert_eq!(limits(&rules)[0], "a: 7 per minute, gcra with a burst of 7");
    assert_eq!(report.failed_patches, 2);
    let places =
        ["1.overlay.yaml:3:30: error: rule 'd.a'", "1.overlay.yaml:4:32: error: rule 'd.a'"];
    for (line, place) in lines(&report).iter().zip(places) {
        assert!(line.starts_with(place), "{report:?}");
    }
}

#[test]
fn what_drains_is_not_reserved() {
    let rules = "domain: d\ndescriptors:\n- key: a\n  rate_limit: { unit: day, requests_per_unit: 9 }\n  \
                 reserve: { id: i, settle: s }\n- key: b\n  \
                 rate_limit: { algorithm: gcra, unit: day, requests_per_unit: 9 }\n";
    let patches = "patches:\n- { match: { entries: [{ key: a }] }, set: { algorithm: token_bucket } }\n\
                   - { match: { entries: [{ key: b }] }, set: { reserve: { id: i, settle: s } } }\n";
    let (set, report) = patched(rules, patches);
    let reserves: Vec<_> = set.rules().map(|rule| rule.reserve.is_some()).collect();
    assert_eq!((report.failed_patches, reserves), (2, vec![true, false]));
    for (line, place) in lines(&report).iter().zip(["2:57", "3:"]) {
        assert!(line.contains(&format!("1.overlay.yaml:{place}")), "{line}");
        assert!(line.contains("beside `reserve`"), "{line}");
    }
}

#[test]
fn the_most_patches_are_read_one_by_one() {
    // Each with each would take hours.
    let pair =
        "- { match: {}, set: { requests_per_unit: 2 } }\n- { match: {}, set: { burst: 1 } }\n";
    let (set, report) = patched(RULES, &format!("patches:\n{}", pair.repeat(5_000)));
    assert_eq!(limits(&set)[0], "a: 2 per minute");
    assert_eq!((report.failed_patches, report.patched_rules), (5_000, 3));
}

#[test]
fn unlimited_rules_are_matched() {
    let rules = "domain: d\ndescriptors: [{ key: u, rate_limit: { unlimited: true } }]\n";
    let (set, report) = patched(rules, "patches: [{ match: {}, set: { burst: 1 } }]");
    assert_eq!((limits(&set), report.failed_patches), (vec!["u: unlimited".to_owned()], 1));
    let limit =
        "patches: [{ match: {}, set: { unlimited: null, unit: day, requests_per_unit: 2 } }]";
    assert_eq!(limits(&fitted(rules, limit)), ["u: 2 per day"]);
}

#[test]
fn descriptors_without_a_limit_are_not_matched() {
    let rules = "domain: d\ndescriptors: [{ key: a, value: '*', descriptors: [{ key: b, \
                 rate_limit: { unit: day } }] }]\n";
    let patches = "patches: [{ match: { entries: [{ key: a }] }, set: { shadow_mode: true } }]";
    let (_, report) = patched(rules, patches);
    assert_eq!(lines(&report), ["1.overlay.yaml:1:11: warning: the patch matches nothing"]);
    assert_eq!((report.failed_patches, report.patched_rules), (0, 0));
}

#[test]
fn a_patch_that_matches_nothing_is_a_warning() {
    let (_, report) = patched(
        RULES,
        "
patches:
- { match: { domain: x }, set: { unit: day } }
- { match: { domain: x }, set_domain: { charge: each } }
- { match: { entries: [{ key: a, value: '' }] }, set: { unit: day } }
- { match: { entries: [{ key: a, value: '?*' }] }, set: { unit: day } }
",
    );
    let wanted = [3, 4, 6]
        .map(|line| format!("1.overlay.yaml:{line}:3: warning: the patch matches nothing"));
    assert_eq!(lines(&report), wanted);
}

#[test]
fn a_charge_counts_as_if_the_rule_file_had_it() {
    let rules = "
domain: d
descriptors:
- { key: a, rate_limit: { unit: day, charge_denied: true } }
- { key: b, rate_limit: { unit: day } }
";
    let together =
        "patches: [{ match: {}, set_domain: { charge: together, on_store_failure: deny } }]";
    for merged in [false, true] {
        let loaded = load(vec![file("rules.yaml", rules)], &[together], merged);
        let [problem] = &loaded.problems[..] else { panic!("{:?}", loaded.problems) };
        assert_eq!(
            problem.to_string(),
            "rules.yaml:4:53: error: config error, `charge_denied` under `charge: together`"
        );
        assert!(problem.help.contains("`charge` may be in an overlay"), "{problem:?}");
    }
    // A patch of a rule that does not go with it is skipped.
    let patches = "patches: [{ match: {}, set_domain: { charge: together } }, \
                   { match: { entries: [{ key: b }] }, set: { charge_denied: true } }]";
    let (set, report) = patched(&rules.replace(", charge_denied: true", ""), patches);
    assert!(set.domain("d").unwrap().together);
    let [failed] = &lines(&report)[..] else { panic!("{report:?}") };
    assert!(
        failed.contains("error: rule 'd.b' (rules.yaml:5:3) loads without this patch"),
        "{failed}"
    );
    let mut limits = set.rules().flat_map(|rule| rule.plan.as_ref().unwrap().limits().to_vec());
    assert!(limits.all(|limit| !limit.charge_denied));
    assert_eq!((report.failed_patches, report.patched_rules), (1, 0));
}

#[test]
fn warnings_of_patched_rules_are_reported() {
    let set = "{ algorithm: sliding_log, requests_per_unit: 200000 }";
    let patches = format!("patches: [{{ match: {{ entries: [{{ key: a }}] }}, set: {set} }}]");
    let (rules, report) = patched(RULES, &patches);
    assert_eq!(report.failed_patches, 0);
    assert_eq!(
        lines(&report),
        [
            "1.overlay.yaml:1:97: warning: rule 'd.a' (rules.yaml:4:3) with this patch: this limit may \
             take 1600000 bytes per key: it keeps a timestamp for each hit"
        ]
    );
    assert_eq!(limits(&rules)[0], "a: 200000 per minute, sliding_log");
    let burst =
        "patches: [{ match: { entries: [{ key: a }] }, set: { algorithm: gcra, burst: 0 } }]";
    let (_, report) = patched(RULES, burst);
    assert_eq!(report.failed_patches, 0);
    let [line] = &lines(&report)[..] else { panic!("{report:?}") };
    assert!(line.contains("warning: rule 'd.a'") && line.contains("denies everything"), "{line}");
    // The rule as it was delivered has the same one.
    let loaded = load(
        vec![file(
            "rules.yaml",
            "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day, algorithm: sliding_log, \
             requests_per_unit: 200000 } }]\n",
        )],
        &["patches: [{ match: {}, set: { name: a } }]"],
        false,
    );
    assert_eq!((loaded.problems.len(), loaded.overlay.problems.len()), (1, 0), "{loaded:?}");
    let (_, report) = patched(RULES, &patches.replace("200000", "20000000"));
    assert_eq!(report.failed_patches, 1, "{report:?}");
}

#[test]
fn patches_cannot_take_more_memory_than_the_rules_may() {
    let text = "x".repeat(300_000);
    let rules: String =
        (0..200).map(|i| format!("- {{ key: k{i}, rate_limit: {{ unit: day }} }}\n")).collect();
    let rules = format!("domain: d\ndescriptors:\n{rules}");
    let patches = format!("patches: [{{ match: {{}}, set: {{ metadata: {{ a: {text} }} }} }}]");
    let (set, report) = patched(&rules, &patches);
    assert_eq!(set.rules().count(), 200);
    assert!((10..190).contains(&report.patched_rules), "{}", report.patched_rules);
    assert_eq!(report.failed_patches, 1);
    assert!(report.problems[0].message.contains("bytes of memory"), "{}", report.problems[0]);
}

#[test]
fn problems_are_limited_in_number() {
    let patches: String =
        (0..300).map(|_| "- { match: {}, set: { burst: 1 } }\n".to_owned()).collect();
    let overlay = overlay(&[&format!("patches:\n{patches}")]);
    let patched = Some(overlay.clone());
    let options = RuleOptions { max_problems: 10, overlay: patched, ..RuleOptions::default() };
    let files = vec![file("rules.yaml", RULES)];
    let loaded = Loaded::compile(files, Problems::new(10), &options, None);
    let report = loaded.overlay;
    assert_eq!((report.problems.len(), report.omitted.errors), (10, 290));
    assert_eq!(report.failed_patches, 300);
    assert!(overlay.render(&report).ends_with("(`weir check --max-problems` lists more)\n"));
}

#[test]
fn a_reserve_that_does_not_fit_a_rule_is_skipped() {
    let rules = "domain: d\ndescriptors:\n- key: a\n  rate_limit: { unit: day, requests_per_unit: 5 }\n  \
                 descriptors: [{ key: i }]\n";
    for (reserve, wanted) in [
        ("{ id: x, estimate: 6 }", "`estimate` is 6, but a limit allows 5"),
        ("{ id: i, estimate: 2 }", "`id` is 'i', the key of a descriptor below"),
    ] {
        let patches = format!(
            "patches:\n- match: {{ entries: [{{ key: a }}] }}\n  set: {{ reserve: {reserve} }}\n"
        );
        let (set, report) = patched(rules, &patches);
        let problem = report.problems[0].to_string();
        assert!(problem.ends_with(wanted), "{problem}");
        assert!(problem.starts_with("1.overlay.yaml:"), "{problem}");
        assert!(set.rules().all(|rule| rule.reserve.is_none()));
    }
    let patches = "patches:\n- match: { domain: d }\n  set: { reserve: { id: x, estimate: 0 } }\n";
    let error =
        crate::Overlay::new(vec![file("o.yaml", patches)], Vec::new(), &RuleOptions::default());
    let problems = error.unwrap_err().problems;
    assert_eq!(problems[0].to_string(), "o.yaml:3:38: error: config error, `estimate` is 0");
}
