//! The key `lease`: where it may be, and which plans can be leased.

use super::overlay::patched;
use super::{good, reported};
use crate::RuleSet;

const DAY: &str = "rate_limit: { unit: day, requests_per_unit: 9 }";

fn text(charge: &str, keys: &str) -> String {
    format!("domain: d\ncharge: {charge}\ndescriptors:\n- {{ key: k, {keys} }}\n")
}

/// Whether the only rule has `lease`, and whether its plan can be leased.
fn leases(set: &RuleSet) -> (bool, bool) {
    let mut rules = set.rules();
    let (rule, next) = (rules.next().unwrap(), rules.next());
    assert!(next.is_none());
    (rule.lease, rule.plan.as_ref().unwrap().can_lease())
}

/// Limits, and the causes for which they cannot be leased.
const LIMITS: [(&str, &[&str]); 13] = [
    (DAY, &[]),
    ("rate_limit: { unit: month, requests_per_unit: 9, align: calendar }", &[]),
    ("rate_limit: { algorithm: sliding_window, unit: day, requests_per_unit: 9 }", &[]),
    ("rate_limit: { algorithm: bucketed_window, unit: day, requests_per_unit: 9 }", &[]),
    ("rate_limits: [{ unit: day, requests_per_unit: 9, charge_denied: true }]", &[]),
    (
        "rate_limits: [{ unit: day, requests_per_unit: 9 }, { unit: hour, requests_per_unit: 2 }]",
        &[],
    ),
    (
        "rate_limit: { algorithm: sliding_log, unit: day, requests_per_unit: 9 }",
        &["with sliding_log"],
    ),
    ("rate_limit: { algorithm: leaky_bucket, unit: day, requests_per_unit: 9 }", &["with gcra"]),
    (
        "rate_limit: { algorithm: token_bucket, strict: true, unit: day, requests_per_unit: 9 }",
        &["with token_bucket"],
    ),
    (
        "rate_limit: { algorithm: concurrency, hold_id: k, requests_per_unit: 9 }",
        &["with concurrency"],
    ),
    (
        "rate_limits: [{ unit: day, requests_per_unit: 9, shadow_mode: true }]",
        &["with a limit in `shadow_mode`"],
    ),
    (
        "rate_limits: [{ unit: day, requests_per_unit: 9 }, { unit: hour, charge_denied: true }]",
        &["with `charge_denied` in `rate_limits`"],
    ),
    (
        "rate_limits: [{ algorithm: gcra, unit: day, requests_per_unit: 9, shadow_mode: true }, \
         { algorithm: sliding_log, unit: hour, requests_per_unit: 9 }]",
        &["with gcra", "with sliding_log", "with a limit in `shadow_mode`"],
    ),
];

#[test]
fn a_lease_that_cannot_be_is_an_error_with_its_causes() {
    for (limits, causes) in LIMITS {
        let plain = leases(&good(&text("each", limits)));
        assert_eq!(plain, (true, causes.is_empty()), "{limits}");
        let without = leases(&good(&text("each", &format!("{limits}, lease: false"))));
        assert_eq!(without, (false, false), "{limits}");
        let problems = reported(&text("each", &format!("{limits}, lease: true")));
        assert_eq!(problems.len(), causes.len(), "{problems:?}");
        for (problem, cause) in problems.iter().zip(causes) {
            let wanted = format!(": error: config error, `lease` {cause} «true»");
            assert!(problem.ends_with(&wanted), "{problem}");
        }
    }
    let (_, problems) = super::compile(&text("each", &format!("{}, lease: true", LIMITS[6].0)));
    assert_eq!(
        problems[0].help,
        "write `lease: false` or remove it: only fixed_window, sliding_window and bucketed_window can be leased"
    );
}

#[test]
fn rules_that_reserve_and_domains_that_charge_together_are_not_leased() {
    let reserves = format!("{DAY}, reserve: {{ id: i, estimate: 1 }}");
    for (charge, keys, cause) in
        [("each", &*reserves, "beside `reserve`"), ("together", DAY, "under `charge: together`")]
    {
        assert_eq!(leases(&good(&text(charge, keys))), (true, false), "{cause}");
        assert_eq!(leases(&good(&text(charge, &format!("{keys}, lease: false")))), (false, false));
        let column = keys.len() + "- { key: k, , lease: ".len() + 1;
        assert_eq!(
            reported(&text(charge, &format!("{keys}, lease: true"))),
            [format!("4:{column}: error: config error, `lease` {cause} «true»")]
        );
    }
}

#[test]
fn lease_belongs_beside_a_limit() {
    let below = |lease: &str| {
        reported(&text("each", &format!("lease: {lease}, descriptors: [{{ key: b, {DAY} }}]")))
    };
    for lease in ["true", "false"] {
        let error = format!("4:20: error: config error, `lease` without a limit «{lease}»");
        assert_eq!(below(lease), [error]);
    }
    assert_eq!(below("null"), [""; 0]);
    assert_eq!(leases(&good(&text("each", &format!("{DAY}, lease: null")))), (true, true));
    assert_eq!(
        reported(&text("each", "lease: maybe, rate_limit: { unit: dya }")),
        [
            "4:20: error: error loading config file: cannot use maybe as a boolean for `lease` «maybe»",
            "4:47: error: invalid rate limit unit 'dya' «dya»",
        ]
    );
    assert_eq!(
        reported(&text("each", "rate_limit: { unit: day, lease: false }")),
        ["4:38: error: config error, 'lease' does not belong here «lease»"]
    );
    let (_, problems) = super::compile(&text("each", &format!("{DAY}, leese: false")));
    assert_eq!(problems[0].help, "did you mean `lease`?");
    // A limit that is invalid has no algorithm that could be named.
    let invalid = "rate_limit: { algorithm: gcr, unit: day }, lease: true";
    assert_eq!(reported(&text("each", invalid)).len(), 1);
    good(&text("each", "rate_limit: { unlimited: true }, lease: true"));
}

#[test]
fn adding_and_removing_it_keeps_counts() {
    let shapes = ["", ", lease: false", ", lease: true"].map(|lease| {
        let set = good(&text("each", &format!("{DAY}{lease}")));
        set.rules().next().unwrap().plan.as_ref().unwrap().shape().to_owned()
    });
    assert!(shapes.iter().all(|shape| *shape == shapes[0]));
}

#[test]
fn an_overlay_sets_and_removes_it() {
    let patch = |set: &str| format!("patches: [{{ match: {{}}, set: {{ {set} }} }}]\n");
    let each = text("each", DAY);
    for (rules, set, wanted) in [
        (&each, "lease: false", (false, false)),
        (&text("each", &format!("{DAY}, lease: false")), "lease: true", (true, true)),
        (&text("each", &format!("{DAY}, lease: false")), "lease: null", (true, true)),
        (&each, "reserve: { id: i, estimate: 1 }", (true, false)),
        (&each, "algorithm: gcra", (true, false)),
    ] {
        let (set, report) = patched(rules, &patch(set));
        assert_eq!((leases(&set), report.problems.len()), (wanted, 0));
    }
    let (set, report) = patched(&text("together", DAY), &patch("lease: true"));
    assert_eq!(leases(&set), (true, false));
    let problem = report.problems[0].to_string();
    assert!(problem.ends_with("`lease` under `charge: together`"), "{problem}");
}

#[test]
fn the_charge_of_an_overlay_decides() {
    let patch = |charge: &str| {
        format!("patches: [{{ match: {{}}, set_domain: {{ charge: {charge} }} }}]\n")
    };
    for (delivered, set, wanted) in [("each", "together", false), ("together", "each", true)] {
        let (set, report) = patched(&text(delivered, DAY), &patch(set));
        assert_eq!((leases(&set), report.problems.len()), ((true, wanted), 0));
        assert_eq!(set.domain("d").unwrap().together, !wanted);
    }
}
