//! Invalid and hostile test files.

use proptest::prelude::*;

use super::run;

/// The first lines of the errors of a file.
fn errors(text: &str) -> Vec<String> {
    let report = run(text);
    assert!(report.tests.is_empty(), "{text}");
    let errors = report.rendered.lines().filter(|line| line.contains(": error: "));
    errors.map(|line| line.replace("d.test.yaml:", "").replace(" error: ", " ")).collect()
}

#[test]
fn all_errors_of_a_file_are_reported_at_once() {
    let text = "\
rule: [d.yaml]
domain: d
start: yesterday
response: {headers: 1, limit_header: ''}
tests:
  - steps: []
  - name: a
    stepz: []
  - name: a
    at: 1s
    steps:
      - {at: 5s, descriptors: ['=x', {hits: -1}], expect: {cod: OK, code: GOOD}}
      - {at: 4s, descriptors: [a=b]}
      - {at: 10, repeat: 0, every: 1us, descriptors: [], hits: 0}
      - {descriptors: [{entries: [{value: x}], limit: {unit: fortnight}}], expect: {}}
      - {repeat: 3, descriptors: [a=, b=], expect: {ok: 2, over: 2, reset: 1ms, retry: soon, statuses: [{}]}}
      - {domain: [], at: 51y, at: 1s, expect: {headers: [], remaining: none}}
      - {descriptors: [{entries: a=, limit: {rate: 10 rps}}, {entries: a=, limit: {rate: 1/s, unit: day}}]}
      - {at: 20000d, descriptors: [a=]}
";
    let expected = "\
1:1: unknown key 'rule' in a test file
1:1: a test file has no `rules`
3:8: `start` is 'yesterday'
4:21: `headers` is '1'
4:38: `limit_header` is ''
6:5: a test has no `name`
6:12: `steps` is an empty list
7:5: a test has no `steps`
8:5: unknown key 'stepz' in a test
9:11: two tests have the name 'a'
10:5: unknown key 'at' in a test
12:32: invalid descriptor '=x'
12:38: a descriptor has no `entries`
12:45: `hits` is '-1'
12:60: unknown key 'cod' in `expect`
12:75: `code` is 'GOOD'
13:14: `at` is 4s, before the last request at 5s
14:14: `at` is '10'
14:26: `repeat` is '0'
14:36: `every` is '1us'
14:54: `descriptors` is an empty list
14:64: `hits` is '0'
15:35: an entry has no `key`
15:62: `unit` is 'fortnight'
15:84: `expect` is empty
16:52: `ok` and `over` add up to 4, and the step sends 3 requests
16:76: `reset` is '1ms'
16:88: `retry` is 'soon'
16:104: `statuses` has 1 item for 2 descriptors
17:9: a step has no `descriptors`
17:18: `domain` is an empty list
17:26: `at` is '51y'
17:31: `at` is repeated
17:57: `headers` is an empty list
17:72: `remaining` is 'none'
18:52: `rate` is '10 rps'
18:90: both `rate` and `unit`
19:9: the step ends too late";
    assert_eq!(errors(text).join("\n"), expected);
}

#[test]
fn errors_show_the_line_and_the_fix() {
    let report = run("rules: [d.yaml]\ntests: [{name: a, steps: [{descriptor: [a=b]}]}]\n");
    let shown = "\
d.test.yaml:2:27: error: a step has no `domain`
 2 | tests: [{name: a, steps: [{descriptor: [a=b]}]}]
   |                           ^
  help: write `domain: NAME` in the file, the test or the step
d.test.yaml:2:27: error: a step has no `descriptors`
 2 | tests: [{name: a, steps: [{descriptor: [a=b]}]}]
   |                           ^
  help: write `descriptors: ['key=value']`
d.test.yaml:2:28: error: unknown key 'descriptor' in a step
 2 | tests: [{name: a, steps: [{descriptor: [a=b]}]}]
   |                            ^^^^^^^^^^
  help: did you mean `descriptors`?
";
    assert_eq!(report.rendered, shown);
}

#[test]
fn suggestions_name_the_section_that_a_key_belongs_in() {
    let text = "rules: [d.yaml]\nrepeat: 1\nburst: 1\ntests: []\n";
    let rendered = run(text).rendered;
    assert!(rendered.contains("help: `repeat` belongs in a step"), "{rendered}");
    assert!(rendered.contains("help: the keys of a test file are: rules, overlay,"), "{rendered}");
}

#[test]
fn files_that_are_no_tests_are_errors() {
    for (text, shown) in [
        ("", "1:1: the test file is empty"),
        ("~", "1:1: the test file is empty"),
        ("[]", "1:1: a test file is an empty list"),
        ("a: [", "1:4: error loading config file: yaml: line 1: "),
        (
            "{rules: [none.yaml], tests: [{name: a, steps: [{domain: d, descriptors: [a=]}]}]}",
            "none.yaml: cannot be read: ",
        ),
        (
            "{rules: [d.yaml, d.yaml/x], tests: [{name: a, steps: [{domain: d, descriptors: [a=]}]}]}",
            "d.yaml/x: cannot be read: ",
        ),
    ] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].starts_with(shown), "{text}: {errors:?}");
    }
}

#[test]
fn errors_are_bounded() {
    let text = format!("{{rules: [d.yaml], domain: d, tests: [{}]}}", "{x: 1},\n".repeat(10_000));
    let report = run(&text);
    assert_eq!(report.problems.len(), 100);
    assert!(report.rendered.ends_with(
        "29900 more errors are not listed (`weir check --max-problems` lists more)
"
    ));
}

#[test]
fn requests_of_a_file_are_bounded() {
    let steps = "{repeat: 1000000, descriptors: [a=]},\n".repeat(11);
    let text = format!("{{rules: [d.yaml], domain: d, tests: [{{name: a, steps: [{steps}]}}]}}");
    assert_eq!(errors(&text), ["11:1: the tests of this file send over 10000000 requests"]);
    // Aliases count as often as they are used.
    let text = "{rules: [d.yaml], domain: d, tests: [{name: a, steps: &s [{repeat: 6000000, descriptors: [a=]}]}, \
                {name: b, steps: *s}]}";
    assert!(errors(&text.replace("6000000", "1000001"))[0].contains("`repeat` is '1000001'"));
}

#[test]
fn merged_keys_give_way_to_the_maps_own() {
    let text = "\
rules: [d.yaml]
domain: d
tests:
  - name: a
    steps:
      - &a {descriptors: [window=a], hits: 2, expect: {remaining: 1}}
      - {<<: *a, hits: 1, expect: {remaining: 0}}
      - {<<: [{hits: 3}, *a], descriptors: [window=b], expect: {remaining: 0}}
";
    let report = run(text);
    assert_eq!((report.rendered.as_str(), report.failed(), report.tests.len()), ("", 0, 1));
}

const VALID: &str = "\
rules: [d.yaml]
domain: d
start: 2026-01-01T00:00:00Z
response: {headers: true, limit_header: X}
tests:
  - name: a
    steps:
      - &a {at: 1s, repeat: 3, every: 1ms, descriptors: ['window=a', {entries: 'x=1,y', hits: 0}]}
      - {<<: *a, at: 2s, hits: 2, expect: {code: OK, reset: 1s, retry: none, headers: {A: b}}}
      - descriptors: [{entries: [{key: k, value: v}], refund: true, limit: {requests_per_unit: 1, unit: day}}]
        expect: {ok: 1, over: 0, limit: '', rule: null, statuses: [{code: OK, remaining: 1}]}
";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the text, the file has errors, or its tests run.
    #[test]
    fn changed_files_are_read_without_a_panic(
        cuts in prop::collection::vec((0..VALID.len(), 0..20_usize), 1..4),
        replacement in prop_oneof![
            "[-{}:,'\"&*~0-9a-z \n\\[\\]]{0,3}",
            Just("99999999999999999999".to_owned()),
            Just("18446744073709551615d".to_owned()),
            Just("9999-12-31T23:59:59Z".to_owned()),
            Just("\u{feff}\0".to_owned()),
        ],
    ) {
        let mut text = VALID.to_owned();
        for (at, length) in cuts {
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) && at <= end {
                text.replace_range(at..end, &replacement);
            }
        }
        let report = run(&text);
        prop_assert!(!report.problems.is_empty() || !report.tests.is_empty(), "{}", text);
    }
}
