//! Limits of weir's own: what they mean, and what is rejected.

use super::{compile, describe, file};
use crate::{RuleOptions, RuleSet};
use weir_limit::{Algorithm, Limit, SECOND};

/// The limits of one descriptor with these fields after its key.
fn limits(said: &str) -> Vec<Limit> {
    let text = format!("domain: d\ndescriptors:\n  - {{ key: k, {said} }}\n");
    let (set, problems) = compile(&text);
    assert_eq!(problems.iter().map(describe).collect::<Vec<_>>(), Vec::<String>::new(), "{said}");
    let rule = set.rules().next().expect("a rule");
    rule.plan.as_ref().expect("limits").limits().to_vec()
}

fn limit(said: &str) -> Limit {
    limits(&format!("rate_limit: {{ {said} }}")).remove(0)
}

/// What is reported of a descriptor, message and help.
fn reported(said: &str) -> Vec<String> {
    problems_of(&format!("domain: d\ndescriptors:\n  - {{ key: k, {said} }}\n"))
}

fn problems_of(text: &str) -> Vec<String> {
    let problems = compile(text).1;
    problems.iter().map(|p| format!("{} | {}", p.message, p.help)).collect()
}

fn period(said: &str) -> (Option<&'static str>, u32) {
    let limit = limit(&format!("requests_per_unit: 1, {said}"));
    (limit.unit.map(|unit| unit.name()), limit.unit_multiplier)
}

#[test]
fn months_are_those_of_the_calendar_if_options_say_so() {
    for (limit, is_calendar) in [
        ("unit: month, requests_per_unit: 9", true),
        ("unit: month, requests_per_unit: 9, align: epoch", false),
        ("unit: month, unit_multiplier: 2, requests_per_unit: 9", false),
        ("period: 30d, requests_per_unit: 9", false),
        ("unit: day, requests_per_unit: 9", false),
        ("algorithm: gcra, unit: month, requests_per_unit: 9", false),
    ] {
        let text = format!("domain: d\ndescriptors:\n- {{ key: a, rate_limit: {{ {limit} }} }}\n");
        let shape = |calendar_months| {
            let options = RuleOptions { calendar_months, ..RuleOptions::default() };
            let (set, problems) = RuleSet::compile(&[file("a.yaml", &text)], &options, None);
            assert!(problems.is_empty(), "{problems:?}");
            set.rules().next().unwrap().plan.as_ref().unwrap().shape().to_owned()
        };
        assert_eq!(shape(true) != shape(false), is_calendar, "{limit}");
    }
}

#[test]
fn starts_is_a_calendar_and_part_of_the_shape() {
    for (written, text, shape) in [
        ("unit: month, starts: 15", "UTC, from 15", "@UTC@15"),
        ("unit: month, starts: '31', time_zone: Europe/Berlin", "Berlin, from 31", "Berlin@31"),
        ("unit: week, starts: Wed", "UTC, from wednesday", "@UTC@wednesday"),
        ("unit: week, starts: sunday, align: calendar", "UTC, from sunday", "@UTC@sunday"),
        ("unit: day, starts: 6:00", "UTC, from 06:00", "@UTC@06:00"),
        ("unit: day, starts: \"06:00\"", "UTC, from 06:00", "@UTC@06:00"),
        ("unit: day, starts: 23:59", "UTC, from 23:59", "@UTC@23:59"),
        // As without it.
        ("unit: month, starts: 1", "of the calendar, UTC", "@UTC"),
        ("unit: week, starts: mon", "of the calendar, UTC", "@UTC"),
        ("unit: day, starts: 00:00", "of the calendar, UTC", "@UTC"),
    ] {
        let limit = limit(&format!("requests_per_unit: 9, {written}"));
        assert!(limit.to_string().ends_with(text), "{written}: {limit}");
        let plan = weir_limit::Plan::new(vec![limit]);
        assert!(plan.shape().ends_with(shape), "{written}: {}", plan.shape());
    }
}

#[test]
fn a_period_becomes_a_multiple_of_its_largest_unit() {
    for (said, unit, multiplier) in [
        ("period: 15m", "minute", 15),
        ("period: 36h", "hour", 36),
        ("period: 7d", "week", 1),
        ("period: 30d", "month", 1),
        ("period: 365d", "year", 1),
        ("period: 90s", "second", 90),
        ("period: 36500d", "year", 100),
        ("unit: HOUR, unit_multiplier: 3", "hour", 3),
        ("unit: week", "week", 1),
    ] {
        assert_eq!(period(said), (Some(unit), multiplier), "{said}");
    }
}

#[test]
fn defaults() {
    let Algorithm::TokenBucket(bucket) =
        limit("algorithm: token_bucket, unit: hour, requests_per_unit: 7").algorithm
    else {
        panic!("no bucket")
    };
    assert_eq!((bucket.capacity, bucket.amount, bucket.interval), (7, 7, 3_600 * SECOND));
    assert_eq!((bucket.strict, bucket.max_debt), (false, 0));
    let Algorithm::Gcra(gcra) =
        limit("algorithm: gcra, unit: hour, requests_per_unit: 7").algorithm
    else {
        panic!("no gcra")
    };
    assert_eq!(gcra.burst(), 7);
    let Algorithm::BucketedWindow(ring) =
        limit("algorithm: bucketed_window, unit: hour, requests_per_unit: 7").algorithm
    else {
        panic!("no ring")
    };
    assert_eq!(ring.buckets, 60);
    let held = limit("algorithm: concurrency, requests_per_unit: 7");
    assert_eq!((held.unit, held.charge_denied), (None, true));
    let Algorithm::Concurrency(held) = held.algorithm else { panic!("no holds") };
    assert_eq!((held.timeout, held.hold_id), (60 * SECOND, None));
    // A lone rate_limit of the reference's kind charges what it denies, as the reference does.
    assert!(limit("unit: day").charge_denied);
    assert_eq!(limit("unit: day").requests_per_unit, 0);
    assert!(!limits("rate_limits: [{ unit: day }]")[0].charge_denied);
    assert!(!limit("unit: day, algorithm: sliding_window").charge_denied);
    assert!(!limit("algorithm: concurrency, hold_id: k").charge_denied);
    assert_eq!(limit("unit: day, algorithm: leaky_bucket").algorithm.name(), "gcra");
    let Algorithm::TokenBucket(bucket) =
        limit("algorithm: token_bucket, unit: hour, burst: 9, charge_denied: true").algorithm
    else {
        panic!("no bucket")
    };
    assert_eq!(bucket.max_debt, 9, "one capacity");
}

#[test]
fn several_limits_each_with_its_own_name_and_shadow() {
    let all = limits(
        "rate_limits: [{ unit: second, requests_per_unit: 1, name: a }, \
         { unit: day, requests_per_unit: 9, algorithm: sliding_log, shadow_mode: true, name: b }]",
    );
    let shown: Vec<_> = all.iter().map(|l| (&*l.name, l.algorithm.name(), l.shadow_mode)).collect();
    assert_eq!(shown, [("a", "fixed_window", false), ("b", "sliding_log", true)]);
}

#[test]
fn invalid_limits_are_rejected_with_a_fix() {
    let limit = |said: &str| format!("rate_limit: {{ {said} }}");
    for (said, message, help) in [
        (limit("unit: day, algorithm: gcar"), "there is no algorithm 'gcar'", "did you mean gcra?"),
        (limit("unit: day, algorithm: magic"), "there is no algorithm 'magic'", "write one of"),
        (limit("unit: day, burst: 3"), "fixed_window takes no `burst`", "token_bucket, leaky_b"),
        (limit("unit: day, strict: true"), "takes no `strict`", "it is for token_bucket"),
        (limit("unit: day, algorithm: gcra, buckets: 5"), "gcra takes no `buckets`", "bucketed"),
        (
            limit("unit: day, algorithm: sliding_log, charge_denied: true"),
            "sliding_log takes no `charge_denied`",
            "it is for",
        ),
        (limit("algorithm: concurrency, unit: day"), "concurrency takes no `unit`", "remove it"),
        (limit("unit: day, period: 1d"), "both `period` and `unit`", "remove one"),
        (limit("period: 1500ms"), "`period` is '1500ms'", "whole seconds"),
        (limit("period: 36501d"), "`period` is '36501d'", "100 years"),
        (limit("period: 0"), "`period` is '0'", "whole seconds"),
        (limit("unit: year, unit_multiplier: 101"), "unit_multiplier 101 makes", "at most 100"),
        (limit("unit: day, unit_multiplier: 0"), "unit_multiplier 0 makes", "at least 1"),
        (
            limit("unit: day, algorithm: bucketed_window, buckets: 1"),
            "`buckets` is 1",
            "write 2 to 3600",
        ),
        (
            limit("unit: day, algorithm: bucketed_window, buckets: 3601"),
            "`buckets` is 3601",
            "write 2 to 3600",
        ),
        (
            limit("unit: day, algorithm: token_bucket, max_debt: 1"),
            "`max_debt` without `charge_denied`",
            "add `charge_denied: true`",
        ),
        (
            limit("unit: day, requests_per_unit: 1, algorithm: token_bucket, refill_amount: 0"),
            "`refill_amount` is 0",
            "write 1 or more",
        ),
        (
            limit("unit: day, algorithm: token_bucket, refill_interval: soon"),
            "`refill_interval` is 'soon'",
            "write a duration",
        ),
        (
            limit(
                "unit: year, unit_multiplier: 99, requests_per_unit: 4294967295, \
                 algorithm: gcra, burst: 4294967295",
            ),
            "cannot be counted: its burst and period are too large",
            "token_bucket",
        ),
        (
            limit("unit: day, requests_per_unit: 3000000, algorithm: sliding_log"),
            "24000000 bytes per key",
            "use sliding_window",
        ),
        (
            limit("algorithm: concurrency, hold_id: request"),
            "`hold_id` is 'request', not this key",
            "write `hold_id: k`",
        ),
        (limit("unit: day, align: moon"), "`align` is 'moon'", "epoch or calendar"),
        (limit("unit: hour, align: calendar"), "not a hour", "`unit: day`"),
        (limit("unit: day, unit_multiplier: 2, align: calendar"), "only one day", "`unit: day`"),
        (
            limit("unit: day, align: calendar, time_zone: Mars/Base"),
            "there is no time zone \"Mars/Base\"",
            "IANA name",
        ),
        (limit("unit: day, time_zone: UTC"), "`time_zone` without", "add `align: calendar`"),
        (limit("unit: month, starts: 32"), "`starts` is '32'", "from 1 to 31"),
        (limit("unit: month, starts: 0"), "`starts` is '0'", "from 1 to 31"),
        (limit("unit: month, starts: monday"), "`starts` is 'monday'", "from 1 to 31"),
        (limit("unit: week, starts: 1"), "`starts` is '1'", "such as monday"),
        (limit("unit: day, starts: 6am"), "`starts` is '6am'", "\"06:00\""),
        (limit("unit: day, starts: 24:00"), "`starts` is '24:00'", "\"06:00\""),
        (limit("unit: year, starts: 1"), "`starts` is '1'", "a month starts on"),
        (limit("unit: month, starts: 1.5"), "`starts` is '1.5'", "from 1 to 31"),
        (limit("unit: month, starts: [15]"), "`starts` is '", "from 1 to 31"),
        (limit("unit: month, starts:"), "`starts` is '", "from 1 to 31"),
        (limit("unit: hour, starts: 15"), "not a hour", "`unit: day`"),
        (limit("period: 30d, starts: 15"), "only one day, week, month", "`unit: day`"),
        (limit("unit: month, unit_multiplier: 2, starts: 15"), "only one day", "`unit: day`"),
        (
            limit("unit: month, align: epoch, starts: 15, time_zone: UTC"),
            "both `align: epoch` and `starts`",
            "remove one of the two",
        ),
        (limit("unit: month, algorithm: gcra, starts: 15"), "gcra takes no `starts`", "fixed_w"),
        (limit("unlimited: true, burst: 1"), "`burst` beside `unlimited`", "remove one"),
        ("rate_limits:".into(), "0 items in `rate_limits`", "write 1 to 16"),
        ("rate_limits: []".into(), "0 items in `rate_limits`", "write 1 to 16"),
        (
            format!("rate_limits: [{}]", ["{ unit: day }"; 17].join(", ")),
            "17 items in `rate_limits`",
            "write 1 to 16",
        ),
        ("rate_limits: { unit: day }".into(), "cannot use a map as the list", "`-`"),
        (
            "rate_limit: { unit: day }, rate_limits: [{ unit: day }]".into(),
            "both `rate_limit` and `rate_limits`",
            "move the limit",
        ),
        (
            "rate_limits: [{ unit: day, unlimited: true }]".into(),
            "'unlimited' does not belong here",
            "`rate_limit`",
        ),
        ("algorithm: gcra".into(), "'algorithm' does not belong here", "`rate_limit`"),
    ] {
        let reported = reported(&said);
        let [one] = &reported[..] else { panic!("{said}: {reported:?}") };
        let (told_message, told_help) = one.split_once(" | ").expect("both");
        assert!(told_message.contains(message), "{said}: {told_message}");
        assert!(told_help.contains(help), "{said}: {told_help}");
    }
}

#[test]
fn a_limit_that_is_no_map_is_one_problem_with_the_map_to_write() {
    for (said, help) in [
        ("5/minute", "write `rate: 5/m`"),
        ("10 / Hours", "write `rate: 10/h`"),
        ("5", "write `rate: 5/m` instead, or a map such as `rate_limit: { rate: 5/m }`"),
        ("[{ unit: day }]", "or a map such as `rate_limit: "),
    ] {
        let reported = reported(&format!("rate_limit: {said}"));
        let [one] = &reported[..] else { panic!("{said}: {reported:?}") };
        assert!(one.contains("as a map | ") && one.contains(help), "{said}: {one}");
    }
}

#[test]
fn an_item_of_replaces_is_written_with_its_name() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1, replaces: [foo] }";
    let reported = reported(limit);
    let [one] = &reported[..] else { panic!("{reported:?}") };
    assert!(one.ends_with("of type other than map: foo | write `- name: foo`"), "{one}");
}

#[test]
fn a_burst_and_a_debt_must_recover_within_a_thousand_years() {
    let rule = |said: &str| format!("rate_limit: {{ unit: year, {said} }}");
    for (said, message, help) in [
        ("algorithm: gcra, requests_per_unit: 1, burst: 1001", "burst of 1001", "`burst: 1000`"),
        (
            "algorithm: leaky_bucket, requests_per_unit: 3, burst: 2, charge_denied: true, \
             max_debt: 4294967295",
            "a burst of 2 and a debt of 4294967295 take more than 1000 years",
            "write `max_debt: 2998` or less",
        ),
        (
            "algorithm: gcra, requests_per_unit: 1, burst: 600, charge_denied: true",
            "a burst of 600 and a debt of 600",
            "`max_debt: 400`",
        ),
        (
            "algorithm: token_bucket, requests_per_unit: 5000, refill_amount: 1",
            "burst of 5000",
            "`burst: 1000`",
        ),
        (
            "algorithm: token_bucket, requests_per_unit: 2, burst: 9, max_debt: 1992, \
             charge_denied: true",
            "a debt of 1992",
            "`max_debt: 1991`",
        ),
    ] {
        let reported = reported(&rule(said));
        let [one] = &reported[..] else { panic!("{said}: {reported:?}") };
        assert!(one.contains(message) && one.contains(help), "{said}: {one}");
    }
    for said in [
        "algorithm: gcra, requests_per_unit: 1, burst: 1000",
        "algorithm: token_bucket, requests_per_unit: 2, burst: 9, max_debt: 1991, \
         charge_denied: true",
        // They deny everything, whatever the burst.
        "algorithm: gcra, requests_per_unit: 0, burst: 4294967295",
        "algorithm: token_bucket, requests_per_unit: 0, burst: 4294967295",
    ] {
        limits(&rule(said));
    }
}

#[test]
fn a_large_log_is_a_warning() {
    let said = "rate_limit: { unit: day, requests_per_unit: 200000, algorithm: sliding_log }";
    let text = format!("domain: d\ndescriptors: [{{ key: k, {said} }}]\n");
    let (set, problems) = compile(&text);
    assert_eq!(set.rules().count(), 1);
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(!problem.is_error());
    assert!(problem.message.contains("1600000 bytes per key"), "{problem}");
}

#[test]
fn a_burst_of_0_is_a_warning() {
    let denies =
        "`burst: 0` leaves no room for any hit: this limit denies everything | write `burst: 1`";
    for said in [
        "rate: 10/s, burst: 0",
        "rate_limit: { unit: day, requests_per_unit: 1, algorithm: token_bucket, burst: 0 }",
        "rate_limits: [{ rate: 5/m, burst: 0, algorithm: leaky_bucket }]",
    ] {
        let text = format!("domain: d\ndescriptors:\n  - {{ key: k, {said} }}\n");
        let (set, problems) = compile(&text);
        assert!(set.rules().count() == 1 && problems.iter().all(|p| !p.is_error()), "{said}");
        assert!(set.to_yaml().contains("burst: 0"), "{said}");
        let [reported] = &reported(said)[..] else { panic!("{problems:?}") };
        assert!(reported.starts_with(denies), "{reported}");
    }
    for said in ["rate: 0/s, burst: 0", "rate: 10/s, burst: 1", "rate: 10/s, burst: ~"] {
        assert_eq!(reported(said), [""; 0], "{said}");
    }
}

#[test]
fn an_unknown_zone_is_reported_at_its_key() {
    let problems = |zone: &str| {
        let limit = format!(
            "    unit: day\n    requests_per_unit: 1\n    align: calendar\n    time_zone: {zone}\n"
        );
        compile(&format!("domain: d\ndescriptors:\n- key: k\n  rate_limit:\n{limit}")).1
    };
    assert!(problems("Europe/Berlin").is_empty());
    let problems = problems("Mars/Base");
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(problem.position.unwrap().line(), Some(8), "{problem}");
}

#[test]
fn charge_and_on_store_failure_apply_to_the_domain() {
    let domain = |said: &str| format!("domain: d\n{said}\ndescriptors: []\n");
    let (set, problems) = compile(&domain("charge: together\non_store_failure: local"));
    assert!(problems.is_empty());
    let d = set.domain("d").expect("the domain");
    assert!(d.together && d.on_store_failure.is_some_and(|policy| policy.name() == "local"));
    let reported = problems_of(&domain("charge: all"));
    assert_eq!(reported, ["config error, `charge` is 'all' | write one of each, together"]);
    let reported = problems_of(&domain("on_store_failure: pray"));
    let wanted = "write one of error, allow, deny, local";
    assert_eq!(reported, [format!("config error, `on_store_failure` is 'pray' | {wanted}")]);
    let together = |said: &str| {
        let rule = format!("{{ key: k, rate_limit: {{ {said} }} }}");
        problems_of(&format!("domain: d\ncharge: together\ndescriptors: [{rule}]\n"))
    };
    assert_eq!(together("unit: day"), Vec::<String>::new());
    assert!(together("unit: day, charge_denied: true")[0].contains("under `charge: together`"));
    assert!(together("algorithm: concurrency")[0].contains("without `hold_id`"));
    assert_eq!(together("algorithm: concurrency, hold_id: k"), Vec::<String>::new());
}
