//! The subcommand `weir test`: the tests of `docs/testing-rules.md`, `docs/recipes.md` and `docs/rules.md`, the tests
//! that the examples ship with, and invalid test files.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::program::{Ended, command_line};
use crate::support::{files, markdown};

const RULES: &str = "\
domain: shop
descriptors:
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 5 }
";

/// Runs `weir test` on one file beside [`RULES`].
fn test(text: &str, arguments: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
    fs::write(directory.path().join("a.test.yaml"), text).unwrap();
    command_line(directory.path(), &format!("weir test a.test.yaml {arguments}"))
}

#[test]
fn the_documented_tests_pass() {
    // It is shown with what `weir test` prints, which tests/repository/console.rs compares.
    let failing = "failing.test.yaml";
    for (document, tests) in
        [("docs/testing-rules.md", 7), ("docs/recipes.md", 18), ("docs/rules.md", 1)]
    {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in markdown::files(&files::read(document)) {
            if name != failing {
                files::write_below(directory.path(), &name, &text);
            }
        }
        let (code, out, err) = command_line(directory.path(), "weir test .");
        assert_eq!((code, err.as_str()), (Some(0), ""), "{document}: {out}");
        let passed = format!(": {tests} passed, 0 failed\n");
        assert!(out.ends_with(&passed), "{document}: {out}");
    }
}

/// Returns the sections of a document, each with its heading.
fn sections(document: &str) -> impl Iterator<Item = (&str, &str)> {
    document.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap())
}

#[test]
fn each_recipe_has_rules_and_a_test() {
    let document = files::read("docs/recipes.md");
    let mut untested = Vec::new();
    for (question, recipe) in sections(&document) {
        assert!(question.ends_with('?'), "{question}");
        let files = markdown::files(recipe);
        let test =
            files.iter().find_map(|(name, text)| Some((name.strip_suffix(".test.yaml")?, text)));
        let tested = test.is_some_and(|(name, text)| {
            let rules = format!("{name}.yaml");
            text.contains(&format!("\nrules: [{rules}]\n"))
                && files.iter().any(|(name, _)| *name == rules)
        });
        if !tested {
            untested.push(question);
        }
    }
    assert_eq!(untested, [""; 0]);
    assert!(sections(&document).count() >= 8);
}

#[test]
fn the_examples_ship_with_tests_that_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (code, out, err) = command_line(root, "weir test examples");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    for entry in fs::read_dir(root.join("examples/rules")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let test = name.replace(".test.yaml", ".yaml").replace(".yaml", ".test.yaml");
        assert!(out.contains(&format!("rules/{test}\n")), "{name} has no test");
    }
}

#[test]
fn the_test_of_the_issue_passes() {
    let text = "\
rules: [shop.yaml]          # relative to this file; also overlay: [], merge_domains: false
domain: shop
start: 2026-01-01T00:00:00Z
overlay: []
merge_domains: false
tests:
- name: five a minute
  steps:
  - {at: 0s, repeat: 6, every: 1ms, descriptors: ['path=/a'], hits: 1, expect: {ok: 5, over: 1}}
  - {at: 60s, descriptors: ['path=/a'], expect: {code: OK, remaining: 4, reset: 60s, limit: '', rule: path, headers: {}}}
";
    let (code, out, err) = test(text, "");
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "a.test.yaml\n  ok      five a minute\n1 test: 1 passed, 0 failed\n");
}

#[test]
fn a_month_starts_on_its_last_day() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "domain: llm
descriptors:
- key: user
  rate_limit: { unit: month, starts: 31, time_zone: Europe/Berlin, requests_per_unit: 2 }
";
    fs::write(directory.path().join("llm.yaml"), rules).unwrap();
    // Berlin is an hour ahead of UTC. February starts on its 28th.
    let text = "\
rules: [llm.yaml]
domain: llm
start: 2026-01-31T00:00:00+01:00
tests:
- name: the last day
  steps:
  - {at: 0s, repeat: 3, descriptors: ['user=ann'], expect: {ok: 2, over: 1}}
  - {at: 671h, descriptors: ['user=ann'], expect: {code: OVER_LIMIT, reset: 1h, retry: 1h}}
  - {at: 672h, descriptors: ['user=ann'], expect: {code: OK, remaining: 1, reset: 743h}}
  - {at: 1414h, descriptors: ['user=ann'], expect: {code: OK, remaining: 0, reset: 1h}}
  - {at: 1415h, descriptors: ['user=ann'], expect: {code: OK, remaining: 1, reset: 720h}}
";
    fs::write(directory.path().join("a.test.yaml"), text).unwrap();
    let (code, out, err) = command_line(directory.path(), "weir test a.test.yaml");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
}

const FAILING: &str = "\
rules: [shop.yaml]
domain: shop
tests:
  - name: <one> & \"two\"
    steps:
      - descriptors: ['path=/a']
        expect: { remaining: 3, reset: 1s, limit: a, rule: null, retry: 1s }
      - { at: 1500ms, repeat: 5, descriptors: ['path=/a'], expect: { ok: 5, code: OK } }
  - name: two
    steps: [{ descriptors: ['path=/a'], expect: { code: OK, headers: { RateLimit-Limit: 6, X: 1 } } }]
";

#[test]
fn failures_show_expected_and_actual() {
    let (code, out, err) = test(FAILING, "");
    assert_eq!((code, err.as_str()), (Some(1), ""));
    let shown = r#"a.test.yaml
  FAILED  <one> & "two"
    a.test.yaml:6:9: step 1 at 0s
      remaining: expected 3, actual 4
      reset: expected 1s, actual 1m
      limit: expected 'a', actual ''
      rule: expected null, actual 'path'
      retry: expected 1s, actual none
    a.test.yaml:8:9: step 2 at 1.5s
      ok: expected 5, actual 4
      code: expected OK, actual OVER_LIMIT in response 5
  FAILED  two
    a.test.yaml:10:13: step 1 at 0s
      header RateLimit-Limit: expected '6', actual '5'
      header X: expected '1', actual none
2 tests: 0 passed, 2 failed
"#;
    assert_eq!(out, shown);
}

#[test]
fn junit_has_a_test_case_for_each_test_and_broken_file() {
    let (code, out, _) = test(FAILING, "none.test.yaml --output junit");
    assert_eq!(code, Some(1));
    let shown = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="weir test" tests="3" failures="2" errors="1">
  <testsuite name="a.test.yaml" tests="2" failures="2" errors="0" skipped="0">
    <testcase name="&lt;one&gt; &amp; &quot;two&quot;" classname="a.test.yaml" file="a.test.yaml" line="4">
      <failure message="step 1: remaining: expected 3, actual 4">a.test.yaml:6:9: step 1 at 0s
  remaining: expected 3, actual 4
  reset: expected 1s, actual 1m
  limit: expected &apos;a&apos;, actual &apos;&apos;
  rule: expected null, actual &apos;path&apos;
  retry: expected 1s, actual none
a.test.yaml:8:9: step 2 at 1.5s
  ok: expected 5, actual 4
  code: expected OK, actual OVER_LIMIT in response 5</failure>
    </testcase>
    <testcase name="two" classname="a.test.yaml" file="a.test.yaml" line="9">
      <failure message="step 1: header RateLimit-Limit: expected &apos;6&apos;, actual &apos;5&apos;">a.test.yaml:10:13: step 1 at 0s
  header RateLimit-Limit: expected &apos;6&apos;, actual &apos;5&apos;
  header X: expected &apos;1&apos;, actual none</failure>
    </testcase>
  </testsuite>
  <testsuite name="none.test.yaml" tests="1" failures="0" errors="1" skipped="0">
    <testcase name="none.test.yaml" classname="none.test.yaml">
      <error message="cannot be read: No such file or directory (os error 2)">none.test.yaml: error: cannot be read: No such file or directory (os error 2)
  help: name an existing file or directory that weir may read</error>
    </testcase>
  </testsuite>
</testsuites>
"#;
    assert_eq!(out, shown);
}

#[test]
fn rules_that_no_test_reaches_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "\
domain: shop
descriptors:
  - { key: path, rate: 5/m }
  - { key: user, rate: 5/m }
  - { key: plan, descriptors: [{ key: user, rate_limit: { unlimited: true, replaces: [{ name: a }] } }] }
  - { key: all, rate_limit: { name: a, rate: 5/m } }
";
    fs::write(directory.path().join("shop.yaml"), rules).unwrap();
    let test = |name: &str, descriptors: &str| {
        let text = format!(
            "rules: [shop.yaml]\ndomain: shop\ntests:\n- {{name: {name}, steps: [{{descriptors: [{descriptors}]}}]}}\n"
        );
        fs::write(directory.path().join(format!("{name}.test.yaml")), text).unwrap();
    };
    test("first", "path=/, other=x");
    // A limit of the request is none of the rules.
    test("second", "{ entries: user=ann, limit: { rate: 1/s } }, path=/");
    let (code, out, err) = command_line(directory.path(), "weir test .");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let shown = "\
./first.test.yaml
  ok      first
./second.test.yaml
  ok      second
rules that no test reaches:
  shop.all (./shop.yaml:6:5)
  shop.plan.user (./shop.yaml:5:32)
  shop.user (./shop.yaml:4:5)
2 tests: 2 passed, 0 failed
";
    assert_eq!(out, shown);
    // The rule that is replaced decides nothing.
    test("second", "user=ann, 'plan=gold,user=ann', all=");
    let (_, out, _) = command_line(directory.path(), "weir test .");
    let unreached = "rules that no test reaches:\n  shop.all (./shop.yaml:6:5)\n2 tests";
    assert!(out.contains(unreached), "{out}");
    test("third", "all=");
    let (_, out, _) = command_line(directory.path(), "weir test .");
    assert!(!out.contains("reaches"), "{out}");
}

#[test]
fn a_filter_runs_the_tests_with_the_text_in_their_names() {
    let (code, out, err) = test(FAILING, "--filter two");
    assert_eq!((code, err.as_str()), (Some(1), ""));
    // Both have it. Nothing is said about rules.
    assert!(out.ends_with("\n2 tests: 0 passed, 2 failed\n"), "{out}");
    let (_, out, _) = test(FAILING, "--filter <one>");
    assert!(!out.contains("FAILED  two"), "{out}");
    assert!(out.ends_with("\n1 test: 0 passed, 1 failed\n"), "{out}");
    let (code, out, err) = test(FAILING, "--filter three");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert_eq!(err, "error: no test has 'three' in its name\n");
    let unreached = FAILING.replace("path=/a", "other=a");
    assert!(test(&unreached, "").1.contains("rules that no test reaches:"));
    assert!(!test(&unreached, "--filter two").1.contains("reaches"));
    let broken = FAILING.replace("name: two", "nam: two");
    assert!(test(&broken, "--filter three").2.contains("unknown key 'nam'"));
}

#[test]
fn output_has_no_control_characters() {
    let text = FAILING.replace("name: two", r#"name: "two\e[31m\0""#);
    for output in ["text", "junit"] {
        let (code, out, _) = test(&text, &format!("--output {output}"));
        assert_eq!(code, Some(1));
        assert!(out.contains(r"two\u001b[31m\u0000"), "{out}");
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
    }
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
    let mut text = "rules: [shop.yaml]\ndomain: shop\ntests:\n".to_owned();
    for i in 0..20_000 {
        text += &format!("- {{name: a test with number {i}, steps: [{{descriptors: [path=]}}]}}\n");
    }
    fs::write(directory.path().join("a.test.yaml"), text).unwrap();
    let script = "\"$0\" test a.test.yaml | head -n 1; echo ${PIPESTATUS[0]}";
    let program = env!("CARGO_BIN_EXE_weir");
    let mut bash = Command::new("bash");
    let ran = bash.args(["-c", script, program]).current_dir(directory.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "a.test.yaml\n0\n");
}

#[test]
fn the_command_line_needs_a_file() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(command_line(directory.path(), "weir test").0, Some(2));
    let (code, out, err) = command_line(directory.path(), "weir test .");
    assert_eq!(
        (code, out.as_str()),
        (Some(1), "0 tests: 0 passed, 0 failed; 1 file with errors\n")
    );
    assert!(err.starts_with(".: error: no test files are here\n"), "{err}");
}

#[test]
fn rules_by_network_and_list_are_tested() {
    let directory = tempfile::tempdir().unwrap();
    let rules = "domain: shop\ndescriptors:\n\
                 - { key: ip, value: '*', rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
                 - { key: ip, network: 10.0.0.0/8, rate_limit: { unlimited: true } }\n\
                 - { key: ip, values_file: lists/blocked.txt, rate_limit: { unit: minute, requests_per_unit: 0 } }\n";
    let tests = "rules: [rules/shop.yaml]\ndomain: shop\ntests:\n- name: lists\n  steps:\n  \
                 - { repeat: 3, descriptors: ['ip=10.1.2.3'], expect: { ok: 3, rule: ip_10.0.0.0/8 } }\n  \
                 - { descriptors: ['ip=[2001:db8::7]:80'], expect: { code: OVER_LIMIT, rule: ip_@lists/blocked.txt } }\n  \
                 - { repeat: 2, descriptors: ['ip=192.0.2.1'], expect: { ok: 1, over: 1, rule: 'ip_*' } }\n";
    fs::create_dir_all(directory.path().join("rules/lists")).unwrap();
    for (name, text) in [
        ("rules/shop.yaml", rules),
        ("rules/lists/blocked.txt", "2001:db8::/32\n"),
        ("a.test.yaml", tests),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let (code, out, err) = command_line(directory.path(), "weir test a.test.yaml");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    fs::write(directory.path().join("rules/lists/blocked.txt"), "ok\n10.0.0.1/8\n").unwrap();
    let (code, _, err) = command_line(directory.path(), "weir test a.test.yaml");
    assert_eq!(code, Some(1));
    assert!(err.contains("rules/lists/blocked.txt:2:1: error:"), "{err}");
}
