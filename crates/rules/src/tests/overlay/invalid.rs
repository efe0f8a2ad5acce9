//! Overlay files that are rejected as a whole, without any rule.

use crate::model::key::Key;
use crate::tests::file;
use crate::{Overlay, OverlayError, RuleOptions};

fn rejected(text: &str) -> OverlayError {
    let files = vec![file("o.yaml", text)];
    let overlay = Overlay::new(files, Vec::new(), &RuleOptions::default());
    overlay.err().unwrap_or_else(|| panic!("valid: {text}"))
}

/// The problems of an overlay, without their help.
fn reported(text: &str) -> Vec<String> {
    let problems = rejected(text).problems;
    let line = |problem: &crate::Problem| {
        assert!(!problem.help.is_empty(), "{problem}");
        problem.to_string().replacen("o.yaml:", "", 1)
    };
    problems.iter().map(line).collect()
}

#[test]
fn each_error_is_reported_at_its_place() {
    let set = |set: &str| format!("patches: [{{ match: {{}}, set: {set} }}]");
    let by = |by: &str| format!("patches: [{{ match: {by}, set: {{ burst: 1 }} }}]");
    for (text, wanted) in [
        (String::new(), "1:1: error: the overlay is empty"),
        ("- a".into(), "1:1: error: the root of the overlay is a list, not a map"),
        ("{}".into(), "1:1: error: the overlay has no `patches`"),
        ("patch: []".into(), "1:1: error: unknown key 'patch' in an overlay"),
        (
            "patches: {}".into(),
            "1:10: error: error loading config file: cannot use a map as the list",
        ),
        ("patches: [a]".into(), "1:11: error: config error, yaml file contains list of type other"),
        ("patches: [".into(), "1:10: error: error loading config file: yaml: line 1: "),
        ("patches: [{ set: { burst: 1 } }]".into(), "1:11: error: the patch has no `match`"),
        ("patches: [{ match: {} }]".into(), "1:11: error: the patch sets nothing"),
        ("patches: [{ match: {}, sett: {} }]".into(), "1:24: error: unknown key 'sett' in a patch"),
        (
            "patches: [{ match: {}, burst: 1 }]".into(),
            "1:24: error: unknown key 'burst' in a patch",
        ),
        (by("{ domian: x }"), "1:22: error: unknown key 'domian' in `match`"),
        (by("[]"), "1:20: error: error loading config file: cannot use a list as a map"),
        (
            by("{ domain: [x] }"),
            "1:30: error: error loading config file: cannot use a list as text",
        ),
        (by("{ entries: [] }"), "1:31: error: 0 items in `entries`"),
        (by("{ entries: '=x' }"), "1:31: error: invalid `entries`"),
        (by("{ entries: 'a,,b' }"), "1:31: error: invalid `entries`"),
        (by("{ entries: [{}] }"), "1:32: error: an entry of `match` has no key"),
        (by("{ entries: [{ value: x }] }"), "1:32: error: an entry of `match` has no key"),
        (
            by("{ entries: [{ any: true, key: x }] }"),
            "1:32: error: `any` is not alone, or not true",
        ),
        (by("{ entries: [{ any: false }] }"), "1:32: error: `any` is not alone, or not true"),
        (set("{}"), "1:29: error: `set` is empty"),
        (set("[]"), "1:29: error: error loading config file: cannot use a list as a map"),
        (set("{ brust: 1 }"), "1:31: error: unknown key 'brust' in `set`"),
        (set("{ key: x }"), "1:31: error: `key` in `set`"),
        (set("{ domain: x }"), "1:31: error: `domain` in `set`"),
        (set("{ charge: each }"), "1:31: error: `charge` in `set`"),
        (set("{ burst: -1 }"), "1:38: error: error loading config file: cannot use -1 as a number"),
        (set("{ buckets: 1 }"), "1:40: error: config error, `buckets` is 1"),
        (set("{ unit: fortnight }"), "1:37: error: invalid rate limit unit 'fortnight'"),
        (set("{ algorithm: gcr }"), "1:42: error: config error, there is no algorithm 'gcr'"),
        (
            set("{ algorithm: gcra, buckets: 3 }"),
            "1:57: error: config error, gcra takes no `buckets`",
        ),
        (set("{ period: 15m, unit: day }"), "1:39: error: config error, both `period` and `unit`"),
        (set("{ time_zone: Mars/Base }"), "1:42: error: config error, "),
        (set("{ starts: 32 }"), "1:39: error: config error, `starts` is '32'"),
        (set("{ align: x }"), "1:38: error: config error, `align` is 'x'"),
        (
            set("{ shadow_mode: 1 }"),
            "1:44: error: error loading config file: cannot use 1 as a boolean",
        ),
        (
            set("{ lease: 1 }"),
            "1:38: error: error loading config file: cannot use 1 as a boolean for `lease`",
        ),
        (set("{ metadata: 1 }"), "1:41: error: error parsing metadata: it is not a map"),
        (set("{ replaces: [{}] }"), "1:42: error: should not have an empty replaces entry"),
        (set("{ rate_limit: { unit: x } }"), "1:51: error: invalid rate limit unit 'x'"),
        (set("{ rate_limit: {} }"), "1:43: error: invalid rate limit unit ''"),
        (set("{ rate_limit: { brust: 1 } }"), "1:45: error: config error, unknown key 'brust'"),
        (
            set("{ rate_limit: { shadow_mode: true } }"),
            "1:45: error: config error, 'shadow_mode' in `rate_limit` has no effect",
        ),
        (
            set("{ rate_limit: { rate: 1/s, shadow_mode: true } }"),
            "1:56: error: config error, 'shadow_mode' in `rate_limit` has no effect",
        ),
        (set("{ rate_limit: { burst: -1 } }"), "1:52: error: error loading config file: cannot"),
        (set("{ rate: 1 rps }"), "1:37: error: config error, `rate` is `1 rps`"),
        (set("{ rate: 1/s, unit: day }"), "1:37: error: config error, both `rate` and `unit`"),
        (
            set("{ rate: 1/s, rate_limit: { period: 1d } }"),
            "1:42: error: `rate` beside `rate_limit`",
        ),
        (set("{ rates: 1/s }"), "1:38: error: config error, `rates` is `1/s`"),
        (set("{ rates: [1/s], burst: 1 }"), "1:31: error: `burst` beside `rates`"),
        (
            set("{ rates: [1/s], rate_limits: [{ unit: day }] }"),
            "1:31: error: both `rate_limits` and `rates`",
        ),
        (set("{ rate_limits: [] }"), "1:44: error: config error, 0 items in `rate_limits`"),
        (
            set("{ rate_limits: [{ unit: day }], burst: 1 }"),
            "1:31: error: `burst` beside `rate_limits`",
        ),
        (
            set("{ rate_limits: [{ unit: day }], rate_limit: { unit: day } }"),
            "1:31: error: both `rate_limit` and `rate_limits`",
        ),
        (
            "patches: [{ match: {}, limit: 1.5, set: { burst: 1 } }]".into(),
            "1:31: error: `limit` is `1.5`",
        ),
        (
            "patches: [{ match: {}, limit: x, set: { detailed_metric: on } }]".into(),
            "1:31: error: `limit` without a key of a limit in `set`",
        ),
        (
            "patches: [{ match: { entries: [{ key: a }] }, set_domain: { charge: each } }]".into(),
            "1:31: error: `entries` beside `set_domain`",
        ),
        (
            "patches: [{ match: {}, set_domain: { charge: both } }]".into(),
            "1:46: error: config error, `charge` is 'both'",
        ),
        (
            "patches: [{ match: {}, set_domain: { burst: 1 } }]".into(),
            "1:38: error: unknown key 'burst' in `set_domain`",
        ),
        ("patches: [{ match: {}, set_domain: {} }]".into(), "1:36: error: `set_domain` is empty"),
    ] {
        let problems = reported(&text);
        assert!(problems[0].starts_with(wanted), "{text}\nwanted {wanted}\n{problems:#?}");
        assert_eq!(problems.len(), 1, "{text}\n{problems:#?}");
    }
}

#[test]
fn every_error_of_every_file_is_reported_and_none_is_used() {
    let files = vec![
        file("a.yaml", "patches: [{ match: {}, set: { burst: x, strict: 2 } }]"),
        file("b.yaml", "patches: [{ match: {}, set: { burst: 1 } }]"),
        file("c.yaml", "patches: ["),
    ];
    let error = Overlay::new(files, Vec::new(), &RuleOptions::default()).unwrap_err();
    let reported: Vec<_> = error.problems.iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(reported, ["a.yaml", "a.yaml", "c.yaml"]);
    assert_eq!(
        rejected("patches:\n- match: {}\n  set: { brust: 1 }\n").render(),
        "\
o.yaml:3:10: error: unknown key 'brust' in `set`
 3 |   set: { brust: 1 }
   |          ^^^^^
  help: did you mean `burst`?
"
    );
}

#[test]
fn the_value_of_every_key_is_checked() {
    for key in Key::all().map(|key| key.name) {
        let problems = reported(&format!("patches: [{{ match: {{}}, set: {{ {key}: [[]] }} }}]"));
        assert!(!problems.is_empty(), "{key}");
    }
}

#[test]
fn a_null_removes_whatever_the_type_of_the_key() {
    for key in Key::all().map(|key| key.name) {
        let fixed = "domain key value network values values_file v4 v6 id settle estimate at_least at_most timeout \
             after within for forget descriptors charge on_store_failure";
        let fixed: Vec<&str> = fixed.split(' ').collect();
        if !fixed.contains(&key) {
            let text = format!("patches: [{{ match: {{}}, set: {{ {key}: null }} }}]");
            let overlay =
                Overlay::new(vec![file("o.yaml", &text)], vec![], &RuleOptions::default());
            assert_eq!(overlay.unwrap().patches, 1, "{key}");
        }
    }
}

#[test]
fn the_numbers_of_patches_and_entries_are_limited() {
    let entries = |count: usize| {
        let entries = "{ key: a }, ".repeat(count);
        format!("patches: [{{ match: {{ entries: [{entries}] }}, set: {{ burst: 1 }} }}]")
    };
    assert_eq!(reported(&entries(101)), ["1:31: error: 101 items in `entries`"]);
    let files = vec![file("o.yaml", &entries(100))];
    assert!(Overlay::new(files, Vec::new(), &RuleOptions::default()).is_ok());
    let many = "- { match: {}, set: { burst: 1 } }\n".repeat(10_001);
    let problems = reported(&format!("patches:\n{many}"));
    assert_eq!(problems, ["10002:3: error: there are more than 10000 patches"]);
}
