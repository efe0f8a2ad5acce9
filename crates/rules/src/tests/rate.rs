//! `rate` and `rates`: what they mean, and what is rejected.

use proptest::prelude::*;

use super::overlay::patched;
use super::{compile, good};
use crate::RuleSet;
use weir_limit::Limit;

fn rule(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n- {{ key: k, {fields} }}\n")
}

/// The limits of an only rule, and how they are keyed.
fn meaning(set: &RuleSet) -> (Vec<Limit>, String) {
    let rule = set.rules().next().expect("a rule");
    (rule.limits().to_vec(), rule.plan.as_ref().expect("limits").shape().to_owned())
}

fn meaning_of(fields: &str) -> (Vec<Limit>, String) {
    meaning(&good(&rule(fields)))
}

/// The limits of the rule with these fields after a patch that sets others.
fn after(fields: &str, set: &str) -> (Vec<Limit>, String) {
    let patch = format!("patches: [{{ match: {{}}, set: {{ {set} }} }}]");
    let (rules, report) = patched(&rule(fields), &patch);
    assert!(report.problems.is_empty(), "{fields} {set}: {:#?}", report.problems);
    meaning(&rules)
}

/// The text of a period after `/`, and the keys for it.
fn period() -> impl Strategy<Value = (String, String)> {
    let unit = |names: &'static [&'static str], unit: &'static str| {
        let text = prop::sample::select(names).prop_map(str::to_owned);
        (text, Just(format!("unit: {unit}"))).boxed()
    };
    let duration = (1_u32..=50, prop::sample::select(&["s", "m", "h", "d"][..]));
    prop_oneof![
        unit(&["s", "sec", "secs", "second", "Seconds"], "second"),
        unit(&["m", "min", "mins", "minute", "minutes"], "minute"),
        unit(&["h", "hour", "hours"], "hour"),
        unit(&["d", "day", "DAYS"], "day"),
        unit(&["w", "week", "weeks"], "week"),
        unit(&["month", "months"], "month"),
        unit(&["year", "years"], "year"),
        duration.prop_map(|(n, unit)| (format!("{n}{unit}"), format!("period: {n}{unit}"))),
        Just(("1h30m".to_owned(), "period: 90m".to_owned())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_rate_is_its_number_and_its_period(
        n in prop_oneof![Just(0), 1_u32..=100_000, Just(u32::MAX)],
        (text, keys) in period(),
        spaces in prop::sample::select(vec!["/", " / ", "/ "]),
        burst in prop::option::of(1_u32..=900),
        algorithm in prop::option::of(prop::sample::select(vec!["token_bucket", "gcra"])),
    ) {
        let rate = format!("rate: {n}{spaces}{text}");
        let long = format!("requests_per_unit: {n}, {keys}");
        let algorithm = algorithm.map(|name| format!(", algorithm: {name}"));
        let beside = burst.map(|burst| format!(", burst: {burst}")).unwrap_or_default()
            + &algorithm.clone().unwrap_or_default();
        let written = algorithm.or(burst.map(|_| ", algorithm: gcra".to_owned()));
        let keys = burst.map(|burst| format!(", burst: {burst}")).unwrap_or_default()
            + &written.unwrap_or_default();
        let of_map = format!("rate_limit: {{ {long}{keys} }}");
        let wanted = compile(&rule(&of_map));
        if !wanted.1.is_empty() {
            // A burst that cannot be counted is an error of both forms.
            let messages = |problems: Vec<crate::Problem>| {
                problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>()
            };
            let short = compile(&rule(&format!("{rate}{beside}"))).1;
            prop_assert_eq!(messages(short), messages(wanted.1));
            return Ok(());
        }
        let wanted = meaning(&wanted.0);
        prop_assert_eq!(&meaning_of(&format!("{rate}{beside}")), &wanted);
        prop_assert_eq!(&meaning_of(&format!("rate_limit: {{ {rate}{beside} }}")), &wanted);
        // What is written is read as the same.
        let set = good(&rule(&format!("{rate}{beside}")));
        prop_assert_eq!(&meaning(&good(&set.to_yaml())), &wanted);
        let listed = |limit: &str| format!("rate_limits: [{{ {limit} }}, {{ unit: day }}]");
        let wanted = meaning_of(&listed(&format!("{long}{keys}")));
        prop_assert_eq!(&meaning_of(&listed(&format!("{rate}{beside}"))), &wanted);
        // A patch that sets it leaves nothing of another period.
        for old in ["unit: hour, unit_multiplier: 3", "period: 7s", "unit: month"] {
            let old = format!("rate_limit: {{ requests_per_unit: 9, {old} }}");
            prop_assert_eq!(&after(&old, &format!("{rate}{beside}")), &meaning_of(&of_map));
        }
    }
}

#[test]
fn rates_are_the_limits_of_a_list() {
    let long = "rate_limits: [{ unit: second, requests_per_unit: 10 }, \
                { unit: day, requests_per_unit: 800 }]";
    let wanted = meaning_of(long);
    for short in ["rates: [10/s, 800/d]", "rate_limits: [{ rate: 10/s }, { rate: 800/day }]"] {
        assert_eq!(meaning_of(short), wanted, "{short}");
    }
    assert_eq!(after("rate: 5/m, burst: 7", "rates: [10/s, 800/d]"), wanted);
    // Denied hits are charged where the reference does, and not in a list.
    assert!(meaning_of("rate: 10/s").0[0].charge_denied);
    assert!(wanted.0.iter().all(|limit| !limit.charge_denied));
}

#[test]
fn the_calendar_and_an_algorithm_stand_beside_a_rate() {
    for (short, long) in [
        (
            "rate: 9/month, align: calendar, time_zone: Europe/Berlin",
            "unit: month, requests_per_unit: 9, align: calendar, time_zone: Europe/Berlin",
        ),
        (
            "rate: 9/m, algorithm: sliding_window",
            "unit: minute, requests_per_unit: 9, algorithm: sliding_window",
        ),
        ("rate: 9/30d", "period: 30d, requests_per_unit: 9"),
    ] {
        let wanted = meaning_of(&format!("rate_limit: {{ {long} }}"));
        assert_eq!(meaning_of(short), wanted, "{short}");
    }
    let named = "rate_limit: { rate: 9/m, name: n, charge_denied: false, replaces: [{ name: a }] }";
    let set = good(&rule(named));
    let rule = set.rules().next().unwrap();
    assert_eq!((rule.limit_name(0), rule.replaces.len()), ("n", 1));
    assert!(!rule.limits()[0].charge_denied);
}

#[test]
fn a_period_in_days_is_shown_in_days() {
    for (written, words, yaml) in [
        ("7/30d", "7 per 30 days", "period: 2592000s"),
        ("7/60d", "7 per 60 days", "period: 5184000s"),
        ("7/365d", "7 per 365 days", "period: 31536000s"),
        ("7/month", "7 per month of 30 days", "unit: month"),
        ("7/year", "7 per year", "unit: year"),
    ] {
        let set = good(&rule(&format!("rate: {written}")));
        let described = set.rules().next().unwrap().describe();
        assert_eq!(described.limits[0].rate.as_deref(), Some(written));
        assert_eq!(set.rules().next().unwrap().limits_text(), words);
        let text = set.to_yaml();
        assert!(text.contains(yaml), "{text}");
        assert_eq!(good(&text).rules().next().unwrap().limits_text(), words);
    }
}

#[test]
fn patches_change_the_keys_that_a_rate_stands_for() {
    let limit_with = |fields: &str| meaning_of(&format!("rate_limit: {{ {fields} }}"));
    let gcra = "rate: 10/s, burst: 20";
    for (rule, set, wanted) in [
        (gcra, "rate: 30/m", "rate: 30/m, burst: 20"),
        (gcra, "requests_per_unit: 15", "rate: 15/s, burst: 20"),
        (gcra, "burst: 40", "rate: 10/s, burst: 40"),
        (gcra, "burst: null, algorithm: null", "rate: 10/s"),
        ("rate: 10/s", "rate: 20/15m, burst: 40", "rate: 20/15m, burst: 40"),
        // The algorithm of the rule wins over that of a rate with a burst.
        (
            "rate: 10/s, algorithm: token_bucket",
            "rate: 20/s, burst: 40",
            "rate: 20/s, burst: 40, algorithm: token_bucket",
        ),
        (
            "rate: 10/s",
            "rate: 20/s, burst: 4, algorithm: null",
            "rate: 20/s, burst: 4, algorithm: gcra",
        ),
        ("rate: 10/15m", "period: null, unit: day", "rate: 10/d"),
        ("rate: 10/15m", "rate: null, requests_per_unit: 3, unit: day", "rate: 3/d"),
        // A part of a limit is set in the limit of the rule; a whole one replaces it.
        (gcra, "rate_limit: { requests_per_unit: 15, burst: 30 }", "rate: 15/s, burst: 30"),
        (gcra, "rate_limit: { burst: null, algorithm: null }", "rate: 10/s"),
        (gcra, "rate: 9/m, rate_limit: { burst: 30 }", "rate: 9/m, burst: 30"),
        (gcra, "rate_limit: { rate: 15/m }", "rate: 15/m"),
        (gcra, "rate_limit: { unit: minute, requests_per_unit: 15 }", "rate: 15/m"),
        (
            gcra,
            "rate_limit: { algorithm: concurrency, requests_per_unit: 3 }",
            "algorithm: concurrency, requests_per_unit: 3",
        ),
    ] {
        assert_eq!(after(rule, set), limit_with(wanted), "{rule} + {set}");
    }
    // All rates of one patch, whatever its order, and each in the limit that is selected.
    let rules = rule("rate_limits: [{ rate: 1/s, name: a }, { rate: 2/m, name: b }]");
    let patch = |set: &str| {
        let patch = format!("patches: [{{ match: {{}}, limit: b, set: {{ {set} }} }}]");
        let (rules, report) = patched(&rules, &patch);
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        rules.rules().next().unwrap().limits_text()
    };
    for set in ["burst: 4, rate: 3/h", "rate_limit: { burst: 4 }, rate: 3/h"] {
        assert_eq!(patch(set), "1 per second + 3 per hour, gcra with a burst of 4", "{set}");
    }
}

#[test]
fn invalid_rates_are_rejected_with_a_fix() {
    const GENERAL: &str = "write a whole number and a period, such as 10/s, 300/15m or 5000/month; \
        a period is s, m, h, d, w, month, year, or whole seconds from 1s to 100 years";
    const MAP: &str = "write a text such as 10/s; a limit with other keys is a `rate_limit`, or an item of \
        `rate_limits`";
    const BOTH: &str = "remove one of the two: `rate: 10/s` is the number and the period";
    const LISTED: &str =
        "remove one of the two, or write all limits in `rate_limits`, each as `- rate: 10/s`";
    const BESIDE: &str = "write it in `rate_limit`, or beside `rate`, such as `rate: 10/s`";
    const RATES: &str = "write 1 to 16 rates, such as `rates: [10/s, 800/d]`";
    for (fields, wanted) in [
        ("rate: 10 per second", "config error, `rate` is `10 per second` | write `10/s`"),
        ("rate: 10r/s, burst: 5", "config error, `rate` is `10r/s` | write `10/s`"),
        (
            "rate: 10",
            "config error, `rate` is `10` | write the period too, such as `10/s`, `10/15m` or `10/month`",
        ),
        ("rate: 0.5/s", &format!("config error, `rate` is `0.5/s` | {GENERAL}")),
        ("rate: 10/100ms", &format!("config error, `rate` is `10/100ms` | {GENERAL}")),
        ("rate: ", &format!("config error, `rate` is empty | {GENERAL}")),
        ("rates: ", &format!("config error, `rates` is empty | {RATES}")),
        ("rate: [10/s, 800/d]", "config error, `rate` is a list | write several limits as `rates`"),
        ("rate: { n: 1 }", &format!("config error, `rate` is a map | {MAP}")),
        ("rates: [{ rate: 10/s, burst: 5 }]", &format!("config error, `rate` is a map | {MAP}")),
        (
            "rate_limits: [10/s]",
            "config error, yaml file contains list of type other than map: 10/s | write each item as \
             `- rate: 10/s`, or `rates: [10/s]` instead",
        ),
        ("rates: 10/s", &format!("config error, `rates` is `10/s` | {RATES}")),
        ("rates: []", &format!("config error, 0 items in `rates` | {RATES}")),
        (
            "rates: [10/s, 5]",
            "config error, `rate` is `5` | write the period too, such as `5/s`, `5/15m` or `5/month`",
        ),
        (
            "rate: 10/s, rates: [10/s]",
            "config error, both `rate` and `rates` | write all of them in `rates`",
        ),
        (
            "rate: 10/s, rate_limit: { unit: day }",
            &format!("config error, both `rate` and `rate_limit` | {LISTED}"),
        ),
        (
            "rates: [10/s], rate_limits: [{ unit: day }]",
            &format!("config error, both `rates` and `rate_limits` | {LISTED}"),
        ),
        (
            "rates: [10/s], burst: 20",
            "config error, `burst` beside `rates` | write `rate_limits`, with an item for each limit: \
             `- { rate: 10/s, burst: 20 }`",
        ),
        ("burst: 20", &format!("config error, 'burst' does not belong here | {BESIDE}")),
        (
            "algorithm: gcra, rate_limit: { unit: day }",
            &format!("config error, 'algorithm' does not belong here | {BESIDE}"),
        ),
        (
            "rate_limit: { rate: 10/s, unit: second }",
            &format!("config error, both `rate` and `unit` | {BOTH}"),
        ),
        (
            "rate_limit: { rate: 10/s, period: 1s }",
            &format!("config error, both `rate` and `period` | {BOTH}"),
        ),
        (
            "rate_limits: [{ rate: 10/s, requests_per_unit: 1 }]",
            &format!("config error, both `rate` and `requests_per_unit` | {BOTH}"),
        ),
        (
            "rate_limit: { rate: 10/s, unit_multiplier: 2 }",
            &format!("config error, both `rate` and `unit_multiplier` | {BOTH}"),
        ),
        (
            "rate_limit: { rate: 10/s, unlimited: true }",
            "config error, `rate` beside `unlimited` | remove one of the two",
        ),
        (
            "limit: 10/s",
            "config error, unknown key 'limit' | write the limit as a rate, such as `rate: 10/s`",
        ),
        (
            "rate: 10/s, algorithm: concurrency",
            "config error, concurrency takes no `rate` | remove it; it is for fixed_window, sliding_window, \
             sliding_log, bucketed_window, token_bucket, leaky_bucket, gcra",
        ),
        (
            "rate: 10/s, burst: 5, algorithm: fixed_window",
            "config error, fixed_window takes no `burst` | remove it; it is for token_bucket, leaky_bucket, gcra",
        ),
    ] {
        let problems = compile(&rule(fields)).1;
        let reported: Vec<_> =
            problems.iter().map(|p| format!("{} | {}", p.message, p.help)).collect();
        assert_eq!(reported, [wanted], "{fields}");
    }
    // Where the reference ignores its keys, they are errors beside a rate.
    for key in ["unit: second", "requests_per_unit: 1"] {
        let problems = compile(&rule(&format!("rate: 10/s, {key}"))).1;
        let errors: Vec<_> = problems.iter().filter(|problem| problem.is_error()).collect();
        let name = key.split(':').next().unwrap();
        assert_eq!(errors[0].message, format!("config error, both `rate` and `{name}`"));
        assert_eq!(errors.len(), 1);
    }
    // It is at the value.
    let at = compile(&rule("rate_limit: { name: n, rate: 10 rps }")).1;
    assert_eq!(super::describe(&at[0]), "3:42: error: config error, `rate` is `10 rps` «10 rps»");
}

#[test]
fn a_merged_rate_is_overridden_without_a_warning() {
    let text = "domain: d\ndescriptors:\n- &base { key: a, rate: 10/s, burst: 5 }\n\
                - { <<: *base, key: b, rate: 20/s }\n";
    let (set, problems) = compile(text);
    assert!(problems.is_empty(), "{problems:#?}");
    let limits: Vec<String> = set.rules().map(|rule| rule.limits_text()).collect();
    assert_eq!(
        limits,
        ["10 per second, gcra with a burst of 5", "20 per second, gcra with a burst of 5"]
    );
}

/// As a template leaves it whose value is not set.
#[test]
fn an_empty_burst_is_none() {
    for fields in ["rate: 10/s, burst: ", "rate_limit: { rate: 10/s, burst: ~ }"] {
        assert_eq!(meaning_of(fields), meaning_of("rate: 10/s"), "{fields}");
    }
    let gcra = "algorithm: gcra, unit: second, requests_per_unit: 10";
    let empty = meaning_of(&format!("rate_limit: {{ {gcra}, burst: ~ }}"));
    assert_eq!(empty, meaning_of(&format!("rate_limit: {{ {gcra} }}")));
}
