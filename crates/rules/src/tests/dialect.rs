//! The YAML that rule files are written in.

use super::{compile, find, good, reported};
use weir_limit::Unit;

/// Requests, multiplier and unit of the only rule of a descriptor with this rate limit.
fn limit(rate_limit: &str) -> (u32, u32, Option<Unit>) {
    let set = good(&format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {rate_limit}\n"));
    let limit = &set.rules().next().unwrap().plan.as_ref().unwrap().limits()[0];
    (limit.requests_per_unit, limit.unit_multiplier, limit.unit)
}

#[test]
fn numbers_follow_yaml_1_1() {
    for (text, wanted) in [
        ("5", 5),
        ("1_000", 1_000),
        ("0x10", 16),
        ("0b101", 5),
        ("010", 8),
        ("+7", 7),
        ("4294967295", u32::MAX),
        ("~", 0),
        ("", 0),
    ] {
        let rate_limit = format!("{{ unit: day, requests_per_unit: {text} }}");
        assert_eq!(limit(&rate_limit), (wanted, 1, Some(Unit::Day)), "{text}");
    }
    assert_eq!(limit("{ unit: day }").0, 0, "no number blocks everything");
}

#[test]
fn units_ignore_letter_case() {
    for unit in Unit::ALL {
        for name in [unit.name().to_owned(), unit.name().to_uppercase()] {
            let rate_limit = format!("{{ unit: {name}, requests_per_unit: 1 }}");
            assert_eq!(limit(&rate_limit).2, Some(unit));
        }
    }
    assert_eq!(limit("{ unit: Minute, unit_multiplier: 15, requests_per_unit: 300 }").1, 15);
}

#[test]
fn booleans_follow_yaml_1_1() {
    for (text, wanted) in [("y", true), ("On", true), ("TRUE", true), ("no", false), ("", false)] {
        let set = good(&format!(
            "domain: d\ndescriptors:\n- key: k\n  shadow_mode: {text}\n  rate_limit: {{ unit: day }}\n"
        ));
        assert_eq!(set.rules().next().unwrap().shadow_mode, wanted, "{text}");
    }
}

#[test]
fn unquoted_scalars_are_accepted_as_text() {
    for (written, value) in [
        ("80", "80"),
        ("0x10", "0x10"),
        ("true", "true"),
        ("10.0.0.1", "10.0.0.1"),
        ("'1.5'", "1.5"),
        ("2001-12-14", "2001-12-14"),
        ("\"a\\tb\"", "a\tb"),
    ] {
        let set = good(&format!(
            "domain: d\ndescriptors: [{{ key: k, value: {written}, rate_limit: {{ unit: day }} }}]"
        ));
        assert!(find(&set, &[("k", value)]).is_some(), "{written}");
        assert!(find(&set, &[("k", "other")]).is_none(), "{written}");
    }
    let set = good("domain: d\ndescriptors: [{ key: k, value: ~, rate_limit: { unit: day } }]");
    assert_eq!(find(&set, &[("k", "any")]), Some("k"));
}

#[test]
fn binary_scalars_are_decoded() {
    let set = good(
        "domain: !!binary ZA==\ndescriptors:\n- key: !!binary aGVsbG8=\n  value: !!binary |\n    \
         d29y\n    bGQ=\n  !!binary cmF0ZV9saW1pdA==: { unit: day, requests_per_unit: 5 }\n",
    );
    assert_eq!(find(&set, &[("hello", "world")]), Some("hello_world"));
    let bad = "domain: d\ndescriptors:\n- key: !!binary aGVsbG8\n";
    assert_eq!(
        reported(bad),
        ["3:17: error: error loading config file: yaml: line 3: !!binary value contains invalid \
          base64 data «aGVsbG8»"]
    );
}

#[test]
fn no_key_takes_a_float_tag() {
    let limit = |n: &str| {
        reported(&format!(
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day, requests_per_unit: {n} }}\n"
        ))
    };
    let number = "error checking config: cannot use 3 as a number for `requests_per_unit` «3»";
    assert_eq!(limit("!!float 3"), [format!("4:55: error: {number}")]);
    assert_eq!(limit("!!int \"3\""), [""; 0]);
    assert_eq!(
        reported("domain: d\ndescriptors: [{ key: k, value: !!float 3 }, { key: !!float 3 }]\n")[0],
        "2:40: error: error checking config: `value` is 3 «3»"
    );
    assert_eq!(
        reported("domain: d\ndescriptors: [{ key: k, value: !!int x }]\n"),
        ["2:38: error: error loading config file: yaml: line 2: cannot decode !!str `x` as a \
          !!int «x»"]
    );
}

#[test]
fn byte_order_marks_and_line_endings_are_accepted() {
    let text = "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n";
    for text in [
        text.to_owned(),
        format!("---\n{text}"),
        format!("--- # first\n{text}"),
        format!("%YAML 1.1\n---\n{text}"),
        format!("# a remark\n\n{text}...\n"),
        format!("\u{feff}{text}"),
        format!("\u{feff}---\n{text}"),
        text.replace('\n', "\r\n"),
        text.replace(": ", ":\t"),
        text.replace('\n', "  \t\n"),
        text.trim_end().to_owned(),
    ] {
        assert_eq!(find(&good(&text), &[("k", "v")]), Some("k"), "{text:?}");
    }
}

#[test]
fn further_documents_are_ignored_with_a_warning() {
    let text = "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: day\n";
    for text in [
        format!("--- # first\n{text}---\ndomain: other\n"),
        format!("{text}---\n}}{{ what comes after the first document is not looked at"),
    ] {
        let (set, problems) = compile(&text);
        assert_eq!(find(&set, &[("k", "v")]), Some("k"), "{text:?}");
        assert_eq!(set.domains(), 1);
        assert!(matches!(&problems[..], [problem] if !problem.is_error()), "{problems:?}");
    }
}

#[test]
fn positions_are_right_with_a_byte_order_mark_and_carriage_returns() {
    let text = "domain: d\r\ndescriptors:\r\n- key: k\r\n  rate_limit: { unit: fortnight }\r\n";
    let wanted = ["4:23: error: invalid rate limit unit 'fortnight' «fortnight»"];
    assert_eq!(reported(text), wanted);
    assert_eq!(reported(&format!("\u{feff}{text}")), wanted);
    assert_eq!(
        reported("\u{feff}domian: d\n")[0],
        "1:1: error: config error, unknown key 'domian' «domian»"
    );
}

#[test]
fn the_last_of_repeated_keys_counts() {
    let set = good(
        "domain: c\ndomain: d\ndescriptors: [{ key: a }]\ndescriptors:\n\
                    - { key: b, key: k, rate_limit: { unit: day } }\n",
    );
    assert_eq!(find(&set, &[("k", "v")]), Some("k"));
    assert_eq!(set.rules().count(), 1);
    assert_eq!(set.domains(), 1);
}

#[test]
fn repeated_rate_limits_are_merged() {
    let rules = "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: day, name: a }\n  \
                 rate_limit: { unit: hour, requests_per_unit: 3 }\n";
    let set = good(rules);
    let rule = set.rules().next().unwrap();
    let limit = &rule.plan.as_ref().unwrap().limits()[0];
    assert_eq!((limit.requests_per_unit, limit.unit), (3, Some(Unit::Hour)));
    assert_eq!(rule.limit_name(0), "a");
    let set = good(&format!("{rules}  rate_limit:\n"));
    assert_eq!(set.rules().count(), 0, "nothing, written last, takes it away");
}

#[test]
fn anchors_and_merge_keys() {
    let set = good(
        "domain: d\ndescriptors:\n\
         - &a { key: a, rate_limit: &limit { unit: day, requests_per_unit: 5 }, shadow_mode: true }\n\
         - { <<: *a, key: b }\n\
         - { key: c, rate_limit: { <<: *limit, requests_per_unit: 7 } }\n\
         - { <<: [{ key: d, shadow_mode: true }, { key: e, value: v }], rate_limit: *limit }\n",
    );
    let reported: Vec<_> = set
        .rules()
        .map(|rule| {
            let limit = &rule.plan.as_ref().unwrap().limits()[0];
            format!("{} {} {}", rule.path(), limit.requests_per_unit, rule.shadow_mode)
        })
        .collect();
    assert_eq!(
        reported,
        ["a 5 true", "b 5 true", "c 7 false", "d_v 5 true"],
        "the earlier map wins"
    );
}

#[test]
fn the_last_of_a_merged_and_an_own_key_counts() {
    let set = good(
        "domain: d\ndescriptors:\n\
         - { key: a, rate_limit: &limit { unit: day, requests_per_unit: 5 } }\n\
         - { key: b, rate_limit: { requests_per_unit: 7, <<: *limit } }\n\
         - { key: c, rate_limit: { <<: *limit, requests_per_unit: 7 } }\n",
    );
    let numbers =
        |rule: &crate::Rule| rule.plan.as_ref().map(|plan| plan.limits()[0].requests_per_unit);
    assert_eq!(set.rules().map(numbers).collect::<Vec<_>>(), [Some(5), Some(5), Some(7)]);
}

#[test]
fn metadata_is_unchanged() {
    let set = good(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: day }\n  metadata:\n    \
         text: a\n    number: 5\n    float: 1.5\n    yes: no\n    quoted: '5'\n    none: ~\n    \
         date: 2001-12-14\n    list: [1, { deep: 0x10 }]\n    anything: { unknown_key: true }\n    \
         0x1F: { 0x1F: a, on: b, 1: c }\n",
    );
    let metadata = set.rules().next().unwrap().metadata.as_ref().unwrap();
    let wanted = serde_json::json!({
        "text": "a", "number": 5, "float": 1.5, "quoted": "5", "none": null, "yes": false,
        "date": "2001-12-14", "list": [1, { "deep": 16 }], "anything": { "unknown_key": true },
        "0x1F": { "31": "a", "true": "b", "1": "c" },
    });
    assert_eq!(serde_json::Value::Object(metadata.clone()), wanted);
    let set =
        good("domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day }, metadata: {} }]\n");
    assert_eq!(set.rules().next().unwrap().metadata, None);
}

#[test]
fn rules_may_nest_deeply() {
    let mut text = "domain: d\n".to_owned();
    for level in 0..200 {
        let indent = "  ".repeat(level);
        text += &format!("{indent}descriptors:\n{indent}- key: k\n");
    }
    text += &format!("{}rate_limit: {{ unit: day }}\n", "  ".repeat(200));
    // As large as the stack of a thread that loads rules in the service.
    let deep = move || good(&text).rules().next().map(|rule| rule.entries().count());
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(deep).unwrap();
    assert_eq!(thread.join().unwrap(), Some(200));
}
