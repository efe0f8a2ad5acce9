//! Errors: the reference's words, the position and the offending text.

use super::reported;

/// The problems of one descriptor with `key: k`, in line 3.
fn of_descriptor(rest: &str) -> Vec<String> {
    reported(&format!("domain: d\ndescriptors:\n- {{ key: k, {rest} }}\n"))
}

/// The problems of the rate limit of one descriptor, in line 4.
fn of_limit(limit: &str) -> Vec<String> {
    reported(&format!("domain: d\ndescriptors:\n- key: k\n  rate_limit: {limit}\n"))
}

#[test]
fn syntax() {
    let files = [
        "domain: \"d\n",
        "domain: d\n  descriptors: []\n",
        "domain: d\ndescriptors:\n\t- key: k\n",
        "domain: *nobody\n",
        "domain: d\n}\n",
        "domain: d\nwords\n",
        "domain: &a [*a]\n",
    ];
    let reported: Vec<String> = files.into_iter().flat_map(reported).collect();
    let wanted = [
        "2:1: error: error loading config file: yaml: line 2: invalid indentation in multiline quoted scalar «»",
        "2:14: error: error loading config file: yaml: line 2: mapping values are not allowed in this context «:»",
        "3:1: error: error loading config file: yaml: line 3: tabs disallowed within this context (block indentation) «»",
        "1:9: error: error loading config file: yaml: line 1: while parsing node, found unknown anchor «*nobody»",
        "2:1: error: error loading config file: yaml: line 2: misplaced bracket «}»",
        "2:1: error: error loading config file: yaml: line 2: simple key expected ':' «words»",
        "1:13: error: error loading config file: yaml: line 1: an alias inside the value of its own anchor «*a]»",
    ];
    assert_eq!(reported, wanted);
}

#[test]
fn roots() {
    let empty = "1:1: error: config file cannot have empty domain «»";
    for text in ["", "---\n", "# nothing\n", "~\n", "{}\n"] {
        assert_eq!(reported(text), [empty], "{text:?}");
    }
    assert_eq!(reported("descriptors: []\n"), [empty]);
    assert_eq!(
        reported("a: 1\ndomain: ''\n")[1],
        "2:9: error: config file cannot have empty domain «»"
    );
    assert_eq!(
        reported("- domain: d\n"),
        ["1:1: error: error loading config file: the root is a list, not a map «[…]»"]
    );
    assert_eq!(
        reported("domain\n"),
        ["1:1: error: error loading config file: the root is `domain`, not a map «domain»"]
    );
}

#[test]
fn keys() {
    assert_eq!(
        of_descriptor("1: x, y: x, [a]: x, ~: x, 1.5: x"),
        [
            "3:13: error: config error, key is not of type string: 1 «1»",
            "3:19: error: config error, key is not of type string: y «y»",
            "3:25: error: config error, key is not of type string: […] «[…]»",
            "3:33: error: config error, key is not of type string: ~ «~»",
            "3:39: error: config error, key is not of type string: 1.5 «1.5»",
        ]
    );
    assert_eq!(
        of_descriptor("rate_limitz: {}, Value: x"),
        [
            "3:13: error: config error, unknown key 'rate_limitz' «rate_limitz»",
            "3:30: error: config error, unknown key 'Value' «Value»",
        ]
    );
}

#[test]
fn lists() {
    let other = "config error, yaml file contains list of type other than map:";
    assert_eq!(
        reported("domain: d\ndescriptors: [text, [nested], 5, ~, { key: k }]\n"),
        [
            format!("2:15: error: {other} text «text»"),
            format!("2:21: error: {other} […] «[…]»"),
            format!("2:31: error: {other} 5 «5»"),
            format!("2:34: error: {other} ~ «~»"),
        ]
    );
    assert_eq!(
        reported("domain: d\ndescriptors: { key: k }\n"),
        [
            "2:14: error: error loading config file: cannot use a map as the list `descriptors` «{…}»"
        ]
    );
    assert_eq!(
        of_limit("{ unit: day, replaces: [name] }"),
        [format!("4:39: error: {other} name «name»")]
    );
}

#[test]
fn scalars() {
    for (rest, wanted) in [
        ("value: 1.5", "3:20: error: error checking config: `value` is 1.5 «1.5»"),
        ("value: 1e3", "3:20: error: error checking config: `value` is 1e3 «1e3»"),
        (
            "value: 9223372036854775808",
            "3:20: error: error checking config: `value` is 9223372036854775808 «9223372036854775808»",
        ),
        ("value: [a]", "3:20: error: error loading config file: cannot use a list as text «[…]»"),
        (
            "value: { a: b }",
            "3:20: error: error loading config file: cannot use a map as text «{…}»",
        ),
        (
            "shadow_mode: 'true'",
            "3:26: error: error loading config file: cannot use true as a boolean for `shadow_mode` «true»",
        ),
        (
            "shadow_mode: 1",
            "3:26: error: error loading config file: cannot use 1 as a boolean for `shadow_mode` «1»",
        ),
        ("rate_limit: 5", "3:25: error: error loading config file: cannot use `5` as a map «5»"),
        (
            "rate_limit: [{}]",
            "3:25: error: error loading config file: cannot use a list as a map «[…]»",
        ),
    ] {
        assert_eq!(of_descriptor(rest)[0], wanted);
    }
    for (number, kind) in [
        ("'5'", "error loading config file"),
        ("-1", "error loading config file"),
        ("4294967296", "error loading config file"),
        ("true", "error loading config file"),
        ("many", "error loading config file"),
        ("5.0", "error checking config"),
        ("18446744073709551615", "error checking config"),
    ] {
        let bare = number.trim_matches('\'');
        assert_eq!(
            of_limit(&format!("{{ unit: day, requests_per_unit: {number} }}")),
            [format!(
                "4:47: error: {kind}: cannot use {bare} as a number for `requests_per_unit` «{bare}»"
            )]
        );
    }
}

#[test]
fn descriptors() {
    assert_eq!(
        reported("domain: d\ndescriptors:\n- value: v\n- key: ''\n- {}\n"),
        [
            "3:3: error: descriptor has empty key «»",
            "4:8: error: descriptor has empty key «»",
            "5:3: error: descriptor has empty key «»",
        ]
    );
    assert_eq!(
        reported(
            "domain: d\ndescriptors:\n- key: a\n  value: b\n  descriptors:\n  - key: c\n  - key: c\n\
             - key: a_b\n  descriptors:\n  - { key: '' }\n- { key: a, value: c }\n"
        ),
        [
            "7:10: error: duplicate descriptor composite key 'd.a_b.c' «c»",
            "8:8: error: duplicate descriptor composite key 'd.a_b' «a_b»",
            "10:12: error: descriptor has empty key «»",
        ]
    );
    assert_eq!(
        of_descriptor("value: v, share_threshold: yes"),
        ["3:40: error: share_threshold can only be used with wildcard values (containing '*'), \
          but found key 'k_v' «yes»"]
    );
    assert_eq!(of_descriptor("share_threshold: no"), [""; 0]);
    assert_eq!(reported("domain: d\ndescriptors: [{ key: 'k*', share_threshold: true }]"), [""; 0]);
}

#[test]
fn rate_limits() {
    for (limit, wanted) in [
        ("{ unit: fortnight }", "4:23: error: invalid rate limit unit 'fortnight' «fortnight»"),
        ("{ unit: unknown }", "4:23: error: invalid rate limit unit 'unknown' «unknown»"),
        ("{ requests_per_unit: 5 }", "4:15: error: invalid rate limit unit '' «»"),
        ("{}", "4:15: error: invalid rate limit unit '' «»"),
        (
            "{ unlimited: true, unit: Day }",
            "4:40: error: should not specify rate limit unit when unlimited «Day»",
        ),
        (
            "{ unit: year, unit_multiplier: 101 }",
            "4:46: error: unit_multiplier 101 makes a period that is not between one second and 100 years «101»",
        ),
        (
            "{ unit: day, unit_multiplier: 0 }",
            "4:45: error: unit_multiplier 0 makes a period that is not between one second and 100 years «0»",
        ),
        (
            "{ unit: day, replaces: [{}] }",
            "4:39: error: should not have an empty replaces entry «»",
        ),
        (
            "{ unit: day, replaces: [{ name: '' }] }",
            "4:39: error: should not have an empty replaces entry «»",
        ),
        (
            "{ unit: day, replaces: [{ name: a }], name: a }",
            "4:39: error: replaces should not contain name of same descriptor «»",
        ),
    ] {
        assert_eq!(of_limit(limit), [wanted], "{limit}");
    }
    for limit in [
        "{ unlimited: true }",
        "{ unlimited: true, unit: fortnight }",
        "{ unlimited: false, unit: day }",
        "{ unit: day, replaces: [{ name: nobody }] }",
        "{ unit: day, replaces: }",
        "{ unit: year, unit_multiplier: 100 }",
        "",
        "~",
    ] {
        assert_eq!(of_limit(limit), [""; 0], "{limit}");
    }
}

#[test]
fn metadata() {
    assert_eq!(
        of_descriptor("metadata: [a]"),
        ["3:23: error: error parsing metadata: it is not a map «[…]»"]
    );
    assert_eq!(
        of_descriptor("metadata: { a: { [5]: x } }"),
        ["3:30: error: error parsing metadata: a key is a list or a map «[…]»"]
    );
    assert_eq!(of_descriptor("metadata: "), [""; 0]);
}

#[test]
fn problems_in_aliased_values_are_reported_once() {
    let bad = "&bad { unit: minuet, requests_per_unit: -1 }";
    let text = format!(
        "domain: d\ndescriptors:\n- {{ key: a, rate_limit: {bad} }}\n- {{ key: b, rate_limit: *bad }}\n"
    );
    assert_eq!(
        reported(&text),
        [
            "3:38: error: invalid rate limit unit 'minuet' «minuet»",
            "3:65: error: error loading config file: cannot use -1 as a number for `requests_per_unit` «-1»",
        ]
    );
}

#[test]
fn misplaced_keys_are_warnings() {
    assert_eq!(
        of_limit("{ unit: day, shadow_mode: true, key: x, share_threshold: true }"),
        [
            "4:28: warning: 'shadow_mode' has no effect here «shadow_mode»",
            "4:47: warning: 'key' has no effect here «key»",
            "4:55: warning: 'share_threshold' has no effect here «share_threshold»",
        ]
    );
    assert_eq!(
        of_limit("{ unit: day, value: 1.5, descriptors: [x, { foo: 1 }], metadata: [1.5] }"),
        [
            "4:28: warning: 'value' has no effect here «value»",
            "4:35: error: error checking config: `value` is 1.5 «1.5»",
            "4:40: warning: 'descriptors' has no effect here «descriptors»",
            "4:54: error: config error, yaml file contains list of type other than map: x «x»",
            "4:59: error: config error, unknown key 'foo' «foo»",
            "4:70: warning: 'metadata' has no effect here «metadata»",
        ],
        "what is ignored is checked as the reference checks it"
    );
    assert_eq!(
        of_limit("{ unlimited: true, requests_per_unit: 1.5 }"),
        [
            "4:53: error: error checking config: cannot use 1.5 as a number for `requests_per_unit` «1.5»"
        ]
    );
    assert_eq!(
        reported("domain: d\nunit: day\n"),
        ["2:1: warning: 'unit' has no effect here «unit»"]
    );
    assert_eq!(
        of_descriptor("unit_multiplier: 5"),
        ["3:13: error: config error, 'unit_multiplier' does not belong here «unit_multiplier»"],
        "the reference knows no such key, so no file of its has it"
    );
}

#[test]
fn misplaced_values_are_checked_for_unknown_keys_except_metadata() {
    assert_eq!(
        reported("domain: d\nrate_limit: { unit: day, oops: 1, replaces: [{ nam: a }] }\n"),
        [
            "2:1: warning: 'rate_limit' has no effect here «rate_limit»",
            "2:26: error: config error, unknown key 'oops' «oops»",
            "2:48: error: config error, unknown key 'nam' «nam»",
        ]
    );
    assert_eq!(
        of_limit("{ unit: day, metadata: { team: a } }"),
        ["4:28: warning: 'metadata' has no effect here «metadata»"]
    );
    assert_eq!(
        reported("domain: d\nrate_limit: { metadata: { team: a } }\n"),
        ["2:1: warning: 'rate_limit' has no effect here «rate_limit»"]
    );
}

#[test]
fn a_text_that_cannot_be_read_is_one_error() {
    let beside = |descriptor: &str| {
        let text = format!(
            "domain: d\ndescriptors:\n- {{ key: k, L }}\n- {{ {descriptor}, L }}\n- {{ key: k2, L }}\n"
        );
        reported(&text.replace('L', "rate_limit: { unit: day, requests_per_unit: 1 }"))
    };
    for (descriptor, message) in [
        ("key: k, value: 1e1", "`value` is 1e1"),
        ("key: k, value: 1.50", "`value` is 1.50"),
        ("key: k, value: [a]", "cannot use a list as text"),
        ("key: 1e1", "`key` is 1e1"),
        ("key: {}", "cannot use a map as text"),
    ] {
        let problems = beside(descriptor);
        assert_eq!(problems.len(), 1, "{descriptor}: {problems:#?}");
        assert!(problems[0].contains(message), "{descriptor}: {problems:#?}");
    }
    let problems = reported("domain: 1e1\ndescriptors: []\n");
    assert_eq!(problems.len(), 1, "{problems:#?}");
}
