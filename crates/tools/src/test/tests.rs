mod errors;
mod limiter;

use std::fs;

use super::report::{FileReport, Report};
use super::run::run_file;
use super::text;
use weir_rules::RuleOptions;
use weir_rules::source::{RuleFile, Selection};

const RULES: &str = "\
domain: d
descriptors:
  - {key: window, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: gcra, rate_limit: {algorithm: gcra, unit: second, requests_per_unit: 7, burst: 2}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, unit: second, requests_per_unit: 4}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: second, requests_per_unit: 2}}
  - {key: held, rate_limit: {algorithm: concurrency, requests_per_unit: 2, hold_timeout: 10s}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: several
    detailed_metric: true
    rate_limits:
      - {name: short, unit: second, requests_per_unit: 2}
      - {name: long, unit: hour, requests_per_unit: 5}
  - {key: free, rate_limit: {name: free, unlimited: true}}
  - {key: blocked, rate_limit: {name: blocked, unit: day, requests_per_unit: 0}}
  - {key: other, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: blocked}]}}
  - {key: login, rate_limit: {unit: minute, requests_per_unit: 1}, ban: {after: 2, within: 1m, for: 1h}}
";

/// Runs a test file beside [`RULES`].
fn run(text: &str) -> FileReport {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("d.yaml"), RULES).unwrap();
    let name = directory.path().join("d.test.yaml").display().to_string();
    let selection = Selection::of_roots(Vec::new());
    let mut report =
        run_file(RuleFile { name, text: text.into() }, None, &selection, &RuleOptions::default());
    let prefix = format!("{}/", directory.path().display());
    report.rendered = report.rendered.replace(&prefix, "");
    report
}

/// Runs the steps of one test. Returns what differs, each with the line of its step in `steps`, from 1.
fn run_steps(steps: &str) -> Vec<String> {
    let text = format!("{{rules: [d.yaml], domain: d, tests: [{{name: t, steps: [\n{steps}]}}]}}");
    let report = run(&text);
    assert_eq!(report.rendered, "", "{text}");
    let failures = report.tests.iter().flat_map(|test| &test.failures);
    let shown = failures.flat_map(|failure| {
        let line = failure.position.line().unwrap() - 1;
        failure.differences.iter().map(move |difference| format!("{line}: {difference}"))
    });
    shown.collect()
}

#[test]
fn rules_limits_and_waits_are_those_that_decide() {
    let steps = "\
{descriptors: [window=a], expect: {rule: window, limit: '', remaining: 2, reset: 60s, retry: none}},
{descriptors: [several=a], expect: {rule: several_a, limit: short, remaining: 1, reset: 1s}},
{descriptors: [several=a], hits: 9, expect: {code: OVER_LIMIT, retry: none, limit: short}},
{descriptors: [free=a], expect: {rule: free, limit: null, remaining: 4294967295, reset: none}},
{descriptors: [nothing=a], expect: {rule: null, limit: null, remaining: 0, headers: {RateLimit-Limit: null}}},
{descriptors: [blocked=], expect: {code: OVER_LIMIT, limit: blocked, retry: none, reset: 1d}},
{descriptors: [blocked=, other=], expect: {code: OK, rule: other, statuses: [{rule: null, limit: null}, {rule: other}]}},
{domain: e, descriptors: [window=a], expect: {code: OK, rule: null}},
{domain: e, descriptors: [{entries: window=a, limit: {requests_per_unit: 1, unit: day}}], expect: {rule: null}},
{descriptors: [{entries: 'x=1,y=', limit: {requests_per_unit: 1, unit: day}}], expect: {rule: x.y, limit: ''}},
{descriptors: [{entries: 'x=1,z=', limit: {rate: 2/15m}}], expect: {remaining: 1, reset: 15m}},
{descriptors: [gcra=a], hits: 2, expect: {code: OK}},
{descriptors: [gcra=a], expect: {code: OVER_LIMIT, retry: 143ms, reset: 1s}},
{at: 142ms, descriptors: [gcra=a], expect: {code: OVER_LIMIT}},
{at: 143ms, descriptors: [gcra=a], expect: {code: OK}},
{descriptors: [shadow=], hits: 5, expect: {code: OK, retry: none}},
";
    assert_eq!(run_steps(steps), [""; 0]);
}

#[test]
fn bans_are_expected() {
    let steps = "\
{repeat: 2, descriptors: [login=a], expect: {ok: 1, over: 1, banned: false}},
{descriptors: [login=a], expect: {code: OVER_LIMIT, banned: true, retry: 1h}},
{at: 59m, descriptors: [login=a, window=a], expect: {banned: true, retry: 1m, statuses: [{banned: true}, {banned: false}]}},
{at: 60m, descriptors: [login=a], expect: {code: OK, banned: false}},
";
    assert_eq!(run_steps(steps), [""; 0]);
}

#[test]
fn every_key_can_fail() {
    let steps = "\
{descriptors: [window=a], expect: {ok: 0}},
{descriptors: [window=a], expect: {over: 1}},
{descriptors: [window=a], expect: {code: OVER_LIMIT}},
{descriptors: [window=a], expect: {retry: 61s}},
{descriptors: [window=a], expect: {headers: {retry-after: 61}}},
{descriptors: [window=a], expect: {headers: {Retry-After: null}}},
{descriptors: [window=a, log=b], expect: {statuses: [{code: OK}, {remaining: 2}]}},
{descriptors: [other=], expect: {reset: none}},
{descriptors: [other=], expect: {rule: d.other}},
{descriptors: [login=], expect: {banned: true}},
";
    let shown = [
        "1: ok: expected 0, actual 1",
        "2: over: expected 1, actual 0",
        "3: code: expected OVER_LIMIT, actual OK",
        "4: retry: expected 1m1s, actual 1m",
        "5: header retry-after: expected '61', actual '60'",
        "6: header Retry-After: expected none, actual '60'",
        "7: status 1 code: expected OK, actual OVER_LIMIT",
        "7: status 2 remaining: expected 2, actual 1",
        "8: reset: expected none, actual 1d",
        "9: rule: expected 'd.other', actual 'other'",
        "10: banned: expected true, actual false",
    ];
    assert_eq!(run_steps(steps), shown);
}

#[test]
fn an_unknown_domain_explains_a_failure() {
    let steps = "\
{domain: dd, descriptors: [window=a], hits: 9, expect: {code: OVER_LIMIT}},
{domain: dd, descriptors: [window=a], expect: {code: OK, rule: null}},
{domain: shop, descriptors: [window=a], expect: {rule: window}},
";
    let shown = [
        "1: domain: expected one with rules, actual 'dd', which has none: did you mean 'd'?",
        "1: code: expected OVER_LIMIT, actual OK",
        "3: domain: expected one with rules, actual 'shop', which has none",
        "3: rule: expected 'window', actual null",
    ];
    assert_eq!(run_steps(steps), shown);
}

#[test]
fn each_test_starts_with_nothing_counted() {
    let tests: String = (0..3)
        .map(|i| {
            format!(
                "- {{name: {i}, start: 2026-01-01T00:00:0{i}.5Z, steps: [\
                 {{repeat: 4, every: 1ms, descriptors: [window=a], expect: {{ok: 3, over: 1, retry: {}.497s}}}}]}}\n",
                59 - i
            )
        })
        .collect();
    let report = run(&format!("rules: [d.yaml]\ndomain: d\ntests:\n{tests}"));
    assert_eq!((report.rendered.as_str(), report.failed(), report.tests.len()), ("", 0, 3));
}

#[test]
fn a_request_that_the_limiter_refuses_is_a_failure() {
    let step = "{descriptors: [{entries: a=, limit: {requests_per_unit: 1, unit: year, unit_multiplier: 101}}]}";
    let shown = run_steps(step);
    assert_eq!(shown.len(), 1);
    assert!(
        shown[0].starts_with("1: response: expected a decision, actual descriptor 0:"),
        "{shown:?}"
    );
}

#[test]
fn failures_of_a_test_are_bounded() {
    let step = "{descriptors: [window=], expect: {ok: 0}},\n";
    let text = format!(
        "{{rules: [d.yaml], domain: d, tests: [{{name: t, steps: [{}]}}]}}",
        step.repeat(100)
    );
    let report = run(&text);
    // The first three are OK, and the others over.
    assert_eq!((report.tests[0].failures.len(), report.tests[0].omitted), (3, 0));
    let report = run(&text.replace("ok: 0", "ok: 1, remaining: 9"));
    assert_eq!((report.tests[0].failures.len(), report.tests[0].omitted), (20, 80));
}

#[test]
fn colors_appear_only_if_asked_for() {
    let steps = "steps: [{descriptors: [window=], expect: {ok: 0}}]";
    let text = format!("{{rules: [d.yaml], domain: d, tests: [{{name: t, {steps}}}]}}");
    let report = Report { files: vec![run(&text)] };
    let shown = |is_colored| {
        let mut out = Vec::new();
        text::print(&report, is_colored, &mut out, &mut Vec::new()).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(shown(true).contains("  \u{1b}[1;31mFAILED\u{1b}[0m  t\n"));
    assert!(!shown(false).contains('\u{1b}'));
}
