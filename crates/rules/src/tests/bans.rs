//! The key `ban`: what it may be, and what it cannot stand beside.

use super::overlay::patched;
use super::{good, reported};
use weir_limit::SECOND;

const RATE: &str = "rate: 5/m";

/// The rule `user` with these limits and this `ban`.
fn text(limits: &str, ban: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: user\n  {limits}\n  ban: {ban}\n")
}

#[test]
fn what_is_absent_has_a_default() {
    let set = good(&text(RATE, "{ after: 10, within: 10m, for: 1h }"));
    let rule = set.rules().next().unwrap();
    let ban = rule.ban().unwrap();
    assert_eq!((ban.after, ban.within, &*ban.lengths), (10, 600 * SECOND, &[3_600 * SECOND][..]));
    assert_eq!(ban.forget, 36_000 * SECOND);
    assert_eq!(rule.limits_text(), "5 per minute; banned for 1h after 10 denials in 10m");
    let plan = rule.plan.as_ref().unwrap();
    assert!(plan.shape().ends_with("+ban") && !plan.can_lease() && !plan.packs());

    let steps = "{ after: 1, within: 90s, for: [1m, 10m, 1h], forget: 2h }";
    let set = good(&text("rates: [5/m, 50/d]", steps));
    let rule = set.rules().next().unwrap();
    assert_eq!(rule.ban().unwrap().forget, 7_200 * SECOND);
    let words = "5 per minute + 50 per day; banned for 1m, 10m, then 1h after 1 denial in 1m30s, forgotten after 2h";
    // Several limits are no fixed windows of the reference.
    assert!(
        rule.limits_text().ends_with(words.split_once("; ").unwrap().1),
        "{}",
        rule.limits_text()
    );
    let again = good(set.to_yaml().split_once("---\n").unwrap().1);
    assert_eq!(again.rules().next().unwrap().ban(), rule.ban());
    assert!(set.dump().contains("banned for 1m, 10m, then 1h"), "{}", set.dump());
    let json = serde_json::to_value(rule.describe()).unwrap();
    assert_eq!(json["ban"]["for_seconds"], serde_json::json!([60.0, 600.0, 3_600.0]));
}

#[test]
fn each_mistake_is_an_error_at_its_place() {
    let steps = ["1s"; 17].join(", ");
    let ban = "{ after: 10, within: 10m, for: 1h }";
    for (limits, ban, expected) in [
        (RATE, "{ after: 0, within: 10m, for: 1h }", "`after` is 0"),
        (RATE, "{ after: 256, within: 10m, for: 1h }", "`after` is 256"),
        (RATE, "{ after: 10, within: 0s, for: 1h }", "`within` is '0s'"),
        (RATE, "{ after: 10, within: 10m, for: 1x }", "`for` is '1x'"),
        (RATE, "{ after: 10, within: 10m, for: [] }", "0 items in `for`"),
        (RATE, &format!("{{ after: 1, within: 1m, for: [{steps}] }}"), "17 items in `for`"),
        (RATE, "{ within: 10m, for: 1h }", "`ban` without `after`"),
        (RATE, "{ after: 10, for: 1h }", "`ban` without `within`"),
        (RATE, "{ after: 10, within: 10m }", "`ban` without `for`"),
        (RATE, "{ after: 10, within: 10m, for: 1h, rate: 1/s }", "'rate' does not belong here"),
        ("rate: 0/m", ban, "`ban` beside a limit of 0"),
        ("rates: [5/m, 0/d]", ban, "`ban` beside a limit of 0"),
        ("rate_limit: { unlimited: true }", ban, "`ban` beside `unlimited`"),
        (
            "rate_limit: { algorithm: concurrency, requests_per_unit: 5 }",
            ban,
            "`ban` with concurrency alone",
        ),
        ("quota_mode: true\n  rate: 5/m", ban, "`ban` beside `quota_mode`"),
        ("value: a", ban, "`ban` without a limit"),
        (
            "rate_limits: [{ rate: 5/m, shadow_mode: true }, { rate: 9/h, shadow_mode: true }]",
            ban,
            "limits of hits that are all in `shadow_mode`",
        ),
        ("rate_limits: [{ rate: 5/m, shadow_mode: true }]", ban, "are all in `shadow_mode`"),
        (
            "rate_limits: [{ rate: 5/m, shadow_mode: true }, \
             { algorithm: concurrency, requests_per_unit: 5 }]",
            ban,
            "are all in `shadow_mode`",
        ),
        ("lease: true\n  rate: 5/m", ban, "`lease` beside `ban`"),
    ] {
        let problems = reported(&text(limits, ban)).join("\n");
        assert!(problems.contains(expected), "{limits} {ban}: {problems}");
    }
    let together = format!("charge: together\n{}", text(RATE, ban));
    let problems = reported(&together).join("\n");
    assert!(problems.contains("`ban` under `charge: together`"), "{problems}");
}

#[test]
fn a_patch_sets_a_whole_ban_or_removes_it() {
    let ban = "{ after: 10, within: 10m, for: 1h }";
    let words = |rules: &str, set: &str| {
        let patches = format!("patches: [{{ match: {{ domain: d }}, set: {{ {set} }} }}]");
        let (set, report) = patched(rules, &patches);
        let problems: Vec<String> =
            report.problems.iter().map(|problem| problem.message.clone()).collect();
        (set.rules().next().unwrap().limits_text(), problems.join("; "))
    };
    let without = "domain: d\ndescriptors:\n- key: user\n  rate: 5/m\n";
    let (text, problems) = words(without, &format!("ban: {ban}"));
    assert_eq!(
        (text.as_str(), &*problems),
        ("5 per minute; banned for 1h after 10 denials in 10m", "")
    );
    let with = self::text(RATE, ban);
    assert_eq!(words(&with, "ban: null"), ("5 per minute".to_owned(), String::new()));
    let (text, _) = words(&with, "ban: { after: 3, within: 1m, for: 5m }");
    assert_eq!(text, "5 per minute; banned for 5m after 3 denials in 1m");
    // What does not fit the rule leaves it as it is.
    let (text, problems) = words(&with, "rate: 0/m");
    assert!(text.contains("banned for 1h"), "{text}");
    assert!(problems.contains("`ban` beside a limit of 0"), "{problems}");
}
