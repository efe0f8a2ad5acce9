//! The buckets of Envoy's filter for quotas.

use super::{none, warnings_with};
use crate::support::program::problems_with_envoy;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 20 }
";

const USER: &str = "user: { custom_value: { name: user, typed_config: { \"@type\": \
                    type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput, header_name: x-user } } }";

/// A matcher for all requests, whose bucket has these fields.
fn matcher(settings: &str) -> String {
    format!(
        "{{ on_no_match: {{ action: {{ name: bucket, typed_config: {{ \"@type\": \
         type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings, \
         {settings} }} }} }} }}"
    )
}

/// A configuration with a filter whose bucket has these fields, and a route.
fn envoy(settings: &str, route: &str) -> String {
    format!(
        "\
static_resources:
  listeners:
    - filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                http_filters:
                  - name: envoy.filters.http.rate_limit_quota
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig
                      domain: shop
                      rlqs_server: {{ envoy_grpc: {{ cluster_name: weir }} }}
                      bucket_matchers: {}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: [\"*\"]
                      routes:
                        - match: {{ prefix: / }}
                          route: {{ cluster: backend }}
                          {route}
",
        matcher(settings)
    )
}

const DENIES_FIRST: &str =
    "no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }";

/// The fields of a bucket with an id of these entries.
fn bucket(entries: &str) -> String {
    format!(
        "reporting_interval: 5s, bucket_id_builder: {{ bucket_id_builder: {{ {entries} }} }}, {DENIES_FIRST}"
    )
}

#[test]
fn a_bucket_that_fits_has_no_findings() {
    let settings = bucket(USER)
        + ", expired_assignment_behavior: { expired_assignment_behavior_timeout: 60s, \
           fallback_rate_limit: { blanket_rule: DENY_ALL } }";
    assert_eq!(warnings_with(RULES, &envoy(&settings, "")), none());
}

#[test]
fn the_entries_of_a_bucket_have_no_order() {
    let rules = "domain: shop\ndescriptors:\n- key: plan\n  value: gold\n  descriptors:\n  - key: user\n    \
                 rate: 5/m\n";
    let found = |plan: &str| {
        let entries = format!("{USER}, plan: {{ string_value: {plan} }}");
        warnings_with(rules, &envoy(&bucket(&entries), ""))
    };
    assert_eq!(found("gold"), none());
    assert_eq!(
        found("silver"),
        [
            "no rule of the domain 'shop' matches 'user=…,plan=silver'",
            "rules.yaml:6: no action of Envoy sends what 'plan_gold.user' matches",
        ]
    );
}

#[test]
fn two_rules_of_one_bucket_are_an_error() {
    let errors = |user: &str, other_user: &str| {
        let rules = format!(
            "domain: shop\ndescriptors:\n- key: user\n{user}  descriptors: [{{ key: plan, rate: 5/m }}]\n\
             - key: plan\n  descriptors: [{{ key: user, {other_user}rate: 5/m }}]\n"
        );
        let entries = format!("{USER}, plan: {{ string_value: gold }}");
        let mut found = warnings_with(&rules, &envoy(&bucket(&entries), ""));
        found.retain(|found| found.contains("may match two rules"));
        found
    };
    let found = errors("", "");
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("'user.plan' (rules.yaml:") && found[0].contains("'plan.user' ("));
    assert_eq!(errors("  value: a\n", "").len(), 1);
    assert_eq!(errors("  value: a\n", "value: b, "), none(), "no bucket matches both");
}

#[test]
fn rules_that_cannot_be_quotas_are_errors() {
    for (rule, is_error) in [
        ("rate: 5/m", false),
        ("rate_limit: { unlimited: true }", false),
        ("rate: 5/s", true),
        ("rate: 5/s, shadow_mode: true", false),
        ("rate_limits: [{ rate: 5/m }, { rate: 50/h, shadow_mode: true }]", true),
        ("rate: 5/m, lease: false", true),
        ("rate_limit: { unit: day, requests_per_unit: 5, algorithm: gcra }", true),
    ] {
        let rules = format!("domain: shop\ndescriptors: [{{ key: user, {rule} }}]\n");
        let found = problems_with_envoy(&rules, &envoy(&bucket(USER), ""));
        assert_eq!(found.len(), usize::from(is_error), "{rule}: {found:?}");
        for problem in found {
            assert_eq!(problem["severity"], "error");
            assert!(problem["message"].as_str().unwrap().ends_with(", which cannot be a quota"));
        }
    }
}

#[test]
fn settings_without_effect_are_reported() {
    let fallback = |behavior: &str| {
        format!("no_assignment_behavior: {{ fallback_rate_limit: {{ {behavior} }} }}")
    };
    let expired = |behavior: &str| {
        format!(
            "expired_assignment_behavior: {{ expired_assignment_behavior_timeout: 60s, {behavior} }}"
        )
    };
    let rate = "requests_per_time_unit: { requests_per_time_unit: 5, time_unit: MINUTE }";
    for (settings, wanted) in [
        (
            "reporting_interval: 60s".to_owned(),
            ["warning: Envoy 1.40 ignores `reporting_interval`: it reports every 5 s"],
        ),
        (fallback(rate), ["error: Envoy ignores a fallback without `blanket_rule`"]),
        (
            fallback("blanket_rule: ALLOW_ALL"),
            [
                "warning: all requests pass until the first assignment, and are charged only afterwards",
            ],
        ),
        (
            "deny_response_settings: {}".to_owned(),
            [
                "warning: without a fallback in `no_assignment_behavior`, all requests pass until the first assignment, and \
                 are charged only afterwards",
            ],
        ),
        (
            "expired_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }"
                .to_owned(),
            [
                "warning: `expired_assignment_behavior` without `expired_assignment_behavior_timeout`",
            ],
        ),
        (
            expired("reuse_last_assignment: {}"),
            ["warning: Envoy 1.40 ignores `reuse_last_assignment`"],
        ),
        (
            expired(&format!("fallback_rate_limit: {{ {rate} }}")),
            ["warning: Envoy 1.40 ignores `requests_per_time_unit` here"],
        ),
        (
            expired("fallback_rate_limit: { blanket_rule: ALLOW_ALL }"),
            [
                "warning: all requests pass after an assignment has expired, and are charged only afterwards",
            ],
        ),
        (
            expired("fallback_rate_limit: { token_bucket: { max_tokens: 5, fill_interval: 60s } }"),
            [
                "warning: requests that `token_bucket` admits are charged only once weir is back, beside what others use",
            ],
        ),
    ] {
        let settings = if settings.starts_with("expired") {
            format!("{}, {settings}", bucket(USER))
        } else if settings.starts_with("reporting") {
            bucket(USER).replace("reporting_interval: 5s", &settings)
        } else {
            bucket(USER).replace(DENIES_FIRST, &settings)
        };
        let found = problems_with_envoy(RULES, &envoy(&settings, ""));
        let text = |key: &str, i: usize| found[i][key].as_str().unwrap().to_owned();
        let found: Vec<String> =
            (0..found.len()).map(|i| text("severity", i) + ": " + &text("message", i)).collect();
        assert_eq!(found, wanted, "{settings}");
    }
}

#[test]
fn routes_have_buckets_of_their_own() {
    let of_route = |domain: &str| {
        let matcher = matcher(&bucket("tenant: { string_value: a }"));
        format!(
            "typed_per_filter_config: {{ envoy.filters.http.rate_limit_quota: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride, \
             {domain}bucket_matchers: {matcher} }} }}"
        )
    };
    assert_eq!(
        warnings_with(RULES, &envoy(&bucket(USER), &of_route(""))),
        ["no rule of the domain 'shop' matches 'tenant=a'"]
    );
    assert_eq!(
        warnings_with(RULES, &envoy(&bucket(USER), &of_route("domain: other, "))),
        ["there are no rules for the domain 'other'"]
    );
    assert_eq!(warnings_with(RULES, &envoy("reporting_interval: 5s", "")).len(), 1, "no id");
}
